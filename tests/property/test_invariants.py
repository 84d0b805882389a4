"""Whatever happens, in whatever order, the invariants hold after every step."""

from hypothesis import example, given

from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.model.promise import Promise
from tests.property import invariants
from tests.property.drive import Drive
from tests.property.examples import examples
from tests.property.scenes import Scene, Step, scenes


class Inspector:
    """Looks at a Drive after every step."""

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.promises: dict[tuple[RunKey, int], Promise] = {}
        self.lotteries = 0

    def __call__(self, drive: Drive) -> None:
        fresh = [record for name, record in drive.lab.records.items() if name not in self.known]
        self.known.update(drive.lab.records)
        found = [
            *invariants.slots_are_exclusive(drive),
            *invariants.payers_are_entitled(drive, fresh),
            *drive.oracle.broken_limits(),
            *invariants.gangs_are_whole(drive),
            *invariants.books_equal_the_ledger(drive),
            *invariants.no_run_is_lost(drive),
            *invariants.promises_are_kept(drive, self.promises),
            *invariants.lotteries_verify(drive, self.lotteries),
        ]
        self.lotteries = len(drive.lab.lotteries)
        assert found == [], "\n".join([*found, drive.story()])


CREDITS_OF_A_CAP = Scene(60809, [Step("submit", 11959), Step("submit", 40826)])
ANOTHER_FAMILY = Scene(758, [Step("submit", 0)] * 6 + [Step("submit", 4850), Step("edit", 4425)])

PAYERS_RETIRED = Scene(
    63879,
    [
        Step("tree", 43142),
        Step("advance", 8778),
        Step("tree", 31251),
        Step("submit", 62752),
        Step("fail", 4937),
        Step("wait", 29003),
        Step("tree", 39154),
        Step("submit", 16143),
        Step("tree", 9087),
        Step("advance", 1246),
        Step("edit", 33514),
    ],
)

SWAPPED_AFTER_ITS_FAMILY_CHANGED = Scene(
    4372, [Step("submit", 31048), Step("drop", 30650), Step("advance", 12362), Step("fail", 40298)]
)

GOES_ON_AFTER_ITS_PAYERS_WINDOW = Scene(
    22498,
    [
        Step("submit", 29641),
        Step("submit", 53189),
        Step("advance", 20926),
        Step("advance", 58442),
        Step("submit", 19769),
        Step("advance", 2544),
    ],
)

NO_DATE_AFTER_ALL = Scene(
    82,
    [
        Step("wait", 1901),
        Step("submit", 2151),
        Step("tree", 2757),
        Step("submit", 73),
        Step("wait", 8608),
        Step("wait", 110),
        Step("submit", 232),
        Step("cordon", 8086),
        Step("tree", 261),
        Step("fail", 63853),
        Step("submit", 131),
        Step("resize", 65535),
        Step("finish", 3101),
        Step("tree", 43631),
        Step("evict", 1311),
        Step("advance", 159),
    ],
)


REPAID_AND_CANCELLED_AT_ONCE = Scene(49490, [Step("tree", 346), Step("wait", 28791), Step("cancel", 49275)])

AN_UNPAID_STAGE_BESIDE_A_LOST_ONE = Scene(
    53171, [Step("tree", 16722), Step("submit", 30717), Step("blackout", 4702)]
)


@examples(400)
@given(scenes())
@example(CREDITS_OF_A_CAP)
@example(AN_UNPAID_STAGE_BESIDE_A_LOST_ONE)
@example(REPAID_AND_CANCELLED_AT_ONCE)
@example(ANOTHER_FAMILY)
@example(PAYERS_RETIRED)
@example(GOES_ON_AFTER_ITS_PAYERS_WINDOW)
@example(SWAPPED_AFTER_ITS_FAMILY_CHANGED)
@example(NO_DATE_AFTER_ALL)
def test_the_invariants_hold_after_every_step(scene: Scene) -> None:
    Drive(scene, after=Inspector()).play()
