"""The invariants of SPEC section 12, asked of what a Lab holds, apart from how the core keeps them."""

from collections.abc import Iterator

from jobtree.api.kinds.budget import Budget, Envelope
from jobtree.api.kinds.run import Run
from jobtree.api.schema.quantities import parse_time
from jobtree.core.lottery.resolution_record import verify
from jobtree.core.model.gpu_lease import GpuLease, RunKey
from jobtree.core.model.promise import Promise
from jobtree.messages.record_signature import sign
from tests.property.drive import Drive
from tests.property.ledger_oracle import open_at
from tests.unit.core.lab import Record

SIGNING_KEY = b"whoever carries out the plan"
ENDED = {"Completed", "Failed"}


def everybody(drive: Drive) -> Iterator[tuple[RunKey, Run]]:
    """All Runs that must be somewhere: those submitted and, of trees, the stages that are there."""
    for key, run in drive.submitted.items():
        yield key, run
        state = drive.lab.world.runs.get(key)
        if state is not None:
            yield from (
                (child.key, child.run_object) for child in drive.lab.world.run_graph.descendants(state)
            )


def gangs(drive: Drive) -> Iterator[tuple[RunKey, Run]]:
    """Those of them that ask for GPUs."""
    for key, run in everybody(drive):
        if run.spec.resources is not None and run.spec.resources.total_gpus:
            yield key, run


def slots_are_exclusive(drive: Drive) -> Iterator[str]:
    """I1, and P1: with other people's pods they also fit on the node."""
    taken: dict[tuple[str, int], list[str]] = {}
    for record in drive.open_records():
        for node, mask in record.lease.slots:
            for slot in range(mask.bit_length()):
                if mask >> slot & 1:
                    taken.setdefault((node, slot), []).append(record.lease.role)
    for where, roles in taken.items():
        if len(roles) > 1 and sorted(roles) != ["Opportunistic", "Spare"]:
            yield f"{where} has {roles}"
    for sketch in drive.fleet:
        mine = {slot for node, slot in taken if node == sketch.name}
        if len(mine) + sketch.foreign_gpus > sketch.gpus or any(slot >= sketch.gpus for slot in mine):
            yield f"{sketch.name} has {sketch.gpus} GPUs: {mine} and {sketch.foreign_gpus} of others"


def parents_of(owner: str, budgets: list[Budget]) -> set[str]:
    owners = {one.spec.owner for one in budgets}
    declared = [
        one.spec.parents for one in budgets if one.spec.owner == owner and one.spec.parents is not None
    ]
    if declared:
        return {parent for parents in declared for parent in parents if parent in owners}
    paths = [other for other in owners if owner.startswith(other + ":")]
    return {max(paths, key=len)} if paths else set()


def tiers(owner: str, budgets: list[Budget]) -> dict[str, int]:
    """How far each relative is: 0 itself, 1 siblings, 2 parents, 3 and more further ancestors (C1, C2)."""
    owners = {one.spec.owner for one in budgets}
    parents = parents_of(owner, budgets)
    found = {owner: 0, **dict.fromkeys(parents, 2)}
    if owner not in owners:
        return found
    for other in owners:
        if parents & parents_of(other, budgets):
            found.setdefault(other, 1)
    generation, tier = parents, 3
    while generation:
        generation = {older for one in generation for older in parents_of(one, budgets)} - found.keys()
        found.update(dict.fromkeys(generation, tier))
        tier += 1
    return found


def entitlement(run: Run, envelope: Envelope, owner: str, budgets: list[Budget]) -> set[str]:
    """As what this envelope may pay for the Run (C3)."""
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


def payers_are_entitled(drive: Drive, fresh: list[Record]) -> Iterator[str]:
    """I2, of the leases that opened in this step."""
    budgets = list(drive.lab.world.budgets.budgets.values())
    for lease in (record.lease for record in fresh):
        if lease.reason == "Continue":
            if not any(goes_on(record, lease) for record in drive.lab.records.values()):
                yield f"{lease.name} continues nothing"
            continue
        of = [one for one in budgets if one.metadata.name == lease.payer[0]]
        found = [
            (one.spec.owner, env) for one in of for env in one.spec.envelopes if env.name == lease.payer[1]
        ]
        if not found:
            if lease.reason != "Demote":
                yield f"{lease.name} has no payer"
            continue
        ((owner, envelope),) = found
        classes = entitlement(drive.run_of(lease.run_key), envelope, owner, budgets)
        if lease.role == "Opportunistic":
            fair = bool(classes) or lease.reason == "Demote"
        else:
            fair = lease.class_ in classes and lease.payer_owner == owner and within(envelope, lease.start)
        if not fair:
            yield f"{lease.name}: {lease.payer} may pay as {classes}, not as {lease.class_}"
        edited = lease.reason == "Demote"  # after an edit perhaps nobody matches any more
        if not edited and not (envelope.flavor == lease.flavor and matches(drive, envelope, lease)):
            yield f"{lease.name}: {lease.payer} does not pay there"


def goes_on(record: Record, lease: GpuLease) -> bool:
    """Whether a lease is what is left of another that just ended."""
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


def matches(drive: Drive, envelope: Envelope, lease: GpuLease) -> bool:
    labels = [drive.labels(node) for node, _ in lease.slots]
    return all(have.get(key) == value for have in labels for key, value in envelope.selector.items())


