"""Computes a plan from a world, as a pure function: no clock, I/O, randomness or logging.

Other packages import the names below from here, and never from a module of the core. A name is imported when
it is first used, so that a command loads only the modules that it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobtree.core.accounts.envelope_accounts import (
        CLASSES as CLASSES,
        FOREVER as FOREVER,
        GPU_HOUR as GPU_HOUR,
        Account as Account,
        EnvelopeState as EnvelopeState,
        credits_used as credits_used,
        reported_amount as reported_amount,
        usage_class as usage_class,
    )
    from jobtree.core.funding.conditional_promise import (
        is_conditional as is_conditional,
        owners_counted_on as owners_counted_on,
    )
    from jobtree.core.funding.cover import (
        BESIDE_PROMISES as BESIDE_PROMISES,
        committed_duration as committed_duration,
        funding_refusals as funding_refusals,
        payable as payable,
    )
    from jobtree.core.funding.payer_candidates import payer_candidates as payer_candidates
    from jobtree.core.lottery.draw import commitment_of as commitment_of, nonce_for as nonce_for
    from jobtree.core.lottery.resolution import Case as Case, Taking as Taking
    from jobtree.core.lottery.resolution_record import (
        BeaconInput as BeaconInput,
        Record as Record,
        is_hex as is_hex,
        signed_bytes as signed_bytes,
        verify as verify,
    )
    from jobtree.core.model.actions import Action as Action, LeaseClosing as LeaseClosing, Plan as Plan
    from jobtree.core.model.gang_shape import (
        GangShape as GangShape,
        default_pod_size as default_pod_size,
        gang_shape as gang_shape,
    )
    from jobtree.core.model.gpu_lease import (
        EnvelopeKey as EnvelopeKey,
        GpuLease as GpuLease,
        GroupRank as GroupRank,
        RunKey as RunKey,
        closed_lease_object as closed_lease_object,
        lease_from_object as lease_from_object,
        lease_number as lease_number,
        lease_to_object as lease_to_object,
        pods_of as pods_of,
    )
    from jobtree.core.model.outcomes import (
        ACTIONS as ACTIONS,
        AT_RISK as AT_RISK,
        CLOSURE_SENTENCES as CLOSURE_SENTENCES,
        FINAL_STATES as FINAL_STATES,
        KEEPS_PROMISE as KEEPS_PROMISE,
        OPENING_SENTENCES as OPENING_SENTENCES,
        OPENINGS as OPENINGS,
        PHASES as PHASES,
        PREEMPTION_CLOSURES as PREEMPTION_CLOSURES,
        REQUEUES as REQUEUES,
        RUN_ENDS as RUN_ENDS,
        SETS_PROMISE as SETS_PROMISE,
        STOP_CLOSURES as STOP_CLOSURES,
        WARNINGS as WARNINGS,
        outcome_of as outcome_of,
    )
    from jobtree.core.model.promise import (
        CreationOrder as CreationOrder,
        Precedence as Precedence,
        Promise as Promise,
    )
    from jobtree.core.model.reasons import (
        REASONS as REASONS,
        Cause as Cause,
        Reason as Reason,
        Verdict as Verdict,
    )
    from jobtree.core.model.refusals import RefusedPods as RefusedPods
    from jobtree.core.planning.elastic_width import refresh_stalled_verdicts as refresh_stalled_verdicts
    from jobtree.core.planning.planning_pass import plan as plan
    from jobtree.core.planning.run_to_rest import MAX_ROUNDS as MAX_ROUNDS, run_to_rest as run_to_rest
    from jobtree.core.planning.waiting_verdicts import refresh_verdicts as refresh_verdicts
    from jobtree.core.reporting.cross_object_rules import (
        budget_warnings as budget_warnings,
        family_cycle_problems as family_cycle_problems,
        run_reference_problems as run_reference_problems,
        run_warnings as run_warnings,
    )
    from jobtree.core.reporting.headroom import Headroom as Headroom, headroom_of as headroom_of
    from jobtree.core.reporting.invariants import (
        LedgerReplay as LedgerReplay,
        Violation as Violation,
        check_invariants as check_invariants,
    )
    from jobtree.core.reporting.kept_promises import (
        ON_TIME_MS as ON_TIME_MS,
        PastLease as PastLease,
        PromiseCount as PromiseCount,
        judge_promises as judge_promises,
        reservations_of as reservations_of,
        status_after_stop as status_after_stop,
    )
    from jobtree.core.reporting.lease_history import check_lease_history as check_lease_history
    from jobtree.core.reporting.object_status import (
        CONDITIONS as CONDITIONS,
        MOST_RISKS as MOST_RISKS,
        KnownRisks as KnownRisks,
        budget_status as budget_status,
        funding_status as funding_status,
        run_status as run_status,
    )
    from jobtree.core.reporting.reservation_codec import (
        confidence_of as confidence_of,
        first_estimate_object as first_estimate_object,
        load_first_estimate as load_first_estimate,
        load_promise as load_promise,
        promised_together as promised_together,
        reservation_forecast as reservation_forecast,
        reservation_object as reservation_object,
        reservation_spec as reservation_spec,
        reservation_status as reservation_status,
        usable_nodes_of as usable_nodes_of,
    )
    from jobtree.core.reporting.reservation_forecast import (
        ForecastRemedy as ForecastRemedy,
        ReservationForecast as ReservationForecast,
        firm_start as firm_start,
        slice_deficit as slice_deficit,
    )
    from jobtree.core.reporting.tree_status import (
        done_at as done_at,
        phase_of as phase_of,
        starts_at as starts_at,
        total_width as total_width,
    )
    from jobtree.core.reporting.written_instants import latest_instant as latest_instant
    from jobtree.core.runs.carried_usage import (
        budget_status_is_ahead as budget_status_is_ahead,
        run_status_is_ahead as run_status_is_ahead,
        sums_of as sums_of,
    )
    from jobtree.core.runs.notice import immune_until as immune_until, kept_for_ms as kept_for_ms
    from jobtree.core.runs.run_allocation import (
        allocated_lease as allocated_lease,
        build_endings as build_endings,
        endings_in_status as endings_in_status,
        lease_from_allocation as lease_from_allocation,
        leases_in_allocation as leases_in_allocation,
    )
    from jobtree.core.runs.run_state import (
        FINISHED as FINISHED,
        RankLoss as RankLoss,
        RunState as RunState,
    )
    from jobtree.core.runs.run_tree import child_name as child_name
    from jobtree.core.runs.run_verdict import current_verdict as current_verdict, held_verdict as held_verdict
    from jobtree.core.runs.start_calibration import StartEstimate as StartEstimate
    from jobtree.core.start_forecast.expected_start import ExpectedStarts as ExpectedStarts
    from jobtree.core.supply.domain import Domain as Domain
    from jobtree.core.world.upstream_runs import upstreams as upstreams
    from jobtree.core.world.world import World as World

_EXPORTS = {
    "lottery.draw": "commitment_of nonce_for",
    "lottery.resolution": "Case Taking",
    "lottery.resolution_record": "BeaconInput Record is_hex signed_bytes verify",
    "model.actions": "Action LeaseClosing Plan",
    "model.gang_shape": "GangShape default_pod_size gang_shape",
    "model.gpu_lease": (
        "EnvelopeKey GpuLease GroupRank RunKey closed_lease_object lease_from_object lease_number "
        "lease_to_object pods_of"
    ),
    "model.outcomes": (
        "ACTIONS AT_RISK CLOSURE_SENTENCES FINAL_STATES KEEPS_PROMISE OPENINGS OPENING_SENTENCES PHASES "
        "PREEMPTION_CLOSURES REQUEUES RUN_ENDS SETS_PROMISE STOP_CLOSURES WARNINGS outcome_of"
    ),
    "model.promise": "CreationOrder Precedence Promise",
    "model.reasons": "Cause REASONS Reason Verdict",
    "model.refusals": "RefusedPods",
    "supply.domain": "Domain",
    "accounts.envelope_accounts": (
        "Account CLASSES EnvelopeState FOREVER GPU_HOUR credits_used reported_amount usage_class"
    ),
    "runs.carried_usage": "budget_status_is_ahead run_status_is_ahead sums_of",
    "runs.notice": "immune_until kept_for_ms",
    "runs.run_allocation": (
        "allocated_lease build_endings endings_in_status lease_from_allocation leases_in_allocation"
    ),
    "runs.run_state": "FINISHED RankLoss RunState",
    "runs.run_tree": "child_name",
    "runs.run_verdict": "current_verdict held_verdict",
    "runs.start_calibration": "StartEstimate",
    "world.upstream_runs": "upstreams",
    "world.world": "World",
    "funding.conditional_promise": "is_conditional owners_counted_on",
    "funding.cover": "BESIDE_PROMISES committed_duration funding_refusals payable",
    "funding.payer_candidates": "payer_candidates",
    "start_forecast.expected_start": "ExpectedStarts",
    "planning.elastic_width": "refresh_stalled_verdicts",
    "planning.planning_pass": "plan",
    "planning.run_to_rest": "MAX_ROUNDS run_to_rest",
    "planning.waiting_verdicts": "refresh_verdicts",
    "reporting.cross_object_rules": (
        "budget_warnings family_cycle_problems run_reference_problems run_warnings"
    ),
    "reporting.headroom": "Headroom headroom_of",
    "reporting.invariants": "LedgerReplay Violation check_invariants",
    "reporting.kept_promises": (
        "ON_TIME_MS PastLease PromiseCount judge_promises reservations_of status_after_stop"
    ),
    "reporting.lease_history": "check_lease_history",
    "reporting.object_status": "CONDITIONS KnownRisks MOST_RISKS budget_status funding_status run_status",
    "reporting.reservation_codec": (
        "confidence_of first_estimate_object load_first_estimate load_promise promised_together "
        "reservation_forecast reservation_object reservation_spec reservation_status usable_nodes_of"
    ),
    "reporting.reservation_forecast": "ForecastRemedy ReservationForecast firm_start slice_deficit",
    "reporting.tree_status": "done_at phase_of starts_at total_width",
    "reporting.written_instants": "latest_instant",
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _EXPORTS.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Imports an exported name from the module that defines it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value
