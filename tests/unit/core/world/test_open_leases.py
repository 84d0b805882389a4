"""Opening, closing and posting of single leases, and the exact inverse of each.

Every lease is one of the Run ``r`` of ``org``, unless a test says otherwise.
"""

from typing import Any

import msgspec
import pytest

from jobtree.api.schema.quantities import HOUR
from jobtree.core.accounts.envelope_accounts import Account
from jobtree.core.model.gpu_lease import GpuLease, count_slots
from jobtree.core.model.promise import Promise
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.open_leases import PostedLease
from jobtree.core.world.world import World
from tests.unit.core.build import H100, NAMESPACE, T0, budget, cap, envelope, node, run

A100 = "A100-40GB"
KEY = (NAMESPACE, "r")
ACCOUNT_SUMS = ("charge", "charge_start", "declared", "declared_end", "closed_usage")


def lease(number: int = 1, mask: int = 0x0F, **fields: Any) -> GpuLease:  # noqa: ANN401  fields of a lease
    slots = fields.pop("slots", (("n", mask),))
    values: dict[str, Any] = {
        "name": f"r-r-uid-{number}",
        "run_key": KEY,
        "uid": "r-uid",
        "owner": "org",
        "payer": ("org", "main"),
        "payer_owner": "org",
        "class_": "Owned",
        "role": "Active",
        "group": 0,
        "flavor": H100,
        "slots": slots,
        "gpus": count_slots(slots),
        "start": T0,
        "rate": 1000,
        "reason": "Start",
    }
    return GpuLease(**(values | fields))


OPPORTUNISTIC: dict[str, Any] = {"role": "Opportunistic", "class_": "Opportunistic"}
SPARE: dict[str, Any] = {"role": "Spare", "rate": 500}


def world_with_run(
    *,
    max_duration: str | None = "2h",
    malleable: tuple[int, int, int] | None = None,
    grant: dict[str, object] | None = None,
) -> World:
    """A world with two nodes, one Budget, and a Run that started at T0, without leases."""
    world = World(now=T0)
    world.put_node(node("n"))
    world.put_node(node("m"))
    world.put_budget(budget("org", grant or envelope(16)))
    world.put_run(run("r", "org", 8, max_duration=max_duration, malleable=malleable))
    state = world.runs[KEY]
    state.enter_phase("Running", T0)
    state.start(T0, 4, provisional=False)
    world.run_queue.update(state)
    return world


def account(world: World, budget_name: str = "org", envelope_name: str = "main") -> Account:
    return world.budgets.envelopes[budget_name, envelope_name].account


def observed(world: World) -> dict[str, object]:
    """Everything that a lease of the Run changes when it opens."""
    state, payer = world.runs[KEY], world.budgets.envelopes["org", "main"]
    return {
        "free": {name: slots.free for name, slots in world.fleet.nodes.items()},
        "in use": {name: domain.in_use for name, domain in world.fleet.flavor(H100).domains.items()},
        "account": [getattr(payer.account, name) for name in ACCOUNT_SUMS],
        "opened": dict(payer.account.opened),
        "classes": {name: (usage.amount, usage.closed_usage) for name, usage in payer.by_class.items()},
        "leases of the payer": dict(payer.leases),
        "known ends": list(payer.known_ends),
        "generations": (payer.reconsider_generation, world.fleet.flavor(H100).reconsider_generation),
        "leases of the Run": dict(state.leases),
        "width": (state.width, state.opportunistic_gpus),
        "usage of the Run": {
            key: (usage.amount, usage.closed_usage) for key, usage in state.usage.by_payer.items()
        },
        "closed charge": state.usage.closed_charge,
        "by node": {name: list(leases) for name, leases in world.leases_by_node.items()},
        "posted": dict(world.posted_leases),
        "queue": list(world.queue),
    }


def known_end(world: World, opened: GpuLease) -> int | None:
    return world.open_leases.posting_for(opened).known_end


