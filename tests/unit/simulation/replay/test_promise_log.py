"""A promise is kept if its Run runs, paid, at the earliest date it was told, and is not stopped soon (R5)."""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from jobtree.api.kinds.policy import Policy
from jobtree.api.schema.quantities import HOUR, MINUTE
from jobtree.core import Action, Promise, Reason, kept_for_ms
from jobtree.core.model.actions import LeaseClosing
from jobtree.core.model.outcomes import ActionKind
from jobtree.core.model.promise import PromiseSlip
from jobtree.core.model.reasons import Cause
from jobtree.simulation.replay.promise_log import NOT_RECORDED, UNPAID, PromiseLog

RUN = ("ns", "train")
GPUS = 8


def promise(at: int | None, *slips: str, number: int = 1) -> Promise:
    return Promise(
        run_key=RUN,
        flavor="H100",
        number=number,
        made_at=0,
        creation_order=(0, *RUN),
        commitment="",
        at=at,
        disruption=0,
        width=GPUS,
        pod_size=GPUS,
        domain_gpus=(("d", GPUS),),
        funding=((("team", "main"), GPUS),),
        end=None,
        immune_until=0,
        slips=tuple(PromiseSlip(None, at, reason) for reason in slips),
    )


class Story:
    """One Run: what it is told and what happens to it, in order. Each event closes the time before it."""

    def __init__(self, *, checkpoint: int | None = None, conditional: bool = False) -> None:
        self.log = PromiseLog(kept_for_ms(Policy(), checkpoint))
        self.conditional = conditional
        self.paid = 0

    def event(
        self,
        kind: ActionKind,
        at: int,
        reason: Reason,
        told: Promise | None = None,
        closes: tuple[LeaseClosing, ...] = (),
    ) -> "Story":
        self.log.judge(before=at)
        action = Action(kind, RUN, at, Cause(reason), promise=told, closes=closes)
        self.log.note(action, self.paid, conditional=self.conditional)
        return self

    def told(self, at: int, date: int | None, *slips: str, number: int = 1) -> "Story":
        """A Reservation is made; with slips, it moves."""
        kind: ActionKind = "Move" if slips else "Reserve"
        return self.event(kind, at, Reason.RESERVED, promise(date, *slips, number=number))

    def moved(self, at: int, date: int | None, *slips: str) -> "Story":
        return self.event("Move", at, Reason.RESERVED, promise(date, *slips))

    def starts(self, at: int, paid: int = GPUS) -> "Story":
        self.paid = paid
        return self.event("Start", at, Reason.ADMITTED)

    def recalled(self, at: int) -> "Story":
        """An owner takes its budget back, and the Run goes on without a payer."""
        self.paid = 0
        closing = LeaseClosing("train-1", at, "Recalled")
        return self.event("Demote", at, Reason.DEMOTED, closes=(closing,))

    def repaid(self, at: int) -> "Story":
        self.paid = GPUS
        return self.event("Repay", at, Reason.ADMITTED)

    def stops(self, at: int) -> "Story":
        self.paid = 0
        return self.event("Requeue", at, Reason.RECLAIMED)

    def ends(self, at: int, kind: ActionKind = "Complete") -> "Story":
        self.paid = 0
        return self.event(kind, at, Reason.COMPLETED if kind == "Complete" else Reason.FAILED)

    def verdict(self) -> tuple[int, dict[str, int]]:
        """The promises kept, and the reasons of those that were not, when all is over."""
        self.log.judge(before=1000 * HOUR)
        count, other = self.log.firm, self.log.conditional
        if self.conditional:
            count, other = other, count
        assert (other.kept, other.broken) == (0, 0)
        assert sum(self.log.broken_reasons.values()) == count.broken
        return count.kept, self.log.broken_reasons


class Case(NamedTuple):
    name: str
    tell: Callable[[Story], object]
    kept: int
    broken: dict[str, int]


