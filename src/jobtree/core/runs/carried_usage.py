"""The usage of archived leases, carried as sums in status fields, so that every limit still counts it (I10).

A closed lease leaves the cluster in three steps. A crash between two of them changes no sum.

1. The caller writes the lease to the archive.
2. ``carry_lease`` adds its usage to the carried usage of its Budget and of its Run, and its name to their
   archived leases. Both are written to the status of the Budget and of the Run.
3. When the status is written, the caller deletes the Lease object. When the object is gone, the name is
   forgotten.

Between steps 2 and 3 the usage of a lease is in the sums although its object still exists. A reader of both
skips the object, because its name is among the archived leases. Carrying a lease twice adds it once, for the
Budget and for the Run separately. Carrying changes no account: accounts include the carried usage, and a new
world starts with it.
"""

from collections.abc import Container, Iterable

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.carried_sums import (
    MAX_ENVELOPES,
    MAX_LEAVING,
    MAX_SHARES,
    CarriedRun,
    CarriedShare,
    CarriedUse,
    CarriedUses,
    ClassSeconds,
)
from jobtree.api.kinds.lease import Payer
from jobtree.api.schema.quantities import MILLI, format_micro, parse_micro
from jobtree.core.accounts.budget_index import BudgetIndex
from jobtree.core.accounts.envelope_accounts import (
    CLASSES,
    EnvelopeState,
    reported_amount,
    usage_class,
)
from jobtree.core.model.gpu_lease import EnvelopeKey, GpuLease
from jobtree.core.runs.run_state import RunState
from jobtree.core.runs.run_usage import FundingKey

LENT = "lent"  # beside the classes: the part of the usage that was lent


def load_budget(budgets: BudgetIndex, budget: Budget) -> None:
    """Loads the carried usage of a Budget that is read for the first time."""
    carried, name = budget.status.carried, budget.metadata.name
    if carried is None:
        return
    for carried_use in carried.envelopes:
        envelope = budgets.envelope((name, carried_use.name), budget.spec.owner, carried_use.flavor)
        budgets.carried_budgets.setdefault(name, {})[envelope.key] = None
        envelope.carried = sums_of(carried_use)
        for class_name, usage in envelope.by_class.items():
            usage.closed_usage += envelope.carried[class_name]
        envelope.account.closed_usage += sum(
            envelope.carried[class_name] for class_name in CLASSES if class_name != "opportunistic"
        )
        envelope.lending_account.closed_usage += envelope.carried[LENT]
    budgets.archived_leases[name] = dict.fromkeys(carried.leases)


def load_run(budgets: BudgetIndex, run: RunState) -> None:
    """Loads the carried usage of a Run that is read for the first time."""
    carried = run.run_object.status.carried
    if carried is None:
        return
    used: dict[FundingKey, int] = {}
    for share in carried.funding:
        key = (share.payer.budget, share.payer.envelope)
        budgets.envelope(key, share.payer.owner, run.flavor)
        used[share.class_, key] = parse_micro(share.gpu_seconds) // MILLI
    run.usage.load_carried(
        used,
        charge=parse_micro(carried.charged_gpu_seconds),
        spare=parse_micro(carried.spare_gpu_seconds) // MILLI,
        leases=carried.leases,
    )


def carry_lease(budgets: BudgetIndex, run: RunState | None, lease: GpuLease, end: int) -> None:
    """Adds a newly archived lease to the carried usage of its Budget, and of its Run if known."""
    span = end - lease.start
    charged = 0 if lease.role == "Opportunistic" else lease.charge * span
    archived = budgets.archived_leases.setdefault(lease.payer[0], {})
    if lease.name not in archived:
        archived[lease.name] = None
        envelope = budgets.envelope(lease.payer, lease.payer_owner, lease.flavor)
        budgets.carried_budgets.setdefault(lease.payer[0], {})[lease.payer] = None
        envelope.carried[usage_class(lease)] += reported_amount(lease) * span
        envelope.carried[LENT] += charged if lease.class_ == "Borrowed" else 0
    if run is not None:
        run.usage.carry(lease, span, charged)