# Opening and closing


def test_open_lease_takes_slots_and_is_charged_until_its_known_end() -> None:
    world = world_with_run()
    world.open_leases.open(lease())
    state = world.runs[KEY]
    assert (world.fleet.nodes["n"].leased, world.fleet.nodes["n"].free) == (0x0F, 4)
    assert (state.width, list(state.leases)) == (4, ["r-r-uid-1"])
    assert (account(world).charge, account(world).committed(T0)) == (4_000, 4_000 * 2 * HOUR)
    assert world.budgets.envelopes["org", "main"].known_ends == [(T0 + 2 * HOUR, 4_000)]
    assert world.leases_by_node == {"n": {"r-r-uid-1": None}}


def test_lease_is_listed_on_each_of_its_nodes() -> None:
    world = world_with_run()
    world.open_leases.open(lease(slots=(("n", 0x0F), ("m", 0x0F))))
    world.open_leases.open(lease(2, 0xF0))
    assert {name: set(leases) for name, leases in world.leases_by_node.items()} == {
        "n": {"r-r-uid-1", "r-r-uid-2"},
        "m": {"r-r-uid-1"},
    }
    world.open_leases.close("r-r-uid-1", T0 + HOUR)
    assert {name: set(leases) for name, leases in world.leases_by_node.items()} == {"n": {"r-r-uid-2"}}


def test_closed_lease_leaves_only_its_usage() -> None:
    world = world_with_run()
    before = observed(world)
    world.open_leases.open(lease())
    world.open_leases.close("r-r-uid-1", T0 + HOUR)
    after = observed(world)
    for name in ("free", "in use", "leases of the payer", "known ends", "leases of the Run", "posted"):
        assert after[name] == before[name], name
    assert (account(world).charge, account(world).used(T0 + 9 * HOUR)) == (0, 4_000 * HOUR)
    usage = world.runs[KEY].usage
    assert usage.by_payer["Owned", ("org", "main")].closed_usage == 4 * HOUR
    assert usage.closed_charge == 4_000 * HOUR


@pytest.mark.parametrize("fields", [{}, OPPORTUNISTIC, SPARE], ids=["active", "opportunistic", "spare"])
@pytest.mark.parametrize("max_duration", ["2h", None])
def test_undo_open_restores_the_state_before(fields: dict[str, Any], max_duration: str | None) -> None:
    world = world_with_run(max_duration=max_duration)
    world.open_leases.open(lease(mask=0xF0))
    world.runs[KEY].usage.of(lease(**fields))
    before = observed(world)
    world.open_leases.open(lease(2, **fields))
    assert observed(world) != before
    world.open_leases.undo_open("r-r-uid-2")
    assert observed(world) == before


@pytest.mark.parametrize("fields", [{}, OPPORTUNISTIC, SPARE], ids=["active", "opportunistic", "spare"])
def test_undo_close_restores_the_state_before(fields: dict[str, Any]) -> None:
    world = world_with_run()
    world.open_leases.open(lease(**fields))
    before = observed(world)
    posted = world.open_leases.close("r-r-uid-1", T0 + HOUR)
    assert observed(world) != before
    world.open_leases.undo_close(posted, T0 + HOUR)
    assert observed(world) == before


def test_close_undoes_what_was_posted_when_the_run_was_edited_since() -> None:
    world = world_with_run(max_duration="2h")
    world.open_leases.open(lease())
    world.runs[KEY].apply_edit(run("r", "org", 8, max_duration="5h"))
    world.open_leases.close("r-r-uid-1", T0 + HOUR)
    assert (account(world).declared, account(world).declared_end) == (0, 0)
    assert world.budgets.envelopes["org", "main"].known_ends == []