CASES = (
    Case("starts on its date", lambda run: run.told(0, HOUR).starts(HOUR).ends(9 * HOUR), 1, {}),
    Case("starts before its date", lambda run: run.told(0, HOUR).starts(MINUTE).ends(9 * HOUR), 1, {}),
    Case("completes before its date", lambda run: run.told(0, HOUR).starts(1).ends(MINUTE), 1, {}),
    Case(
        "starts late, for a recorded reason",
        lambda run: run.told(0, HOUR).moved(HOUR, 2 * HOUR, "NodesLost").starts(2 * HOUR).ends(9 * HOUR),
        0,
        {"NodesLost": 1},
    ),
    Case(
        "starts late, and nobody said why",
        lambda run: run.told(0, HOUR).starts(HOUR + 1).ends(9 * HOUR),
        0,
        {NOT_RECORDED: 1},
    ),
    Case(
        "is broken once, however often it slips",
        lambda run: (
            run.told(0, HOUR)
            .moved(HOUR, 2 * HOUR, "FundingLost")
            .moved(2 * HOUR, 3 * HOUR, "FundingLost", "NodesLost")
            .starts(3 * HOUR)
        ),
        0,
        {"FundingLost": 1},
    ),
    Case(
        "the earliest date counts, not the last",
        lambda run: run.told(0, 3 * HOUR).moved(1, HOUR).moved(2, 3 * HOUR, "Edited").starts(3 * HOUR),
        0,
        {"Edited": 1},
    ),
    Case(
        "a date that the same pass moved was never shown",
        lambda run: run.told(0, HOUR).moved(0, 2 * HOUR).starts(2 * HOUR).ends(9 * HOUR),
        1,
        {},
    ),
    Case(
        "is out a second after its date",
        lambda run: run.told(0, HOUR).starts(HOUR).stops(HOUR + 1000),
        0,
        {"Reclaimed": 1},
    ),
    Case(
        "is out half an hour after its date",
        lambda run: run.told(0, HOUR).starts(HOUR).stops(HOUR + 30 * MINUTE),
        1,
        {},
    ),
    Case(
        "an early start is stopped before the date",
        lambda run: run.told(0, HOUR).starts(1).stops(MINUTE).told(MINUTE, HOUR, number=2).starts(HOUR),
        1,
        {},
    ),
    Case(
        "an early start is stopped, and the date is lost",
        lambda run: (
            run.told(0, HOUR).starts(1).stops(MINUTE).told(MINUTE, 9 * HOUR, number=2).starts(9 * HOUR)
        ),
        0,
        {"Reclaimed": 1},
    ),
    Case(
        "is recalled and then reclaimed",
        lambda run: run.told(0, HOUR).starts(HOUR).recalled(HOUR + 1).stops(HOUR + 2),
        0,
        {"OwnerNeeds": 1},
    ),
    Case(
        "is recalled before its date and goes on without a payer",
        lambda run: run.told(0, HOUR).starts(1).recalled(2).ends(9 * HOUR),
        0,
        {"OwnerNeeds": 1},
    ),
    Case(
        "is recalled, paid again, and then stopped",
        lambda run: run.told(0, HOUR).starts(HOUR).recalled(HOUR + 1).repaid(HOUR + 2).stops(HOUR + 3),
        0,
        {"Reclaimed": 1},
    ),
    Case(
        "runs at its date without being paid", lambda run: run.told(0, HOUR).starts(HOUR, 0), 0, {UNPAID: 1}
    ),
    Case("is narrower than promised", lambda run: run.told(0, HOUR).starts(HOUR, GPUS - 1), 0, {UNPAID: 1}),
    Case("never had a date", lambda run: run.told(0, None).starts(HOUR), 0, {}),
    Case(
        "is promised again after a stop",
        lambda run: (
            run.told(0, HOUR).starts(HOUR).stops(5 * HOUR).told(5 * HOUR, 6 * HOUR, number=2).starts(6 * HOUR)
        ),
        2,
        {},
    ),
    Case("fails before its date", lambda run: run.told(0, HOUR).starts(1).ends(MINUTE, "Fail"), 0, {}),
)


@pytest.mark.parametrize("conditional", [False, True], ids=["firm", "conditional"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_promise_is_judged_at_its_earliest_date(case: Case, *, conditional: bool) -> None:
    run = Story(conditional=conditional)
    case.tell(run)
    assert run.verdict() == (case.kept, case.broken)


@pytest.mark.parametrize(
    ("checkpoint", "minutes"),
    [(None, 30), (10 * MINUTE, 30), (HOUR, 60), (5 * HOUR, 120)],
    ids=["no checkpoint", "a short one", "an hour", "longer than minRuntime"],
)
def test_a_start_must_last_for_the_checkpoint(checkpoint: int | None, minutes: int) -> None:
    for stop, kept in ((minutes * MINUTE - 1, 0), (minutes * MINUTE, 1)):
        run = Story(checkpoint=checkpoint).told(0, HOUR).starts(HOUR).stops(HOUR + stop)
        assert run.verdict()[0] == kept


@pytest.mark.parametrize("reason", [Reason.CANCELLED, Reason.EDITED])
def test_a_withdrawn_promise_is_counted_apart(reason: Reason) -> None:
    run = Story().told(0, HOUR).event("Withdraw", MINUTE, reason, promise(HOUR))
    assert run.verdict() == (0, {})
    assert run.log.withdrawn == 1


def test_errors_are_measured_from_the_earliest_date() -> None:
    run = Story().told(0, HOUR).moved(HOUR, 2 * HOUR, "NodesLost").starts(2 * HOUR).ends(9 * HOUR)
    run.verdict()
    assert list(run.log.errors) == [HOUR]
    assert list(run.log.promised_waits) == [HOUR]
