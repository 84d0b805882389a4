"""Who is asked to grow: all who want something else than a step, and those whose step might be there."""

from jobtree.core.eager import Eager

A, B, C = ("ns", "a"), ("ns", "b"), ("ns", "c")


def three() -> Eager:
    eager = Eager()
    for run in (A, B, C):
        eager.add(run)
    return eager


def test_who_was_told_nothing_is_asked_whatever_is_free() -> None:
    assert list(three().within(0)) == [A, B, C]


def test_who_lacks_a_step_is_asked_when_there_is_one() -> None:
    eager = three()
    eager.hear(A, 8)
    eager.hear(B, 16)
    assert list(eager.within(7)) == [C]
    assert list(eager.within(8)) == [C, A]
    assert set(eager.within(16)) == {A, B, C}
    assert set(eager) == {A, B, C}


def test_who_wants_something_else_is_asked_again() -> None:
    eager = three()
    eager.hear(A, 8)
    eager.add(A)
    eager.hear(B, 8)
    eager.hear(B, None)
    assert set(eager.within(0)) == {A, B, C}


def test_who_is_gone_is_not_asked_and_hears_nothing() -> None:
    eager = three()
    for run in (A, B, C):
        eager.hear(run, 8)
        eager.discard(run)
        eager.hear(run, 8)
    assert not eager
    assert A not in eager
    assert list(eager.within(8)) == []
