"""The invariants of the specification, computed from the records of a Lab, not from the sums of the core."""

from collections.abc import Iterator

from jobtree.api.kinds.budget import Budget, Envelope
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import parse_time
from jobtree.core.lottery.resolution_record import verify
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import Promise
from jobtree.core.model.reasons import Reason
from jobtree.messages.record_signature import sign
from tests.property.checked_cluster import CheckedCluster
from tests.property.ledger_oracle import open_at
from tests.unit.core.lab import Record

SIGNING_KEY = b"the key that signs records"
ENDED = {"Completed", "Failed"}


class InvariantChecker:
    """Checks all invariants after a plan; it remembers what the last check saw."""

    def __init__(self) -> None:
        self.checked_leases: set[str] = set()
        self.promises: dict[tuple[RunKey, int], Promise] = {}
        self.checked_lotteries = 0

    def __call__(self, cluster: CheckedCluster) -> None:
        opened = [record for name, record in cluster.lab.records.items() if name not in self.checked_leases]
        self.checked_leases.update(cluster.lab.records)
        violations = [
            *slots_are_exclusive(cluster),
            *payers_are_entitled(cluster, opened),
            *cluster.oracle.broken_limits(),
            *gangs_are_whole(cluster),
            *accounts_equal_the_ledger(cluster),
            *no_run_is_lost(cluster),
            *promises_are_kept(cluster, self.promises),
            *lotteries_verify(cluster, self.checked_lotteries),
        ]
        self.checked_lotteries = len(cluster.lab.lotteries)
        assert violations == [], "\n".join([*violations, cluster.story()])


def runs_that_must_exist(cluster: CheckedCluster) -> Iterator[tuple[RunKey, Run]]:
    """Yields the Runs that were submitted and not cancelled, and their child Runs."""
    for key, run in cluster.submitted.items():
        yield key, run
        state = cluster.lab.world.runs.get(key)
        if state is not None:
            yield from (
                (child.key, child.run_object) for child in cluster.lab.world.run_graph.descendants(state)
            )


def gangs(cluster: CheckedCluster) -> Iterator[tuple[RunKey, Run]]:
    """Yields those of them that ask for GPUs."""
    for key, run in runs_that_must_exist(cluster):
        if run.spec.resources is not None and run.spec.resources.total_gpus:
            yield key, run


def slots_are_exclusive(cluster: CheckedCluster) -> Iterator[str]:
    """I1 and P1: no slot is leased twice, and leases and foreign pods fit on the node."""
    taken: dict[tuple[str, int], list[str]] = {}
    for record in cluster.open_records():
        for node, mask in record.lease.slots:
            for slot in range(mask.bit_length()):
                if mask >> slot & 1:
                    taken.setdefault((node, slot), []).append(record.lease.role)
    for where, roles in taken.items():
        if len(roles) > 1 and sorted(roles) != ["Opportunistic", "Spare"]:
            yield f"{where} has {roles}"
    for fleet_node in cluster.fleet:
        gpus, foreign = fleet_node.gpus, fleet_node.foreign_gpus
        slots = {slot for node, slot in taken if node == fleet_node.name}
        if len(slots) + foreign > gpus or any(slot >= gpus for slot in slots):
            yield f"{fleet_node.name} has {gpus} GPUs: slots {slots} are leased, foreign pods have {foreign}"


def parents_of(owner: str, budgets: list[Budget]) -> set[str]:
    """Returns the declared parents of an owner, or the nearest owner above it by path."""
    owners = {budget.spec.owner for budget in budgets}
    declared = [
        budget.spec.parents
        for budget in budgets
        if budget.spec.owner == owner and budget.spec.parents is not None
    ]
    if declared:
        return {parent for parents in declared for parent in parents if parent in owners}
    paths = [other for other in owners if owner.startswith(other + ":")]
    return {max(paths, key=len)} if paths else set()


