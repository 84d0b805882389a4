"""Everything that a plan could disturb, as plain values: two worlds with one fingerprint plan alike."""

from collections.abc import Iterable

from jobtree.core.accounts.envelope_accounts import Account, ClassUsage, EnvelopeState
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSlots
from jobtree.core.world.world import World

Print = dict[object, object]


def fingerprint(world: World) -> Print:
    return {
        "now": world.now,
        "gains": {
            name: one.reconsider_generation for name, one in world.fleet.flavors.items() if one.domains
        },
        "flavors": {name: of_flavor(one) for name, one in world.fleet.flavors.items() if one.domains},
        "nodes": {name: of_node(node) for name, node in world.fleet.nodes.items()},
        "envelopes": {
            key: of_envelope(one)
            for key, one in world.budgets.envelopes.items()
            if one.retired_at is None or of_tallies(one.by_class.items())
        },
        "caps": {
            name: [of_account(cap.account) for cap in caps] for name, caps in world.budgets.caps.items()
        },
        "amended": set(world.budgets.edited_envelopes),
        "seen": {
            key: (state.queue_checked_generation, state.outcome, state.verdict)
            for key, state in world.runs.items()
        },
        "runs": {key: of_run(state) for key, state in world.runs.items()},
        "held": {
            name: (held.lease, held.known_end, held.pod_size) for name, held in world.posted_leases.items()
        },
        "by node": {node: set(names) for node, names in world.leases_by_node.items()},
        "orphans": {key: set(names) for key, names in world.lease_intake.orphans.items() if names},
        "queue": list(world.queue),
        "attention": set(world.runs_to_check),
        "provisional": set(world.provisional_runs),
        "edited": set(world.edited_runs),
        "ranks": list(world.promise_order),
        "history": {
            uid: (past.starts, past.ends)
            for pasts in world.run_history.by_owner.values()
            for uid, past in pasts.items()
        },
        "shaken": world.recheck_all_promises,
        "next": world.timers.next_instant(),
    }


def of_node(state: NodeSlots) -> Print:
    return {
        name: getattr(state, name)
        for name in ("leased", "spare", "foreign", "free", "cpu", "memory", "is_schedulable")
    }


def of_domain(domain: Domain) -> Print:
    buckets = {free: list(names) for free, names in enumerate(domain.buckets) if names}
    return {
        "buckets": buckets,
        "free": domain.free,
        "in use": domain.in_use,
        "capacity": domain.capacity,
        "promises": dict(domain.promises),
    }


def of_flavor(flavor: FlavorPool) -> Print:
    found: Print = {
        name: getattr(flavor, name) for name in ("free", "biggest_node", "spare_slots", "opportunistic_slots")
    }
    found["order"] = list(flavor.packing_order)
    found["domains"] = {name: of_domain(domain) for name, domain in flavor.domains.items()}
    return found


def of_account(account: Account, *, retired: bool = False) -> Print:
    names = (name for name in Account.__slots__ if not retired or not name.startswith("max"))
    return {name: plain(getattr(account, name)) for name in names}


def plain(value: object) -> object:
    return dict(value) if isinstance(value, dict) else value


def of_envelope(envelope: EnvelopeState) -> Print:
    retired = envelope.retired_at is not None
    return {
        "account": of_account(envelope.account, retired=retired),
        "lent": of_account(envelope.lending_account, retired=retired),
        "classes": of_tallies(envelope.by_class.items()),
        "leases": set(envelope.leases),
        "promises": dict(envelope.promises),
        "yields": dict(envelope.provisional_charges),
        "retired": retired,
    }


def of_tallies(tallies: Iterable[tuple[object, ClassUsage]]) -> Print:
    """Those that say anything: a tally of nothing is as good as none."""
    found = {key: (tally.amount, tally.amount_start, tally.closed_usage) for key, tally in tallies}
    return {key: sums for key, sums in found.items() if any(sums)}


def of_run(state: RunState) -> Print:
    names = ["phase", "phase_at", "attempt", "leases_opened", "width"]
    names += ["opportunistic_gpus", "borrowed_gpus", "queued", "promise", "provisional"]
    names += ["reservations_made", "lotteries_lost"]
    if state.phase == "Running":
        names += ["since", "pod_size"]
    found: Print = {name: getattr(state, name) for name in names}
    found["leases"] = dict(state.leases)
    found["funding"] = of_tallies(state.usage.by_payer.items())
    return found
