"""Finds the widest width at which something fits, without trying each (P7, H2).

The widest ``TRIED_IN_ORDER`` widths are tried one after the other. The others are bisected, so a Run with a
million widths costs about forty tries. A gang that fits at one width almost always fits at each smaller one,
since it needs less of everything. The exceptions come from choices of nodes and payers that are not optimal;
where the bisection meets one, the Run starts at a smaller width, and grows later.
"""

from collections.abc import Callable, Sequence

TRIED_IN_ORDER = 16


def widest_width(widths: Sequence[int], fits: Callable[[int], bool]) -> int | None:
    """Returns the first of these widths, widest first, that fits; None if none does."""
    for width in widths[:TRIED_IN_ORDER]:
        if fits(width):
            return width
    rest = widths[TRIED_IN_ORDER:]
    if not rest or not fits(rest[-1]):
        return None
    too_wide, fitting = -1, len(rest) - 1
    while fitting - too_wide > 1:
        middle = (too_wide + fitting) // 2
        if fits(rest[middle]):
            fitting = middle
        else:
            too_wide = middle
    return rest[fitting]
