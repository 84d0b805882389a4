import pytest
from hypothesis import given, strategies as st

from jobtree.api.kubernetes.resource_quantities import milli, whole


@pytest.mark.parametrize(
    ("quantity", "units"),
    [
        ("4", 4),
        (4, 4),
        ("64Gi", 64 * 2**30),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("128M", 128 * 10**6),
        ("2k", 2000),
        ("1.5Ki", 1536),
        ("500m", 1),
        ("0.1", 1),
        (0.5, 1),
        (".5k", 500),
        ("1n", 1),
        ("-1", -1),
    ],
)
def test_whole_rounds_up_to_units(quantity: str | float, units: int) -> None:
    assert whole(quantity) == units


@pytest.mark.parametrize(
    ("quantity", "thousandths"), [("500m", 500), ("2", 2000), (1.5, 1500), ("100u", 1), ("1k", 10**6)]
)
def test_milli_rounds_up_to_thousandths(quantity: str | float, thousandths: int) -> None:
    assert milli(quantity) == thousandths


@pytest.mark.parametrize("quantity", ["", "x", "1Zi", "1 Gi", "m", "1e", "1ki", "1e999", "--1", "1.2.3"])
def test_invalid_quantity_is_refused(quantity: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity such as"):
        whole(quantity)


@given(st.integers(0, 10**9), st.sampled_from(["", "k", "M", "Ki", "Mi", "Gi"]))
def test_milli_is_a_thousand_times_whole(number: int, suffix: str) -> None:
    assert milli(f"{number}{suffix}") == 1000 * whole(f"{number}{suffix}")
