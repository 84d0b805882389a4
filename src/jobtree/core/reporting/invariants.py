"""The invariants (section 12 of the specification), checked independently of the planner.

Everything here is computed from the leases, in the slow and obvious way. ``check_invariants`` returns a list
of violations, which is empty if the world is sound.
"""

from collections.abc import Iterator

import msgspec

from jobtree.api.kinds.budget import Budget
from jobtree.api.schema.quantities import parse_micro
from jobtree.core.accounts.envelope_accounts import CLASSES, EnvelopeState, reported_amount, usage_class
from jobtree.core.funding.payer_candidates import payer_candidates
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease
from jobtree.core.operations.promise_changes import broken_reason
from jobtree.core.planning.planning_pass import plan
from jobtree.core.runs.run_state import RunState
from jobtree.core.supply.node_slots import selector_matches
from jobtree.core.world.world import World


class Violation(msgspec.Struct, frozen=True):
    invariant: str
    message: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.message}"


class LedgerReplay:
    """The usage of each envelope, summed lease by lease apart from its account; I10 compares the two."""

    def __init__(self) -> None:
        self.closed_usage: dict[EnvelopeKey, dict[str, int]] = {}
        self._carried: set[str] = set()  # leases that are counted in the carried usage of Budgets

    def add_opening_balance(self, budget: Budget) -> None:
        """Adds the usage of archived leases that the status of a Budget carries."""
        carried = budget.status.carried
        if carried is None:
            return
        self._carried.update(carried.leases)
        for envelope in carried.envelopes:
            by_class = self.closed_usage.setdefault((budget.metadata.name, envelope.name), {})
            for name in CLASSES:
                use = parse_micro(getattr(envelope.gpu_seconds, name))
                by_class[name] = by_class.get(name, 0) + use

    def close(self, lease: GpuLease, end: int) -> None:
        if lease.name in self._carried:
            return
        by_class = self.closed_usage.setdefault(lease.payer, {})
        use = reported_amount(lease) * (end - lease.start)
        by_class[usage_class(lease)] = by_class.get(usage_class(lease), 0) + use


def check_invariants(world: World, replay: LedgerReplay, *, planned: bool = True) -> list[Violation]:
    """Checks all invariants; ``planned`` is False while the world may have something left to plan."""
    return [
        *slots_are_exclusive(world),
        *payers_are_entitled(world),
        *limits_hold(world),
        *gangs_are_whole(world),
        *groups_are_together(world),
        *leases_are_sound(world),
        *widths_are_in_range(world),
        *accounts_equal_replay(world, replay),
        *promises_hold(world),
        *runs_are_accounted_for(world),
        *(nothing_left_to_do(world) if planned else ()),
    ]


def slots_are_exclusive(world: World) -> Iterator[Violation]:
    taken: dict[tuple[str, int], list[str]] = {}
    for name, posted in world.posted_leases.items():
        for node, mask in posted.lease.slots:
            for slot in range(mask.bit_length()):
                if mask >> slot & 1:
                    taken.setdefault((node, slot), []).append(name)
    for (node, slot), names in taken.items():
        roles = sorted(world.posted_leases[name].lease.role for name in names)
        if len(names) > 1 and roles != ["Opportunistic", "Spare"]:
            yield Violation("I1", f"slot {node}#{slot} is under {' and '.join(sorted(names))}")


def payers_are_entitled(world: World) -> Iterator[Violation]:
    """I2: each payer may be asked. Skips leases that continued, or whose payer was edited since."""
    for posted in world.posted_leases.values():
        lease, run, envelope = posted.lease, posted.run, posted.envelope
        if run is None or run.shape is None or lease.reason in ("Demote", "Continue"):
            continue
        if lease.start <= max(world.budgets_edited_at, envelope.amended_at):
            continue
        entitled = {candidate.envelope.key: candidate.class_ for candidate in payer_candidates(world, run)}
        if lease.payer not in entitled:
            yield Violation("I2", f"{lease.name} is paid by {envelope.label}, which may not be asked")
        elif lease.role != "Opportunistic" and entitled[lease.payer] != lease.class_:
            yield Violation("I2", f"{lease.name} is {lease.class_}, not {entitled[lease.payer]}")
        if lease.role != "Opportunistic" and not envelope.start <= lease.start < envelope.end:
            yield Violation("I2", f"{lease.name} began outside the window of {envelope.label}")
        for node, _ in lease.slots:
            state = world.fleet.nodes.get(node)
            if state is not None and not selector_matches(state.node.labels, envelope.selector):
                yield Violation("I2", f"{lease.name} is on {node}, where {envelope.label} does not pay")


def limits_hold(world: World) -> Iterator[Violation]:
    """I3: the charge is within every limit, and no lease without a known end runs on exhausted hours.

    The usage of a Budget that was cut may exceed its new limit.
    """
    accounts = [
        account
        for envelope in world.budgets.envelopes.values()
        for account in (envelope.account, envelope.lending_account, *(cap.account for cap in envelope.caps))
    ]
    for account in (*accounts, *world.run_graph.quotas()):
        used, open_ended = account.used(world.now), account.open_ended
        if account.charge > account.max_charge:
            yield Violation("I3", f"{account.label} pays for {account.charge} of {account.max_charge}")
        if account.max_use is not None and used > account.max_use and open_ended > 0:
            yield Violation("I3", f"{account.label} used {used} of {account.max_use}")


