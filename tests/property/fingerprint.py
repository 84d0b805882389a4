"""The parts of a world that decide a plan, as plain values: worlds with equal fingerprints plan alike."""

from collections.abc import Iterable

from jobtree.core.accounts.envelope_accounts import Account, ClassUsage, EnvelopeState
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.domain import Domain
from jobtree.core.supply.flavor_pool import FlavorPool
from jobtree.core.supply.node_slots import NodeSlots
from jobtree.core.world.world import World

Fingerprint = dict[object, object]


def fingerprint(world: World) -> Fingerprint:
    return {
        "now": world.now,
        "generations": {
            name: flavor.reconsider_generation
            for name, flavor in world.fleet.flavors.items()
            if flavor.domains
        },
        "flavors": {
            name: of_flavor(flavor) for name, flavor in world.fleet.flavors.items() if flavor.domains
        },
        "nodes": {name: of_node(node) for name, node in world.fleet.nodes.items()},
        "envelopes": {
            key: of_envelope(envelope)
            for key, envelope in world.budgets.envelopes.items()
            if envelope.retired_at is None or of_tallies(envelope.by_class.items())
        },
        "caps": {
            name: [of_account(cap.account) for cap in caps] for name, caps in world.budgets.caps.items()
        },
        "edited envelopes": set(world.budgets.edited_envelopes),
        "verdicts": {
            key: (state.queue_checked_generation, state.outcome, state.verdict)
            for key, state in world.runs.items()
        },
        "runs": {key: of_run(state) for key, state in world.runs.items()},
        "leases": {
            name: (posted.lease, posted.known_end, posted.load.size)
            for name, posted in world.posted_leases.items()
        },
        "by node": {node: set(names) for node, names in world.leases_by_node.items()},
        "leases without run": {
            key: set(names) for key, names in world.lease_intake.leases_without_run.items() if names
        },
        "queue": list(world.queue),
        "to check": set(world.runs_to_check),
        "provisional": set(world.provisional_runs),
        "edited runs": set(world.edited_runs),
        "promise order": list(world.promise_order),
        "history": {
            uid: (durations.starts, durations.ends)
            for by_uid in world.run_history.by_owner.values()
            for uid, durations in by_uid.items()
        },
        "recheck": world.recheck_all_promises,
        "next": world.timers.next_instant(),
    }


def of_node(state: NodeSlots) -> Fingerprint:
    return {
        name: getattr(state, name)
        for name in ("leased", "spare", "foreign", "free", "cpu", "memory", "is_schedulable")
    }


def of_domain(domain: Domain) -> Fingerprint:
    buckets = {free: list(names) for free, names in enumerate(domain.buckets) if names}
    return {
        "buckets": buckets,
        "free": domain.free,
        "in use": domain.in_use,
        "capacity": domain.capacity,
        "promises": dict(domain.promises),
    }


def of_flavor(flavor: FlavorPool) -> Fingerprint:
    fields: Fingerprint = {
        name: getattr(flavor, name) for name in ("free", "biggest_node", "spare_slots", "opportunistic_slots")
    }
    fields["order"] = list(flavor.packing_order)
    fields["domains"] = {name: of_domain(domain) for name, domain in flavor.domains.items()}
    return fields


def of_account(account: Account, *, retired: bool = False) -> Fingerprint:
    names = (name for name in Account.__slots__ if not retired or not name.startswith("max"))
    return {name: plain(getattr(account, name)) for name in names}


def plain(value: object) -> object:
    return dict(value) if isinstance(value, dict) else value


def of_envelope(envelope: EnvelopeState) -> Fingerprint:
    retired = envelope.retired_at is not None
    return {
        "account": of_account(envelope.account, retired=retired),
        "lent": of_account(envelope.lending_account, retired=retired),
        "classes": of_tallies(envelope.by_class.items()),
        "leases": set(envelope.leases),
        "promises": dict(envelope.promises),
        "provisional": dict(envelope.provisional_charges),
        "retired": retired,
    }


def of_tallies(tallies: Iterable[tuple[object, ClassUsage]]) -> Fingerprint:
    """Returns the tallies that are not empty."""
    sums_by_key = {key: (tally.amount, tally.amount_start, tally.closed_usage) for key, tally in tallies}
    return {key: sums for key, sums in sums_by_key.items() if any(sums)}


def of_run(state: RunState) -> Fingerprint:
    names = ["phase", "phase_at", "attempt", "leases_opened", "width"]
    names += ["opportunistic_gpus", "borrowed_gpus", "queued", "promise", "provisional"]
    names += ["reservations_made", "lotteries_lost", "times_stopped"]
    if state.phase == "Running":
        names += ["since", "pod_size"]
    fields: Fingerprint = {name: getattr(state, name) for name in names}
    fields["leases"] = dict(state.leases)
    fields["funding"] = of_tallies(state.usage.by_payer.items())
    return fields