def tiers(owner: str, budgets: list[Budget]) -> dict[str, int]:
    """Returns the tier of each relative: 0 itself, 1 siblings, 2 parents, 3 and more ancestors (C1, C2)."""
    owners = {budget.spec.owner for budget in budgets}
    parents = parents_of(owner, budgets)
    found = {owner: 0, **dict.fromkeys(parents, 2)}
    if owner not in owners:
        return found
    for other in owners:
        if parents & parents_of(other, budgets):
            found.setdefault(other, 1)
    generation, tier = parents, 3
    while generation:
        generation = {older for parent in generation for older in parents_of(parent, budgets)} - found.keys()
        found.update(dict.fromkeys(generation, tier))
        tier += 1
    return found


def entitlement(run: Run, envelope: Envelope, owner: str, budgets: list[Budget]) -> set[str]:
    """Returns the classes in which this envelope may pay for the Run (C3)."""
    funding, found = run.spec.funding, set()
    tier = tiers(run.spec.owner, budgets).get(owner)
    if tier == 0:
        found.add("Owned")
    elif tier is not None and envelope.sharing == "family":
        found.add("Shared")
    lending = envelope.lending
    if funding.allow_borrow and owner in funding.sponsors and lending and lending.allow:
        me = run.spec.owner
        if any(to in ("*", me) or (to.endswith(":*") and me.startswith(to[:-1])) for to in lending.to):
            found.add("Borrowed")
    return found


def payers_are_entitled(cluster: CheckedCluster, opened: list[Record]) -> Iterator[str]:
    """I2, for the leases that opened since the last check."""
    budgets = list(cluster.lab.world.budgets.budgets.values())
    for lease in (record.lease for record in opened):
        if lease.reason == "Continue":
            if not any(is_rest_of(record, lease) for record in cluster.lab.records.values()):
                yield f"{lease.name} continues nothing"
            continue
        payers = [
            (budget.spec.owner, envelope)
            for budget in budgets
            for envelope in budget.spec.envelopes
            if (budget.metadata.name, envelope.name) == lease.payer
        ]
        if not payers:
            if lease.reason != "Demote":
                yield f"{lease.name} has no payer"
            continue
        ((owner, envelope),) = payers
        classes = entitlement(cluster.run_of(lease.run_key), envelope, owner, budgets)
        if lease.role == "Opportunistic":
            entitled = bool(classes) or lease.reason == "Demote"
        else:
            entitled = (
                lease.class_ in classes and lease.payer_owner == owner and within(envelope, lease.start)
            )
        if not entitled:
            yield f"{lease.name}: {lease.payer} may pay as {classes}, not as {lease.class_}"
        edited = lease.reason == "Demote"  # after an edit no envelope may match the nodes
        if not edited and not (envelope.flavor == lease.flavor and matches(cluster, envelope, lease)):
            yield f"{lease.name}: {lease.payer} does not pay there"


def is_rest_of(record: Record, lease: GpuLease) -> bool:
    """Whether a lease is the rest of another one that ended when it began."""
    old = record.lease
    return (old.run_key, old.payer, old.role, record.end) == (
        lease.run_key,
        lease.payer,
        lease.role,
        lease.start,
    )


def within(envelope: Envelope, at: int) -> bool:
    after = envelope.start is None or parse_time(envelope.start) <= at
    return after and (envelope.end is None or at < parse_time(envelope.end))


def matches(cluster: CheckedCluster, envelope: Envelope, lease: GpuLease) -> bool:
    labels = [cluster.labels(node) for node, _ in lease.slots]
    return all(have.get(key) == value for have in labels for key, value in envelope.selector.items())


