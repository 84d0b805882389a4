"""What leases used that have left the cluster: carried as sums, so that every limit still counts it (I10).

A closed lease leaves in three steps, and a crash between any two changes no sum:

1. it is written to the archive (whoever runs the world does that);
2. it is set aside: its use is added to what its Budget and its Run carry, and its name to those that leave.
   Both are told in their status;
3. once the status says so the lease is deleted, and when it is seen to be gone its name is forgotten.

In between a lease may be there and in the sums too. Its name tells: whoever reads both skips it. Setting
aside twice adds once, for the Budget and the Run apart. The books themselves never change on the way: what
is carried is a part of them, and the opening balance of a world that is read anew.
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

LENT = "lent"


def load_budget(ledger: BudgetIndex, budget: Budget) -> None:
    """A Budget that is seen for the first time brings what it carries."""
    carried, name = budget.status.carried, budget.metadata.name
    if carried is None:
        return
    for one in carried.envelopes:
        envelope = ledger.envelope((name, one.name), budget.spec.owner, one.flavor)
        ledger.carried_budgets.setdefault(name, {})[envelope.key] = None
        envelope.carried = sums_of(one)
        for use, tally in envelope.by_class.items():
            tally.closed_usage += envelope.carried[use]
        envelope.account.closed_usage += sum(
            envelope.carried[use] for use in CLASSES if use != "opportunistic"
        )
        envelope.lending_account.closed_usage += envelope.carried[LENT]
    ledger.archived_leases[name] = dict.fromkeys(carried.leases)


def load_run(ledger: BudgetIndex, run: RunState) -> None:
    """The same for a Run."""
    carried = run.run_object.status.carried
    if carried is None:
        return
    used: dict[FundingKey, int] = {}
    for share in carried.funding:
        key = (share.payer.budget, share.payer.envelope)
        ledger.envelope(key, share.payer.owner, run.flavor)
        used[share.class_, key] = parse_micro(share.gpu_seconds) // MILLI
    run.usage.load_carried(
        used,
        charge=parse_micro(carried.charged_gpu_seconds),
        spare=parse_micro(carried.spare_gpu_seconds) // MILLI,
        leases=carried.leases,
    )


def carry_lease(ledger: BudgetIndex, run: RunState | None, lease: GpuLease, end: int) -> None:
    """A closed lease is in the archive: its use is carried from now on, by its Run too if that is there."""
    span = end - lease.start
    charged = 0 if lease.role == "Opportunistic" else lease.charge * span
    leaving = ledger.archived_leases.setdefault(lease.payer[0], {})
    if lease.name not in leaving:
        leaving[lease.name] = None
        envelope = ledger.envelope(lease.payer, lease.payer_owner, lease.flavor)
        ledger.carried_budgets.setdefault(lease.payer[0], {})[lease.payer] = None
        envelope.carried[usage_class(lease)] += reported_amount(lease) * span
        envelope.carried[LENT] += charged if lease.class_ == "Borrowed" else 0
    if run is not None:
        run.usage.carry(lease, span, charged)


def can_carry(ledger: BudgetIndex, run: RunState | None, lease: GpuLease) -> bool:
    """Whether the status of its Budget and of its Run can carry it too, within their bounds."""
    budget, key = lease.payer[0], (lease.class_, lease.payer)
    carrying, leaving = ledger.carried_budgets.get(budget, {}), ledger.archived_leases.get(budget, {})
    fits = len(carrying) < MAX_ENVELOPES or lease.payer in carrying
    if run is not None:
        fits = fits and (len(run.usage.carried) < MAX_SHARES or key in run.usage.carried)
        fits = fits and (
            len(run.usage.archived_leases) < MAX_LEAVING or lease.name in run.usage.archived_leases
        )
    return fits and (len(leaving) < MAX_LEAVING or lease.name in leaving)


def forget_lease(ledger: BudgetIndex, run: RunState | None, lease: GpuLease) -> None:
    """The lease is not in the cluster any more: nobody can count it twice."""
    ledger.archived_leases.get(lease.payer[0], {}).pop(lease.name, None)
    if run is not None:
        run.usage.forget_archived(lease.name)


def forget_leases_except(ledger: BudgetIndex, runs: Iterable[RunState], there: Container[str]) -> None:
    """Of the leases that leave, all but those that are there are gone."""
    for budget, names in ledger.archived_leases.items():
        ledger.archived_leases[budget] = {name: None for name in names if name in there}
    for run in runs:
        run.usage.forget_archived_except(there)


def carried_usage_of(ledger: BudgetIndex, budget: str) -> CarriedUses | None:
    """What a Budget carries, as its status says it."""
    told = tuple(use_of(ledger.envelopes[key]) for key in sorted(ledger.carried_budgets.get(budget, ())))
    leaving = tuple(sorted(ledger.archived_leases.get(budget, ())))
    return CarriedUses(envelopes=told, leases=leaving) if told or leaving else None


def use_of(envelope: EnvelopeState) -> CarriedUse:
    seconds = {use: format_micro(envelope.carried[use]) for use in CLASSES}
    return CarriedUse(
        name=envelope.key[1],
        flavor=envelope.spec.flavor,
        gpu_seconds=ClassSeconds(**seconds),
        lent_gpu_seconds=format_micro(envelope.carried[LENT]),
    )


def carried_run(ledger: BudgetIndex, run: RunState) -> CarriedRun | None:
    """What a Run carries, as its status says it."""
    if not run.usage.carried and not run.usage.archived_leases:
        return None
    return CarriedRun(
        funding=tuple(
            CarriedShare(class_=class_, payer=payer_of(ledger, key), gpu_seconds=format_micro(used * MILLI))
            for (class_, key), used in sorted(run.usage.carried.items())
        ),
        charged_gpu_seconds=format_micro(run.usage.carried_charge),
        spare_gpu_seconds=format_micro(run.usage.carried_spare * MILLI),
        leases=tuple(sorted(run.usage.archived_leases)),
    )


def payer_of(ledger: BudgetIndex, key: EnvelopeKey) -> Payer:
    return Payer(owner=ledger.envelopes[key].owner, budget=key[0], envelope=key[1])


def budget_status_is_ahead(ledger: BudgetIndex, budget: Budget) -> bool:
    """Whether a Budget's status carries what the ledger does not know: another planner set it aside."""
    carried, name = budget.status.carried, budget.metadata.name
    for one in carried.envelopes if carried else ():
        known = ledger.envelopes.get((name, one.name))
        if any(use > (known.carried[kind] if known else 0) for kind, use in sums_of(one).items()):
            return True
    return False


def run_status_is_ahead(run: RunState, carried: CarriedRun | None) -> bool:
    """The same for a Run."""
    if carried is None:
        return False
    shares: dict[FundingKey, int] = {
        (share.class_, (share.payer.budget, share.payer.envelope)): parse_micro(share.gpu_seconds) // MILLI
        for share in carried.funding
    }
    return any(used > run.usage.carried.get(key, 0) for key, used in shares.items())


def sums_of(use: CarriedUse) -> dict[str, int]:
    """Thousandths of a GPU times milliseconds by class, and of what was lent."""
    by_class = {name: parse_micro(getattr(use.gpu_seconds, name)) for name in CLASSES}
    return {**by_class, LENT: parse_micro(use.lent_gpu_seconds)}
