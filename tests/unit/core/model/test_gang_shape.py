"""The pods of a gang: one size for all, the one that wastes least of the flavor's biggest node (P2)."""

import msgspec
import pytest

from jobtree.api.kinds.run import Run
from jobtree.core.model.gang_shape import GangShape, gang_shape
from tests.unit.core.build import run


def shape(asked: Run) -> GangShape:
    found = gang_shape(asked.spec)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("asked", "biggest", "size"),
    [
        pytest.param(run("r", "o", 8), 8, 8, id="one node"),
        pytest.param(run("r", "o", 128), 8, 8, id="many nodes"),
        pytest.param(run("r", "o", 6), 8, 6, id="less than a node: the whole as one pod"),
        pytest.param(run("r", "o", 12), 8, 4, id="12 on nodes of 8: pods of 4 waste nothing"),
        pytest.param(run("r", "o", 100), 8, 4, id="100 on nodes of 8: 25 pods of 4, not 20 of 5"),
        pytest.param(run("r", "o", 30), 8, 2, id="30 on nodes of 8: pods of 2, not of 6"),
        pytest.param(run("r", "o", 7), 4, 1, id="a prime: single GPUs"),
        pytest.param(run("r", "o", 4), 8, 4, id="less than a node"),
        pytest.param(run("r", "o", 16), 5, 1, id="an odd node: single GPUs waste nothing"),
        pytest.param(run("r", "o", 16, per_pod=2), 8, 2, id="as declared"),
        pytest.param(run("r", "o", 16, per_pod=16), 8, 16, id="as declared, though no node holds it"),
        pytest.param(run("r", "o", 128, group=32), 8, 8, id="a divisor of the group"),
        pytest.param(run("r", "o", 24, group=12), 8, 4, id="a group that no node holds: a divisor of it"),
        pytest.param(run("r", "o", 12, group=6), 8, 6, id="a group that a node holds: one pod"),
        pytest.param(run("r", "o", 12, group=8), 8, 4, id="also of the last, smaller group"),
        pytest.param(run("r", "o", 12, group=6, malleable=(6, 18, 6)), 8, 6, id="a malleable group"),
        pytest.param(run("r", "o", 128, group=32, malleable=(96, 160, 32)), 8, 8, id="malleable, grouped"),
        pytest.param(run("r", "o", 16, malleable=(8, 24, 4)), 8, 4, id="also of the step"),
        pytest.param(run("r", "o", 16, malleable=(12, 24, 4)), 8, 4, id="also of the minimum"),
        pytest.param(run("r", "o", 6, malleable=(3, 6, 3)), 8, 1, id="malleable, ungrouped"),
        pytest.param(run("r", "o", 9, malleable=(3, 9, 2)), 8, 1, id="nothing in common"),
    ],
)
def test_pod_size(asked: Run, biggest: int, size: int) -> None:
    assert shape(asked).pod_size(biggest) == size


def test_spares_have_two_spellings() -> None:
    one = run("r", "o", 8, spares=2)
    other = msgspec.structs.replace(one.spec, spares=None, spares_per_group=2)
    assert (shape(one).spares, gang_shape(other)) == (2, shape(one))


@pytest.mark.parametrize(
    ("asked", "desired"),
    [
        pytest.param(run("r", "o", 8), 8, id="fixed: as wide as it is"),
        pytest.param(run("r", "o", 16, malleable=(8, 32, 8)), 32, id="as wide as it may be"),
        pytest.param(run("r", "o", 16, malleable=(8, 30, 8)), 24, id="in whole steps"),
    ],
)
def test_desired_width(asked: Run, desired: int) -> None:
    assert shape(asked).desired == desired


def test_a_declared_desired_width_is_used() -> None:
    spec = run("r", "o", 16, malleable=(8, 32, 8)).spec
    flexible = msgspec.structs.replace(spec.malleable, desired_total_gpus=24)  # type: ignore[type-var]
    found = gang_shape(msgspec.structs.replace(spec, malleable=flexible))
    assert found is not None
    assert found.desired == 24


@pytest.mark.parametrize(
    ("asked", "width", "groups"),
    [
        pytest.param(run("r", "o", 128, group=32), 128, [32, 32, 32, 32], id="equal groups"),
        pytest.param(run("r", "o", 80, group=32), 80, [32, 32, 16], id="the last may be smaller"),
        pytest.param(run("r", "o", 80), 80, [80], id="ungrouped: one"),
        pytest.param(run("r", "o", 64, group=32, malleable=(32, 96, 32)), 32, [32], id="narrower"),
    ],
)
def test_groups(asked: Run, width: int, groups: list[int]) -> None:
    assert shape(asked).groups(width) == groups


@pytest.mark.parametrize(
    ("asked", "widths"),
    [
        pytest.param(run("r", "o", 8), [8], id="fixed"),
        pytest.param(run("r", "o", 24, malleable=(8, 24, 8)), [24, 16, 8], id="widest first"),
        pytest.param(run("r", "o", 16, malleable=(8, 24, 8)), [16, 8], id="never above total at a start"),
        pytest.param(run("r", "o", 8, malleable=(8, 24, 8)), [8], id="at its minimum"),
    ],
)
def test_start_widths(asked: Run, widths: list[int]) -> None:
    assert list(shape(asked).widths()) == widths