def gangs_are_whole(cluster: CheckedCluster) -> Iterator[str]:
    """I4, I5, I7: a gang has all groups or none, each in one domain, in whole pods, at an allowed width."""
    for key, run in gangs(cluster):
        state = cluster.lab.world.runs[key]
        leases = [record.lease for record in cluster.open_records() if record.lease.run_key == key]
        if (state.phase == "Running") != bool(leases) or state.waiting == (
            state.phase in ENDED | {"Running", "Waiting"}
        ):
            yield f"{key} is {state.phase} with {len(leases)} leases"
        if not leases:
            continue
        groups: dict[int, int] = {}
        domains: dict[int, set[str]] = {}
        for lease in leases:
            groups[lease.group] = groups.get(lease.group, 0) + (lease.gpus if lease.role != "Spare" else 0)
            domains.setdefault(lease.group, set()).update(
                cluster.labels(node)["fabric.domain"] for node, _ in lease.slots
            )
            if any(mask.bit_count() % state.pod_size for _, mask in lease.slots):
                yield f"{lease.name} splits a pod"
        if any(len(names) > 1 for names in domains.values()):
            yield f"{key} has groups in {domains}"
        if not run.spec.locality.allow_cross_group_spread and len(set().union(*domains.values())) > 1:
            yield f"{key} may not spread, and is in {domains}"
        yield from width_is_right(run, sum(groups.values()), sorted(groups.values(), reverse=True))


def width_is_right(run: Run, width: int, groups: list[int]) -> Iterator[str]:
    resources, flexible, size = run.spec.resources, run.spec.malleable, run.spec.locality.group_gpus
    assert resources is not None
    widths = {resources.total_gpus}
    if flexible:
        widths = set(range(flexible.min_total_gpus, flexible.max_total_gpus + 1, flexible.step_gpus))
    if width not in widths:
        yield f"{run.metadata.name} has {width} GPUs, not one of {widths}"
    if size:
        whole, rest = divmod(width, size)
        if groups != [size] * whole + [rest] * bool(rest):
            yield f"{run.metadata.name} has groups of {groups}, not of {size}"


def accounts_equal_the_ledger(cluster: CheckedCluster) -> Iterator[str]:
    """I10: every running total of the core equals the sum over all leases."""
    world, now = cluster.lab.world, cluster.lab.world.now
    for envelope in world.budgets.envelopes.values():
        mine = [record for record in cluster.lab.records.values() if record.lease.payer == envelope.key]
        funded = [record for record in mine if record.lease.role != "Opportunistic"]
        lent = [record for record in funded if record.lease.class_ == "Borrowed"]
        for account, records in ((envelope.account, funded), (envelope.lending_account, lent)):
            charge = sum(record.lease.charge for record in records if open_at(record, now))
            used = sum(record.lease.charge * span(record, now) for record in records)
            if (account.charge, account.used(now)) != (charge, used):
                yield f"{account.label}: {account.charge}, {account.used(now)} and not {charge}, {used}"
        if set(envelope.leases) != {record.lease.name for record in funded if record.end is None}:
            yield f"{envelope.label} lists {set(envelope.leases)}"
        opportunistic = sum(
            record.lease.gpus * 1000 * span(record, now) for record in mine if record not in funded
        )
        if envelope.by_class["opportunistic"].used(now) != opportunistic:
            yield f"{envelope.label} does not have an opportunistic usage of {opportunistic}"
    for key, _ in gangs(cluster):
        yield from run_totals_equal_the_ledger(cluster, key)


def run_totals_equal_the_ledger(cluster: CheckedCluster, key: tuple[str, str]) -> Iterator[str]:
    state, now = cluster.lab.world.runs[key], cluster.lab.world.now
    mine = [record for record in cluster.lab.records.values() if record.lease.run_key == key]
    live = [record.lease for record in mine if record.end is None]
    width = sum(lease.gpus for lease in live if lease.role != "Spare")
    opportunistic = sum(lease.gpus for lease in live if lease.role == "Opportunistic")
    borrowed = sum(lease.gpus for lease in live if lease.class_ == "Borrowed")
    totals, sums = (
        (state.width, state.opportunistic_gpus, state.borrowed_gpus),
        (width, opportunistic, borrowed),
    )
    if totals != sums:
        yield f"{key}: {totals} and not {sums}"
    most = state.run_object.spec.funding.max_borrow_gpus
    if most is not None and borrowed > most:
        yield f"{key} borrows {borrowed} of {most}"
    used = sum(record.lease.gpus * span(record, now) for record in mine)
    if sum(tally.used(now) for tally in state.usage.by_payer.values()) != used:
        yield f"{key}: the usage by payer is not {used}"


def span(record: Record, now: int) -> int:
    return (now if record.end is None else record.end) - record.lease.start


