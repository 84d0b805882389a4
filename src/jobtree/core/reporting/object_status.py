"""Builds the status of Runs and Budgets from the world.

It decides nothing. All figures come from the sums that cover reads.
"""

import msgspec

from jobtree.api.kinds.budget import BudgetStatus, ClassUse, Usage
from jobtree.api.kinds.lease import LeaseClass, Payer
from jobtree.api.kinds.run import Ending, FundingShare, Phase, PodRefusal, Risk, RunStatus, Width
from jobtree.api.schema.object_meta import Condition
from jobtree.api.schema.quantities import HOUR, MILLI, format_milli, format_time, parse_milli
from jobtree.core.accounts.envelope_accounts import FOREVER, Account, EnvelopeState, credits_used
from jobtree.core.model.gpu_lease import EnvelopeKey
from jobtree.core.model.reasons import Verdict
from jobtree.core.reporting.headroom import declared_use, headroom_of, promised_use
from jobtree.core.reporting.reservation_forecast import forecast
from jobtree.core.reporting.tree_status import tree_status
from jobtree.core.runs import carried_usage, run_allocation
from jobtree.core.runs.rank_assignment import encode_ranks
from jobtree.core.runs.run_state import RunState
from jobtree.core.world.world import World

CONDITIONS = (
    ("Admitted", ("Running",)),
    ("Finished", ("Completed", "Failed")),
    ("Ready", ("Running", "Completed")),  # nothing is left to wait for: kstatus, Argo CD and Flux read it
)
# Conditions that only a finished Run has: those of a Job, and what kstatus takes for a failure.
FINAL_CONDITIONS = {"Completed": ("Complete",), "Failed": ("Failed", "Stalled")}

MOST_RISKS = 64  # in one status


class KnownRisks(msgspec.Struct, frozen=True):
    """Promises whose start could stop a Run, and the instant since which it is warned."""

    since: int
    risks: tuple[Risk, ...] = ()

    @property
    def kill_probability(self) -> str | None:
        """The probability to be stopped by any of them: who is stopped by one is not stopped by the next."""
        if not self.risks:
            return None
        return format_milli(min(MILLI, sum(parse_milli(risk.kill_probability) for risk in self.risks)))


def run_status(
    world: World, run: RunState, warned: KnownRisks, closing: tuple[Ending, ...] = ()
) -> RunStatus:
    """Builds the status of a Run as of now; ``closing`` lists leases whose end may not be written yet."""
    if run.is_tree:
        return status_of_tree(world, run, warned)
    verdict = run.verdict or Verdict(run.phase)
    phase, promise = run.phase, run.promise
    endings = run_allocation.build_endings(run.run_object, closing)
    return RunStatus(
        phase=phase,
        conditions=conditions(run, phase, verdict, warned),
        width=width_of(run),
        allocation=run_allocation.build_allocation(run),
        closing=endings.closing,
        ended=endings.ended,
        revision=run.revision,
        funding=tuple(funding_status(world, run)),
        carried=carried_usage.carried_run(world.budgets, run),
        reservation=promise.name if promise else None,
        earliest_start=format_time(promise.at) if promise and promise.at is not None else None,
        deficit_gpus=forecast(world, run).deficit if promise else 0,
        risk=warned.risks[:MOST_RISKS],
        kill_probability=warned.kill_probability,
        attempt=run.attempt,
        ranks=encode_ranks(run.rank_slots) if phase == "Running" else (),
        changed_at=format_time(run.changed_at) if phase == "Running" else None,
        restarts=run.restarts,
        resume_at=format_time(run.resume_at) if run.resume_at > world.now and phase == "Running" else None,
        refusals=refusal_status(run),
        lotteries_lost=run.lotteries_lost,
        times_stopped=run.times_stopped,
        reservations_made=run.reservations_made,
        provisional=run.provisional,
        leases_opened=run.leases_opened,
        reason=verdict.reason,
        message=verdict.message[:4096],
        observed_generation=run.run_object.metadata.generation,
    )


def status_of_tree(world: World, run: RunState, warned: KnownRisks) -> RunStatus:
    summed = tree_status(world, run)
    verdict = run.verdict or Verdict(run.phase)
    shares: dict[tuple[LeaseClass, EnvelopeKey], tuple[int, int]] = {}
    for child in world.run_graph.descendants(run):
        for key, tally in child.usage.by_payer.items():
            gpus, used = shares.get(key, (0, 0))
            shares[key] = (gpus + tally.amount, used + tally.used(world.now))
    return msgspec.structs.replace(
        summed,
        conditions=conditions(run, summed.phase or run.phase, verdict, warned),
        funding=tuple(funding_shares(world, shares)),
    )


def conditions(run: RunState, phase: Phase, verdict: Verdict, warned: KnownRisks) -> tuple[Condition, ...]:
    """Builds the conditions of the phase, of the promise, and of the risk from other promises."""
    reason = verdict.reason or phase
    of_phase = [condition(name, phase in phases, reason, run.phase_at) for name, phases in CONDITIONS]
    final = [condition(name, True, reason, run.phase_at) for name in FINAL_CONDITIONS.get(phase, ())]  # noqa: FBT003
    reserved = run.promise is not None
    return (
        *of_phase,
        *final,
        condition("Reserved", reserved, reason, run.promise.made_at if run.promise else run.phase_at),
        condition(
            "AtRisk", bool(warned.risks), "ConflictSet" if warned.risks else "NoConflict", warned.since
        ),
    )


