"""Who is asked to grow: all who are restless, and of those who are alike the first that follows."""

from jobtree.core.supply.growth_candidates import GrowthCandidates

A, B, C = (1, "ns", "a"), (2, "ns", "b"), (3, "ns", "c")
EIGHT, SIXTEEN = (8,), (16,)


def three() -> GrowthCandidates:
    eager = GrowthCandidates()
    for order in (C, A, B):
        eager.add(order)
    return eager


def test_who_was_told_nothing_comes_in_order() -> None:
    eager = three()
    assert eager.first_of_each_signature(None) == [(A, None)]
    assert eager.first_of_each_signature(A) == [(B, None)]
    assert eager.next_with_signature(None, B) == C
    assert eager.first_of_each_signature(C) == []


def test_the_first_of_those_alike_answers_for_all() -> None:
    eager = three()
    eager.set_signature(A[1:], EIGHT)
    eager.set_signature(C[1:], EIGHT)
    eager.set_signature(B[1:], SIXTEEN)
    assert sorted(eager.first_of_each_signature(None)) == [(A, EIGHT), (B, SIXTEEN)]
    assert sorted(eager.first_of_each_signature(A)) == [(B, SIXTEEN), (C, EIGHT)]
    assert set(eager) == {A[1:], B[1:], C[1:]}


def test_who_wants_something_else_is_restless_again() -> None:
    eager = three()
    eager.set_signature(A[1:], EIGHT)
    eager.add(A)
    eager.set_signature(B[1:], EIGHT)
    eager.set_signature(B[1:], None)
    assert eager.first_of_each_signature(None) == [(A, None)]
    assert eager.next_with_signature(None, A) == B


def test_who_is_gone_is_not_asked_and_hears_nothing() -> None:
    eager = three()
    for order in (A, B, C):
        eager.set_signature(order[1:], EIGHT)
        eager.discard(order[1:])
        eager.set_signature(order[1:], EIGHT)
    assert not eager
    assert A[1:] not in eager
    assert eager.first_of_each_signature(None) == []