def test_repost_posts_the_new_known_end_when_the_run_was_edited() -> None:
    world = world_with_run(max_duration="2h")
    world.open_leases.open(lease())
    world.runs[KEY].apply_edit(run("r", "org", 8, max_duration="5h"))
    world.open_leases.repost(["r-r-uid-1"])
    assert world.budgets.envelopes["org", "main"].known_ends == [(T0 + 5 * HOUR, 4_000)]
    assert account(world).committed(T0) == 4_000 * 5 * HOUR


def test_closing_counts_a_return_to_each_envelope_and_flavor_under_its_cap() -> None:
    world = world_with_run()
    world.put_budget(
        budget(
            "org",
            envelope(16),
            envelope(8, "other", flavor=A100),
            caps=[cap("both", "main", "other", maxCredits=100)],
        )
    )
    world.open_leases.open(lease())
    other = world.budgets.envelopes["org", "other"]
    before = (other.reconsider_generation, world.fleet.flavor(A100).reconsider_generation)
    posted = world.open_leases.close("r-r-uid-1", T0)
    after = (other.reconsider_generation, world.fleet.flavor(A100).reconsider_generation)
    assert after == (before[0] + 1, before[1] + 1)
    world.open_leases.undo_close(posted, T0)
    assert (other.reconsider_generation, world.fleet.flavor(A100).reconsider_generation) == before


# Roles and known ends


def test_opportunistic_lease_counts_against_no_limit_and_queues_its_run() -> None:
    world = world_with_run()
    world.open_leases.open(lease(**OPPORTUNISTIC))
    payer = world.budgets.envelopes["org", "main"]
    assert (payer.account.charge, payer.leases, payer.known_ends) == (0, {}, [])
    assert payer.by_class["opportunistic"].amount == 4_000
    assert (world.runs[KEY].width, world.runs[KEY].opportunistic_gpus) == (4, 4)
    assert world.queue == [world.runs[KEY].creation_order]
    world.open_leases.close("r-r-uid-1", T0 + HOUR)
    assert payer.by_class["opportunistic"].closed_usage == 4_000 * HOUR
    assert (payer.account.used(T0 + HOUR), world.runs[KEY].usage.closed_charge) == (0, 0)
    assert world.queue == []


def test_spare_is_charged_at_its_rate_and_adds_no_width() -> None:
    world = world_with_run()
    world.open_leases.open(lease(**SPARE))
    assert (account(world).charge, world.runs[KEY].width) == (2_000, 0)
    assert (world.fleet.nodes["n"].spare, world.fleet.nodes["n"].leased) == (0x0F, 0)
    assert world.budgets.envelopes["org", "main"].by_class["spare"].amount == 2_000


def test_known_end_of_a_funded_lease_is_at_most_the_end_of_the_window() -> None:
    world = world_with_run(max_duration="5h", grant=envelope(16, end=3 * HOUR))
    assert known_end(world, lease()) == T0 + 3 * HOUR
    assert known_end(world, lease(**OPPORTUNISTIC)) == T0 + 5 * HOUR
    assert known_end(world, lease(start=T0 + 4 * HOUR)) == T0 + 4 * HOUR, "never before its start"


def test_lease_has_no_known_end_when_its_run_has_no_duration() -> None:
    assert known_end(world_with_run(max_duration=None, grant=envelope(16, end=3 * HOUR)), lease()) is None


def test_open_ended_lease_commits_an_hour_unless_it_continues_another() -> None:
    world = world_with_run(max_duration=None)
    world.open_leases.open(lease())
    assert account(world).committed(T0) == 4_000 * HOUR
    world.open_leases.open(lease(2, 0xF0, reason="Continue"))
    assert account(world).committed(T0) == 4_000 * HOUR


