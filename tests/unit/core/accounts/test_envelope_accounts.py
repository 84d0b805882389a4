"""Usage is linear in time: an account read at any instant equals a replay of its leases."""

import pytest

from jobtree.api.schema.quantities import HOUR
from jobtree.core.accounts.envelope_accounts import GPU_HOUR, Account, ClassUsage, lending_entry_matches

GPU = 1000


def account(max_hours: int | None = 8, max_gpus: int = 16) -> Account:
    return Account("test", max_gpus, max_hours)


def test_usage_grows_while_a_lease_is_open_and_stays_when_it_closes() -> None:
    books = account()
    books.open(4 * GPU, 0, None)
    assert books.used(HOUR) == 4 * GPU_HOUR
    books.open(2 * GPU, HOUR, None)
    assert books.used(2 * HOUR) == 10 * GPU_HOUR
    books.close(4 * GPU, 0, None, 2 * HOUR)
    assert books.used(3 * HOUR) == 12 * GPU_HOUR
    assert (books.charge, books.free_charge()) == (2 * GPU, 14 * GPU)


def test_lease_counts_from_its_start_to_its_end() -> None:
    books = account()
    books.open(4 * GPU, HOUR, None)
    books.close(4 * GPU, HOUR, None, 3 * HOUR)
    assert books.used(5 * HOUR) == 8 * GPU_HOUR


def test_a_lease_that_closed_in_the_past_counts_only_until_then() -> None:
    books = account()
    books.open(4 * GPU, 0, None)
    books.close(4 * GPU, 0, None, HOUR)
    assert books.used(9 * HOUR) == 4 * GPU_HOUR


def test_a_declared_lease_commits_what_it_has_not_used() -> None:
    books = account()
    books.open(2 * GPU, 0, 3 * HOUR)
    for hour in range(4):
        assert books.used(hour * HOUR) == 2 * hour * GPU_HOUR
        assert books.committed(hour * HOUR) == (6 - 2 * hour) * GPU_HOUR
        assert books.free_use(hour * HOUR) == 2 * GPU_HOUR


def test_an_open_ended_lease_commits_one_hour_at_the_instant_it_opens_only() -> None:
    books = account()
    books.open(2 * GPU, HOUR, None)
    books.open(GPU, HOUR, None)
    assert books.committed(HOUR) == 3 * GPU_HOUR
    assert books.committed(HOUR + 1) == 0
    books.open(GPU, 2 * HOUR, None)
    assert books.committed(2 * HOUR) == GPU_HOUR


@pytest.mark.parametrize(
    ("leases", "instant"),
    [
        pytest.param([], None, id="nothing open"),
        pytest.param([(4 * GPU, 0, None)], 2 * HOUR, id="one lease"),
        pytest.param([(4 * GPU, 0, None), (4 * GPU, HOUR, None)], 3 * HOUR // 2, id="two, one later"),
        pytest.param([(4 * GPU, 0, 2 * HOUR)], None, id="a declared one never ends for hours"),
        pytest.param([(4 * GPU, 0, HOUR), (2 * GPU, 0, None)], 2 * HOUR, id="declared ones leave the rest"),
        pytest.param([(3 * GPU, 0, None)], 8 * HOUR // 3, id="between two milliseconds: the earlier"),
        pytest.param([(250, 0, None)], 32 * HOUR, id="a quarter of a GPU"),
        pytest.param([(7 * GPU, 0, None)], 8 * HOUR // 7, id="never rounded up"),
    ],
)
def test_hours_are_exhausted_at_an_exact_instant(
    leases: list[tuple[int, int, int | None]], instant: int | None
) -> None:
    books = account(max_hours=8)
    for lease in leases:
        books.open(*lease)
    assert books.exhausted_at() == instant
    if instant is not None:
        assert books.used(instant) + books.declared_end - books.declared * instant <= 8 * GPU_HOUR


def test_account_without_a_limit_is_never_exhausted() -> None:
    books = account(max_hours=None)
    books.open(4 * GPU, 0, None)
    assert (books.exhausted_at(), books.free_use(HOUR)) == (None, None)


def test_opening_and_closing_have_exact_inverses() -> None:
    books = account()
    books.open(4 * GPU, 0, None)
    books.open(2 * GPU, HOUR, 5 * HOUR)
    before = {name: repr(getattr(books, name)) for name in Account.__slots__}
    books.open(GPU, 2 * HOUR, None)
    books.open(GPU, 2 * HOUR, 3 * HOUR)
    books.close(4 * GPU, 0, None, 2 * HOUR)
    books.close(4 * GPU, 0, None, 2 * HOUR, sign=-1)
    books.open(GPU, 2 * HOUR, 3 * HOUR, sign=-1)
    books.open(GPU, 2 * HOUR, None, sign=-1)
    assert {name: repr(getattr(books, name)) for name in Account.__slots__} == before


def test_class_usage_is_summed_like_an_account() -> None:
    tally = ClassUsage()
    tally.open(4, HOUR)
    tally.open(2, 2 * HOUR)
    tally.close(4, HOUR, 3 * HOUR)
    assert (tally.amount, tally.used(4 * HOUR)) == (2, 12 * HOUR)


@pytest.mark.parametrize(
    ("to", "owner", "allowed"),
    [
        ("org:ai", "org:ai", True),
        ("org:ai", "org:ai:rai", False),
        ("org:ai:*", "org:ai:rai", True),
        ("org:ai:*", "org:ai:rai:sys", True),
        ("org:ai:*", "org:ai", False),
        ("org:ai:*", "org:air", False),
        ("*", "anybody", True),
    ],
)
def test_lending_entry_names_an_owner_a_prefix_or_all_owners(to: str, owner: str, allowed: bool) -> None:
    assert lending_entry_matches(to, owner) is allowed