def can_carry(budgets: BudgetIndex, run: RunState | None, lease: GpuLease) -> bool:
    """Whether the status of its Budget and of its Run has space for one more lease."""
    budget, key = lease.payer[0], (lease.class_, lease.payer)
    envelopes, archived = budgets.carried_budgets.get(budget, {}), budgets.archived_leases.get(budget, {})
    fits = len(envelopes) < MAX_ENVELOPES or lease.payer in envelopes
    if run is not None:
        fits = fits and (len(run.usage.carried) < MAX_SHARES or key in run.usage.carried)
        fits = fits and (
            len(run.usage.archived_leases) < MAX_LEAVING or lease.name in run.usage.archived_leases
        )
    return fits and (len(archived) < MAX_LEAVING or lease.name in archived)


def forget_lease(budgets: BudgetIndex, run: RunState | None, lease: GpuLease) -> None:
    """Forgets an archived lease whose object is gone, so that it cannot be counted twice any more."""
    budgets.archived_leases.get(lease.payer[0], {}).pop(lease.name, None)
    if run is not None:
        run.usage.forget_archived(lease.name)


def forget_leases_except(budgets: BudgetIndex, runs: Iterable[RunState], present: Container[str]) -> None:
    """Forgets all archived leases but those whose objects are present."""
    for budget, names in budgets.archived_leases.items():
        budgets.archived_leases[budget] = {name: None for name in names if name in present}
    for run in runs:
        run.usage.forget_archived_except(present)


def carried_usage_of(budgets: BudgetIndex, budget: str) -> CarriedUses | None:
    """Returns the carried usage of a Budget as its status holds it; None if there is none."""
    keys = sorted(budgets.carried_budgets.get(budget, ()))
    envelopes = tuple(use_of(budgets.envelopes[key]) for key in keys)
    archived = tuple(sorted(budgets.archived_leases.get(budget, ())))
    return CarriedUses(envelopes=envelopes, leases=archived) if envelopes or archived else None


def use_of(envelope: EnvelopeState) -> CarriedUse:
    seconds = {class_name: format_micro(envelope.carried[class_name]) for class_name in CLASSES}
    return CarriedUse(
        name=envelope.key[1],
        flavor=envelope.spec.flavor,
        gpu_seconds=ClassSeconds(**seconds),
        lent_gpu_seconds=format_micro(envelope.carried[LENT]),
    )


def carried_run(budgets: BudgetIndex, run: RunState) -> CarriedRun | None:
    """Returns the carried usage of a Run as its status holds it; None if there is none."""
    if not run.usage.carried and not run.usage.archived_leases:
        return None
    return CarriedRun(
        funding=tuple(
            CarriedShare(class_=class_, payer=payer_of(budgets, key), gpu_seconds=format_micro(used * MILLI))
            for (class_, key), used in sorted(run.usage.carried.items())
        ),
        charged_gpu_seconds=format_micro(run.usage.carried_charge),
        spare_gpu_seconds=format_micro(run.usage.carried_spare * MILLI),
        leases=tuple(sorted(run.usage.archived_leases)),
    )


def payer_of(budgets: BudgetIndex, key: EnvelopeKey) -> Payer:
    return Payer(owner=budgets.envelopes[key].owner, budget=key[0], envelope=key[1])


def budget_status_is_ahead(budgets: BudgetIndex, budget: Budget) -> bool:
    """Whether the status of a Budget carries more than this world knows: another planner wrote it."""
    carried, name = budget.status.carried, budget.metadata.name
    for carried_use in carried.envelopes if carried else ():
        envelope = budgets.envelopes.get((name, carried_use.name))
        sums = sums_of(carried_use)
        if any(sums[column] > (envelope.carried[column] if envelope else 0) for column in sums):
            return True
    return False


def run_status_is_ahead(run: RunState, carried: CarriedRun | None) -> bool:
    """Whether the status of a Run carries more than this world knows."""
    if carried is None:
        return False
    shares: dict[FundingKey, int] = {
        (share.class_, (share.payer.budget, share.payer.envelope)): parse_micro(share.gpu_seconds) // MILLI
        for share in carried.funding
    }
    return any(used > run.usage.carried.get(key, 0) for key, used in shares.items())


def sums_of(use: CarriedUse) -> dict[str, int]:
    """Returns the usage by class and what was lent, in thousandths of a GPU times milliseconds."""
    by_class = {class_name: parse_micro(getattr(use.gpu_seconds, class_name)) for class_name in CLASSES}
    return {**by_class, LENT: parse_micro(use.lent_gpu_seconds)}
