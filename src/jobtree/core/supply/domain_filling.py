"""Chooses the domains of a gang that no single domain can hold (P4)."""

from collections.abc import Sequence
from itertools import accumulate


def fewest_fullest_first(rooms: Sequence[int], groups: int) -> list[int]:
    """Returns the positions of as few domains as can hold so many groups, in the order in which to fill them.

    ``rooms`` has the groups that each domain can hold, the fullest domain first. Each position is the fullest
    that the others can complete. Returns nothing if all domains together hold too few.
    """
    held = accumulate(sorted(rooms, reverse=True))
    count = next((number for number, sum_ in enumerate(held, 1) if sum_ >= groups), 0)
    chosen: list[int] = []
    for others in range(count - 1, -1, -1):
        left = [position for position in range(len(rooms)) if position not in chosen]
        largest = sorted((rooms[position] for position in left), reverse=True)[: others + 1]
        most = sum(largest)
        position = next(
            position
            for position in left
            if rooms[position] + most - max(rooms[position], largest[-1]) >= groups
        )
        chosen.append(position)
        groups -= rooms[position]
    return chosen