def gangs_are_whole(drive: Drive) -> Iterator[str]:
    """I4, I5, I7: all groups or nothing, each in one domain, in whole pods, within [min, max]."""
    for key, run in gangs(drive):
        state = drive.lab.world.runs[key]
        leases = [record.lease for record in drive.open_records() if record.lease.run_key == key]
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
                drive.labels(node)["fabric.domain"] for node, _ in lease.slots
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


def books_equal_the_ledger(drive: Drive) -> Iterator[str]:
    """I10: every sum that the core keeps, added up again."""
    world, now = drive.lab.world, drive.lab.world.now
    for envelope in world.budgets.envelopes.values():
        mine = [record for record in drive.lab.records.values() if record.lease.payer == envelope.key]
        funded = [record for record in mine if record.lease.role != "Opportunistic"]
        lent = [record for record in funded if record.lease.class_ == "Borrowed"]
        for account, records in ((envelope.account, funded), (envelope.lending_account, lent)):
            charge = sum(record.lease.charge for record in records if open_at(record, now))
            used = sum(record.lease.charge * span(record, now) for record in records)
            if (account.charge, account.used(now)) != (charge, used):
                yield f"{account.label}: {account.charge}, {account.used(now)} and not {charge}, {used}"
        if set(envelope.leases) != {record.lease.name for record in funded if record.end is None}:
            yield f"{envelope.label} lists {set(envelope.leases)}"
        unpaid = sum(record.lease.gpus * 1000 * span(record, now) for record in mine if record not in funded)
        if envelope.by_class["opportunistic"].used(now) != unpaid:
            yield f"{envelope.label} does not say {unpaid} opportunistic"
    for key, _ in gangs(drive):
        yield from shares_equal_the_ledger(drive, key)


def shares_equal_the_ledger(drive: Drive, key: tuple[str, str]) -> Iterator[str]:
    state, now = drive.lab.world.runs[key], drive.lab.world.now
    mine = [record for record in drive.lab.records.values() if record.lease.run_key == key]
    live = [record.lease for record in mine if record.end is None]
    width = sum(lease.gpus for lease in live if lease.role != "Spare")
    unpaid = sum(lease.gpus for lease in live if lease.role == "Opportunistic")
    borrowed = sum(lease.gpus for lease in live if lease.class_ == "Borrowed")
    posted, counted = (
        (state.width, state.opportunistic_gpus, state.borrowed_gpus),
        (width, unpaid, borrowed),
    )
    if posted != counted:
        yield f"{key}: {posted} and not {counted}"
    most = state.run_object.spec.funding.max_borrow_gpus
    if most is not None and borrowed > most:
        yield f"{key} borrows {borrowed} of {most}"
    used = sum(record.lease.gpus * span(record, now) for record in mine)
    if sum(tally.used(now) for tally in state.usage.by_payer.values()) != used:
        yield f"{key}: its shares do not add up to {used}"


def span(record: Record, now: int) -> int:
    return (now if record.end is None else record.end) - record.lease.start


def promises_are_kept(drive: Drive, known: dict[tuple[RunKey, int], Promise]) -> Iterator[str]:
    """I8: later only with a slip, never overdue; who waits has a Reservation. ``known``: as they stood."""
    now = drive.lab.world.now
    for key, _ in gangs(drive):
        state = drive.lab.world.runs[key]
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
            yield f"{promise.name} moved from {before.at} to {promise.at} and does not say why"
        undated = before.at is None or any(slip.after is None for slip in promise.slips)
        if before.commitment != promise.commitment or (before.made_at != promise.made_at and not undated):
            yield f"{promise.name} was made anew"
        known[key, promise.number] = promise


def lotteries_verify(drive: Drive, since: int) -> Iterator[str]:
    """I9, of the resolutions since that many."""
    for record in drive.lab.lotteries[since:]:
        wrong = verify(sign(record, SIGNING_KEY))
        if wrong:
            yield f"{record.reservation}: {wrong}"


def no_run_is_lost(drive: Drive) -> Iterator[str]:
    """I11, and I6: what the world holds is what was opened and not closed, unchanged."""
    for key, run in everybody(drive):
        state = drive.lab.world.runs.get(key)
        if state is None:
            yield f"{key} is lost"
        elif state.waiting and not (state.queued and state.verdict and state.verdict.causes):
            yield f"{key} waits for no reason"
        elif state.phase == "Waiting" and not (state.verdict and state.verdict.causes):
            yield f"{key} waits for others and does not say for whom"
        elif run.spec.stages and state.phase not in ENDED:
            yield from stages_are_there(drive, key, run)
    held = {name: held.lease for name, held in drive.lab.world.posted_leases.items()}
    if held != {record.lease.name: record.lease for record in drive.open_records()}:
        yield "leases were edited, lost or made up"


def stages_are_there(drive: Drive, key: RunKey, tree: Run) -> Iterator[str]:
    """J2 and J3: a Run for every stage of a tree that is not over; those joined by ``with`` go together."""
    runs = drive.lab.world.runs
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
        names = {child.key for child in drive.lab.world.run_graph.descendants(runs[key])}
        charge = sum(record.lease.charge for record in drive.open_records() if record.lease.run_key in names)
        if charge > quota.max_gpus * 1000:
            yield f"{key} uses {charge} of its quota of {quota.max_gpus} GPUs"