def test_lease_counts_against_the_quotas_of_its_run() -> None:
    world = world_with_run()
    quota = Account("ns/tree", 16, None)
    world.runs[KEY].change_quotas((quota,))
    world.open_leases.open(lease())
    world.open_leases.open(lease(2, 0xF0, **OPPORTUNISTIC))
    assert quota.charge == 4_000
    world.open_leases.close("r-r-uid-1", T0 + HOUR)
    world.open_leases.close("r-r-uid-2", T0 + HOUR)
    assert (quota.charge, quota.used(T0 + HOUR)) == (0, 4_000 * HOUR)


def test_borrowed_lease_counts_against_the_lending_limit() -> None:
    world = world_with_run()
    world.open_leases.open(lease(class_="Borrowed"))
    assert world.budgets.envelopes["org", "main"].lending_account.charge == 4_000
    assert world.runs[KEY].borrowed_gpus == 4


# Interim and provisional Runs


def promise(at: int) -> Promise:
    return Promise(
        run_key=KEY,
        flavor=H100,
        number=1,
        made_at=T0,
        creation_order=(T0, *KEY),
        commitment="",
        at=at,
        disruption=0,
        width=8,
        pod_size=4,
        domain_gpus=(),
        funding=(),
        end=None,
        immune_until=0,
    )


def provisional_run(world: World) -> RunState:
    """Makes the Run a provisional one whose promise is due in an hour."""
    state = world.runs[KEY]
    state.start(T0, 4, provisional=True)
    state.set_promise(promise(T0 + HOUR))
    return state


def test_payer_records_that_a_lease_is_interim_until_the_promise_is_due() -> None:
    world = world_with_run()
    provisional_run(world)
    world.open_leases.open(lease())
    world.open_leases.open(lease(2, 0xF0, **OPPORTUNISTIC))
    payer = world.budgets.envelopes["org", "main"]
    interim = {name: (charge.at, charge.known_end) for name, charge in payer.interim_charges.items()}
    assert interim == {"r-r-uid-1": (T0 + HOUR, T0 + 2 * HOUR)}
    world.open_leases.close("r-r-uid-1", T0)
    assert payer.interim_charges == {}


def test_payer_forgets_the_interim_end_when_the_promise_is_gone() -> None:
    world = world_with_run()
    state = provisional_run(world)
    world.open_leases.open(lease())
    state.set_promise(None)
    world.open_leases.record_interim(state)
    assert world.budgets.envelopes["org", "main"].interim_charges == {}
    assert state.recorded_interim_until is None


def test_payer_records_since_when_a_run_is_provisional() -> None:
    world = world_with_run()
    state = provisional_run(world)
    world.open_leases.open(lease())
    payer = world.budgets.envelopes["org", "main"]
    assert {name: charge.since for name, charge in payer.provisional_charges.items()} == {"r-r-uid-1": T0}
    state.end_provisional()
    world.open_leases.record_provisional(state)
    assert payer.provisional_charges == {}


def test_leases_of_a_malleable_run_invalidate_the_profiles_around_it() -> None:
    """The availability profile of a domain counts the steps that its malleable Runs can give up."""
    for malleable, is_invalidated in ((None, False), ((4, 8, 4), True)):
        world = world_with_run(malleable=malleable)
        (domain,) = world.fleet.flavor(H100).domains.values()
        before = domain.release_version
        world.open_leases.open(lease())
        assert (domain.release_version is not before) is is_invalidated


# Leases of Runs that cannot be read, and of Budgets that are edited


def unreadable() -> GpuLease:
    return lease(run_key=(NAMESPACE, "unreadable"), uid="unreadable-uid")


def test_lease_of_an_unreadable_run_is_charged_and_keeps_its_slots() -> None:
    """H1: nobody else gets the GPUs of a Run that planning leaves out."""
    world = world_with_run()
    payer, before = world.budgets.envelopes["org", "main"], observed(world)
    returns = payer.reconsider_generation
    world.open_leases.hold(unreadable())
    assert (account(world).charge, world.fleet.nodes["n"].free, world.posted_leases) == (4_000, 4, {})
    world.open_leases.undo_hold("r-r-uid-1")
    world.open_leases.undo_hold("r-r-uid-1")  # it is not held any more
    assert world.fleet.nodes["n"].free == 8
    assert payer.reconsider_generation == returns + 1
    assert observed(world) | {"generations": None} == before | {"generations": None}


