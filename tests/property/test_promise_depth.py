"""Where few Runs may have a date, the line is what a count of all waiting Runs says (R13)."""

import msgspec
from hypothesis import given

from tests.property.checked_cluster import PRICED, CheckedCluster
from tests.property.examples import examples
from tests.property.history_player import HistoryPlayer
from tests.property.invariants import InvariantChecker
from tests.property.purity import assert_world_follows_from_objects
from tests.property.random_histories import RandomHistory, random_histories

DEPTH = 2
SHALLOW = msgspec.structs.replace(PRICED, promise_depth=DEPTH)


def check_line(cluster: CheckedCluster) -> None:
    """Counts the funded Runs that wait, one by one, and compares their places and who may have a date."""
    world, numbers = cluster.lab.world, dict[str, int]()
    for state in sorted(world.runs.values(), key=lambda state: state.creation_order):
        promise = state.promise
        if not state.waiting or promise is None:
            continue
        if promise.at is None and not promise.funding and not promise.beyond_depth:
            assert world.run_queue.line.place(state) is None, cluster.story()
            continue
        number = numbers[state.flavor] = numbers.get(state.flavor, 0) + 1
        place = world.run_queue.line.place(state)
        assert place is not None, cluster.story()
        assert place.number == number, cluster.story()
        if promise.beyond_depth:
            assert (promise.at, promise.funding, promise.domain_gpus) == (None, (), ()), cluster.story()
            assert number > DEPTH or state.gang, cluster.story()  # a gang moves up with its leader


@examples(40)
@given(random_histories())
def test_line_equals_a_count_and_who_is_among_the_first_has_moved_up(history: RandomHistory) -> None:
    check_invariants = InvariantChecker()

    def check(cluster: CheckedCluster) -> None:
        check_line(cluster)
        check_invariants(cluster)

    player = HistoryPlayer(history, after_plan=check, policy=SHALLOW)
    player.play()
    assert_world_follows_from_objects(player)
