"""Growth candidates: every Run without a signature, and the first Run of each signature."""

from jobtree.core.supply.growth_candidates import GrowthCandidates

A, B, C = (1, "ns", "a"), (2, "ns", "b"), (3, "ns", "c")
EIGHT, SIXTEEN = (8,), (16,)


def three() -> GrowthCandidates:
    candidates = GrowthCandidates()
    for order in (C, A, B):
        candidates.add(order)
    return candidates


def test_runs_without_a_signature_come_in_creation_order() -> None:
    candidates = three()
    assert candidates.first_of_each_signature(None) == [(A, None)]
    assert candidates.first_of_each_signature(A) == [(B, None)]
    assert candidates.next_with_signature(None, B) == C
    assert candidates.first_of_each_signature(C) == []


def test_only_the_first_run_of_a_signature_is_considered() -> None:
    candidates = three()
    candidates.set_signature(A[1:], EIGHT)
    candidates.set_signature(C[1:], EIGHT)
    candidates.set_signature(B[1:], SIXTEEN)
    assert sorted(candidates.first_of_each_signature(None)) == [(A, EIGHT), (B, SIXTEEN)]
    assert sorted(candidates.first_of_each_signature(A)) == [(B, SIXTEEN), (C, EIGHT)]
    assert set(candidates) == {A[1:], B[1:], C[1:]}


def test_changed_run_loses_its_signature() -> None:
    candidates = three()
    candidates.set_signature(A[1:], EIGHT)
    candidates.add(A)
    candidates.set_signature(B[1:], EIGHT)
    candidates.set_signature(B[1:], None)
    assert candidates.first_of_each_signature(None) == [(A, None)]
    assert candidates.next_with_signature(None, A) == B


def test_deleted_run_is_no_candidate_and_gets_no_signature() -> None:
    candidates = three()
    for order in (A, B, C):
        candidates.set_signature(order[1:], EIGHT)
        candidates.discard(order[1:])
        candidates.set_signature(order[1:], EIGHT)
    assert not candidates
    assert A[1:] not in candidates
    assert candidates.first_of_each_signature(None) == []