def promises_are_kept(cluster: CheckedCluster, known: dict[tuple[RunKey, int], Promise]) -> Iterator[str]:
    """I8: promises move later only with a slip, none is overdue, and waiting Runs have a Reservation.

    ``known``: the promises at the last check.
    """
    now = cluster.lab.world.now
    for key, _ in gangs(cluster):
        state = cluster.lab.world.runs[key]
        promise = state.promise
        if state.waiting and (promise is None or state.phase != "Reserved"):
            yield f"{key} waits without a Reservation"
        if promise is None:
            continue
        if promise.at is not None and promise.at <= now and state.waiting:
            yield f"{promise.name} was due and {key} still waits"
        before = known.get((key, promise.number), promise)
        later = before.at is not None and (promise.at is None or promise.at > before.at)
        if later and promise.slips == before.slips:
            yield f"{promise.name} moved from {before.at} to {promise.at} without a slip"
        behind = any(slip.after is None or slip.reason == Reason.OWNER_NEEDS for slip in promise.slips)
        if before.commitment != promise.commitment or (
            before.made_at != promise.made_at and not behind and before.at is not None
        ):
            yield f"{promise.name} was made again"
        known[key, promise.number] = promise


def assert_no_promise_slips(cluster: CheckedCluster) -> None:
    """No promise has moved later, as long as nothing is lost or edited and no owner needs its budget (R5)."""
    promises = [(key, state.promise) for key, state in cluster.lab.world.runs.items() if state.promise]
    slips = [(key[1], slip) for key, promise in promises for slip in promise.slips]
    assert [slip for slip in slips if slip[1].reason != Reason.OWNER_NEEDS] == [], cluster.story()


def lotteries_verify(cluster: CheckedCluster, since: int) -> Iterator[str]:
    """I9, for the resolutions after the first ``since``."""
    for record in cluster.lab.lotteries[since:]:
        wrong = verify(sign(record, SIGNING_KEY))
        if wrong:
            yield f"{record.reservation}: {wrong}"


def no_run_is_lost(cluster: CheckedCluster) -> Iterator[str]:
    """I11: no Run is lost. I6: the world has exactly the open leases, unchanged."""
    for key, run in runs_that_must_exist(cluster):
        state = cluster.lab.world.runs.get(key)
        if state is None:
            yield f"{key} is lost"
        elif state.waiting and not (state.queued and state.verdict and state.verdict.causes):
            yield f"{key} waits for no reason"
        elif state.phase == "Waiting" and not (state.verdict and state.verdict.causes):
            yield f"{key} waits for other Runs without a reason"
        elif run.spec.stages and state.phase not in ENDED:
            yield from stages_exist(cluster, key, run)
    held = {name: held.lease for name, held in cluster.lab.world.posted_leases.items()}
    if held != {record.lease.name: record.lease for record in cluster.open_records()}:
        yield "leases were edited, lost or made up"


def stages_exist(cluster: CheckedCluster, key: RunKey, tree: Run) -> Iterator[str]:
    """J2 and J3: a running tree has a Run for each stage, and stages joined by ``with`` run together."""
    runs = cluster.lab.world.runs
    named = {stage.name: runs.get((key[0], f"{key[1]}-{stage.name}")) for stage in tree.spec.stages}
    for name, state in named.items():
        if state is None:
            yield f"stage {name} of {key} is lost"
    for stage in tree.spec.stages:
        for other in stage.with_:
            phases = {state.phase for name in (stage.name, other) if (state := named[name]) is not None}
            if not phases & ENDED and "Running" in phases and len(phases) > 1:
                yield f"stages {stage.name} and {other} of {key} are {phases}"
    quota = tree.spec.quota
    if quota is not None and quota.max_gpus is not None:
        names = {child.key for child in cluster.lab.world.run_graph.descendants(runs[key])}
        charge = sum(
            record.lease.charge for record in cluster.open_records() if record.lease.run_key in names
        )
        if charge > quota.max_gpus * 1000:
            yield f"{key} uses {charge} of its quota of {quota.max_gpus} GPUs"
