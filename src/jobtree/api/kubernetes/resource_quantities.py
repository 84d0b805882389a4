"""Converts Kubernetes quantities (``500m``, ``64Gi``, ``1e3``) to integers, rounded up as in Kubernetes."""

import re
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, TypeAlias

from msgspec import Meta

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]{1,30}(?:\.[0-9]{0,30})?|\.[0-9]{1,30}))"
    r"(?:[eE](?P<exponent>[+-]?[0-9]{1,2})|(?P<suffix>[numkMGTPE]|[KMGTPE]i))?"
)
_SUFFIXES: Final = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("num", start=-3)},
    **{suffix: Fraction(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", start=1)},
}

EXAMPLES: Final = "a quantity such as 4, 500m or 64Gi"

Quantity: TypeAlias = Annotated[str | int | float, Meta(description=EXAMPLES)]


@lru_cache(maxsize=4096)
def whole(quantity: Quantity) -> int:
    """Returns a quantity in units: 68719476736 for ``"64Gi"``. Raises ValueError."""
    return _round_up(_exact(quantity))


@lru_cache(maxsize=4096)
def milli(quantity: Quantity) -> int:
    """Returns a quantity in thousandths: 500 for ``"500m"``, 4000 for ``4``. Raises ValueError."""
    return _round_up(_exact(quantity) * 1000)


def _exact(quantity: Quantity) -> Fraction:
    match = _QUANTITY.fullmatch(str(quantity))
    if not match:
        raise ValueError(f"{quantity!r} is not {EXAMPLES}")
    number, exponent, suffix = match.group("number", "exponent", "suffix")
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def _round_up(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)