def condition(name: str, holds: bool, reason: str, since: int) -> Condition:  # noqa: FBT001
    return Condition(
        type=name,
        status="True" if holds else "False",
        reason=reason,
        last_transition_time=format_time(since),
    )


def refusal_status(run: RunState) -> tuple[PodRefusal, ...]:
    """Returns what refuses the pods of a Run, as a later manager reads it (N3)."""
    return tuple(
        PodRefusal(
            node=refusal.node or None,
            message=refusal.message,
            since=format_time(refusal.since),
            deadline=format_time(refusal.deadline),
            until=None if refusal.until is None else format_time(refusal.until),
            times=refusal.times,
            spares_only=refusal.spares_only,
        )
        for refusal in run.refusals
    )


def width_of(run: RunState) -> Width | None:
    shape = run.shape
    if shape is None:
        return None
    return Width(min=shape.min, max=shape.max, desired=shape.desired, allocated=run.width)


def funding_status(world: World, run: RunState) -> list[FundingShare]:
    """Returns who pays and paid for a Run, by class: GPUs now and GPU-hours so far."""
    return funding_shares(
        world, {key: (tally.amount, tally.used(world.now)) for key, tally in run.usage.by_payer.items()}
    )


def funding_shares(
    world: World, amounts: dict[tuple[LeaseClass, EnvelopeKey], tuple[int, int]]
) -> list[FundingShare]:
    return [
        FundingShare(
            class_=class_,
            payer=Payer(owner=world.budgets.envelopes[key].owner, budget=key[0], envelope=key[1]),
            gpus=gpus,
            gpu_hours=format_milli(used * MILLI // HOUR),
        )
        for (class_, key), (gpus, used) in sorted(amounts.items())
        if gpus or used
    ]


def budget_status(world: World, name: str) -> BudgetStatus:
    """Returns usage and headroom of every envelope and cap of a Budget, as of now."""
    budgets = world.budgets
    spec = budgets.budgets[name].spec
    envelopes = [budgets.envelopes[name, envelope.name] for envelope in spec.envelopes]
    return BudgetStatus(
        envelopes=tuple(envelope_usage(world, envelope) for envelope in envelopes),
        aggregate_caps=tuple(
            limit_usage(world, cap.spec.name, cap.account, cap.max_credits, cap.envelopes)
            for cap in budgets.caps[name]
        ),
        carried=carried_usage.carried_usage_of(budgets, name),
        observed_generation=budgets.budgets[name].metadata.generation,
    )


def envelope_usage(world: World, envelope: EnvelopeState) -> Usage:
    by_class, headroom = envelope.by_class, headroom_of(world, envelope)
    total = limit_usage(world, envelope.spec.name, envelope.account, envelope.max_credits, [envelope])
    hours_left = headroom.hours_left
    return msgspec.structs.replace(
        total,
        free_gpus=str(headroom.gpus),
        family_free_gpus=str(headroom.family_gpus) if envelope.spec.sharing == "family" else None,
        lendable_gpus=str(headroom.lendable_gpus) if envelope.spec.lending else None,
        limited_by=headroom.limited_by,
        left_gpu_hours=None if hours_left is None else remaining(hours_left),
        gpus_by_class=class_use({name: tally.amount for name, tally in by_class.items()}),
        gpu_hours_by_class=class_use(
            {name: milli_gpu_hours(tally.used(world.now)) for name, tally in by_class.items()}
        ),
    )


def limit_usage(
    world: World, name: str, account: Account, max_credits: int | None, envelopes: list[EnvelopeState]
) -> Usage:
    now = world.now
    used = account.used(now)
    spent = sum(envelope.account.used(now) * envelope.price for envelope in envelopes)
    promised, hours = promised_use(envelopes, now), account.free_use(now)
    return Usage(
        name=name,
        used_gpus=format_milli(account.charge),
        free_gpus=None if account.max_charge == FOREVER else format_milli(account.free_charge()),
        used_gpu_hours=format_milli(milli_gpu_hours(used)),
        committed_gpu_hours=format_milli(milli_gpu_hours(declared_use(account, now) + promised)),
        left_gpu_hours=None if hours is None else remaining(hours - promised),
        used_credits=format_milli(milli_gpu_hours(spent) // MILLI),
        left_credits=None if max_credits is None else remaining(credits_free(max_credits, envelopes, now)),
    )


def credits_free(max_credits: int, envelopes: list[EnvelopeState], now: int) -> int:
    """Returns the credits that are neither used nor committed nor promised, as ``remaining`` reads them."""
    promised = promised_use(envelopes, now, priced=True)
    return (max_credits - credits_used(envelopes, now) - promised) // MILLI


def remaining(use: int) -> str:
    """Formats what is left, in GPU-hours or credits: 0 if a Budget was cut below its usage."""
    return format_milli(max(0, milli_gpu_hours(use)))


def milli_gpu_hours(use: int) -> int:
    """Converts usage to thousandths of a GPU-hour."""
    return use // HOUR


def class_use(amounts: dict[str, int]) -> ClassUse:
    return ClassUse(**{name: format_milli(amount) for name, amount in amounts.items()})