def test_leases_of_an_edited_budget_are_charged_within_its_new_window() -> None:
    world = world_with_run(max_duration="5h")
    world.put_budget(budget("other", envelope(8)))
    world.open_leases.open(lease())
    world.open_leases.open(lease(2, 0xF0, payer=("other", "main"), payer_owner="other", class_="Shared"))
    world.open_leases.hold(msgspec.structs.replace(unreadable(), name="unreadable-1"))
    unposted = world.open_leases.unpost_budget("org")
    assert [[each.name for each in leases] for leases in unposted] == [["r-r-uid-1"], ["unreadable-1"]]
    assert (account(world).charge, account(world, "other").charge) == (0, 4_000)
    world.budgets.put(budget("org", envelope(16, end=HOUR)), T0)
    world.open_leases.repost_budget(unposted)
    assert account(world).charge == 8_000
    assert world.budgets.envelopes["org", "main"].known_ends == [(T0 + HOUR, 4_000)]
    assert list(world.open_leases.held) == ["unreadable-1"]


# Nodes, Runs and closed leases that arrive in any order


def test_occupy_node_takes_and_releases_the_slots_of_one_node() -> None:
    world = world_with_run()
    world.open_leases.open(lease(slots=(("n", 0x0F), ("m", 0x0F))))
    world.open_leases.occupy_node("n", -1)
    assert (world.fleet.nodes["n"].leased, world.fleet.nodes["m"].leased) == (0, 0x0F)
    world.open_leases.occupy_node("n", 1)
    assert (world.fleet.nodes["n"].leased, world.fleet.nodes["m"].leased) == (0x0F, 0x0F)


def test_run_of_a_lease_has_the_uid_of_the_lease() -> None:
    world = world_with_run()
    assert world.open_leases.run_of(lease()) is world.runs[KEY]
    assert world.open_leases.run_of(lease(uid="uid-of-an-earlier-run")) is None


def test_run_that_is_read_later_gets_the_charge_of_its_closed_leases_once() -> None:
    world = World(now=T0)
    world.put_budget(budget("org", envelope(16)))
    world.open_leases.add_closed_usage(lease(), T0 + HOUR)
    world.open_leases.add_closed_usage(lease(2, **OPPORTUNISTIC), T0 + HOUR)
    assert account(world).used(T0 + HOUR) == 4_000 * HOUR
    state = world.put_run(run("r", "org", 8))
    assert state.usage.closed_charge == 4_000 * HOUR
    world.open_leases.load_closed_usage(state)
    assert state.usage.closed_charge == 4_000 * HOUR


@pytest.mark.parametrize("archived_by", ["budget", "run"])
def test_closed_usage_is_not_added_to_what_carries_it_already(archived_by: str) -> None:
    world = world_with_run()
    state = world.runs[KEY]
    if archived_by == "budget":
        world.budgets.archived_leases["org"] = {"r-r-uid-1": None}
    else:
        state.usage.archived_leases["r-r-uid-1"] = None
    world.open_leases.add_closed_usage(lease(), T0 + HOUR)
    used = (account(world).used(T0 + HOUR), state.usage.closed_charge)
    assert used == ((0, 4_000 * HOUR) if archived_by == "budget" else (4_000 * HOUR, 0))


def test_posting_has_what_one_pod_of_the_run_requires() -> None:
    world = world_with_run()
    posted = world.open_leases.posting_for(lease())
    assert (posted.load.size, posted.run, posted.envelope.key) == (4, world.runs[KEY], ("org", "main"))
    assert isinstance(posted, PostedLease)
    assert world.open_leases.posting_for(unreadable()).load.size == 1