def gangs_are_whole(world: World) -> Iterator[Violation]:
    for run in world.runs.values():
        if run.phase == "Running" and run.shape is not None and not run.leases:
            yield Violation("I4", f"{name_of(run)} is running without leases")
        if run.phase != "Running" and run.leases:
            yield Violation("I4", f"{name_of(run)} is {run.phase} and has leases {sorted(run.leases)}")


def groups_are_together(world: World) -> Iterator[Violation]:
    for run in world.runs.values():
        domains: dict[int, set[str]] = {}
        for lease in run.leases.values():
            for node, _ in lease.slots:
                domain = world.fleet.domain_by_node.get(node)
                if domain is not None:
                    domains.setdefault(lease.group, set()).add(domain.name)
        for group, names in domains.items():
            if len(names) > 1:
                yield Violation("I5", f"group {group} of {name_of(run)} is in {sorted(names)}")


def leases_are_sound(world: World) -> Iterator[Violation]:
    """I6: no lease starts in the future, and the Run of each lease exists."""
    for name, posted in world.posted_leases.items():
        if posted.lease.start > world.now:
            yield Violation("I6", f"{name} starts in the future")
        if posted.run is None or posted.run.key not in world.runs:
            yield Violation("I6", f"the Run of {name} does not exist")


def widths_are_in_range(world: World) -> Iterator[Violation]:
    for run in world.runs.values():
        shape = run.shape
        if run.phase == "Running" and shape and not shape.min <= run.width <= shape.max:
            yield Violation(
                "I7", f"{name_of(run)} has a width of {run.width}, not of {shape.min} to {shape.max}"
            )


def accounts_equal_replay(world: World, replay: LedgerReplay) -> Iterator[Violation]:
    """I10: the totals of every envelope are the sums of its leases."""
    used: dict[EnvelopeKey, dict[str, int]] = {key: dict(sums) for key, sums in replay.closed_usage.items()}
    open_now: dict[EnvelopeKey, dict[str, int]] = {}
    for posted in (*world.posted_leases.values(), *world.open_leases.held.values()):
        lease, name = posted.lease, usage_class(posted.lease)
        for sums, amount in ((open_now, 1), (used, world.now - lease.start)):
            by_class = sums.setdefault(lease.payer, {})
            by_class[name] = by_class.get(name, 0) + reported_amount(lease) * amount
    for envelope in world.budgets.envelopes.values():
        yield from compare(world, envelope, open_now.get(envelope.key, {}), used.get(envelope.key, {}))


def compare(
    world: World, envelope: EnvelopeState, open_now: dict[str, int], used: dict[str, int]
) -> Iterator[Violation]:
    for name, tally in envelope.by_class.items():
        account = (tally.amount, tally.used(world.now))
        ledger = (open_now.get(name, 0), used.get(name, 0))
        if account != ledger:
            yield Violation(
                "I10", f"{envelope.label}, {name}: {account} in the account, {ledger} in the ledger"
            )
    charged = sum(amount for name, amount in used.items() if name != "opportunistic")
    if envelope.account.used(world.now) != charged:
        yield Violation("I10", f"{envelope.label}: its account does not equal the sum of its classes")


def promises_hold(world: World) -> Iterator[Violation]:
    """I8: each promise that is due was kept or slipped, and each other promise can still be kept."""
    for run in world.runs.values():
        promise = run.promise
        if promise is None or promise.at is None:
            continue
        if promise.at <= world.now and run.waiting:
            yield Violation("I8", f"{promise.name} was due and {name_of(run)} still waits")
        elif run.waiting and (reason := broken_reason(world, run)) is not None:
            yield Violation("I8", f"{promise.name} can no longer be kept ({reason}) and did not slip")


def runs_are_accounted_for(world: World) -> Iterator[Violation]:
    for run in world.runs.values():
        if run.phase == "Waiting" and (run.verdict is None or not run.verdict.causes):
            yield Violation("I11", f"{name_of(run)} waits for other Runs without naming them")
        if run.waiting:
            if not run.queued:
                yield Violation("I11", f"{name_of(run)} waits and is not in the queue")
            if run.verdict is None or not run.verdict.causes:
                yield Violation("I11", f"{name_of(run)} waits without a reason")
            if run.promise is None or run.phase != "Reserved":
                yield Violation("I11", f"{name_of(run)} waits without a Reservation")


def nothing_left_to_do(world: World) -> Iterator[Violation]:
    """I12: a world at rest plans nothing."""
    for action in plan(world).actions:
        yield Violation("I12", f"a world at rest would still {action.kind} {'/'.join(action.run_key)}")


def name_of(run: RunState) -> str:
    return "/".join(run.key)
