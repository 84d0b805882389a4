"""Random small fleets, Budgets and Runs, and random steps that change them.

Everything is small: Runs compete more often on few nodes than on many, and failing examples stay readable.
Hypothesis chooses the list of steps and shortens it when a test fails. Each object is drawn from a seed of
its own, which is many times faster than if Hypothesis drew every field.
"""

from random import Random
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from jobtree.api.kinds.budget import Budget
from jobtree.api.kinds.run import Run
from jobtree.api.kubernetes.node import Node
from jobtree.api.schema.quantities import HOUR, MINUTE
from tests.unit.core.build import H100, budget, cap, envelope, node, run, template, tree

A100 = "A100-40GB"
FLAVORS = (H100,) * 9 + (A100,)
OWNERS = ("org", "org:a", "org:a:x", "org:a:y", "org:b", "lab")
DOMAINS = ("nv-a", "nv-b", "nv-c")


class FleetNode(NamedTuple):
    """A node of a test fleet, without its health: it can fail and heal."""

    name: str
    domain: str
    gpus: int
    flavor: str = H100
    cordoned: bool = False
    tainted: bool = False
    foreign_gpus: int = 0

    def node(self, *, failed: bool = False) -> Node:
        return node(
            self.name,
            self.domain,
            self.gpus,
            flavor=self.flavor,
            cordoned=self.cordoned,
            taint="dedicated" if self.tainted else None,
            failed=failed,
        )


def random_fleet(dice: Random) -> list[FleetNode]:
    fleet = []
    for domain in DOMAINS[: dice.randint(1, 3)]:
        for number in range(dice.randint(1, 4)):
            gpus = dice.choice((1, 2, 3, 4, 4, 8, 8))
            fleet.append(
                FleetNode(
                    f"{domain}-{number}",
                    domain,
                    gpus,
                    dice.choice(FLAVORS),
                    cordoned=dice.random() < 0.1,
                    tainted=dice.random() < 0.1,
                    foreign_gpus=dice.randint(0, gpus) if dice.random() < 0.2 else 0,
                )
            )
    return fleet


def random_envelope(dice: Random, name: str) -> dict[str, object]:
    gpus = dice.choice((1, 2, 4, 6, 8, 8, 12, 16))
    start = dice.choice((None,) * 6 + (0, HOUR, 3 * HOUR))
    end = dice.choice((None,) * 6 + (4 * HOUR, 6 * HOUR))
    hours = dice.choice((None,) * 6 + (2, 8, 24))
    if hours is not None and start is not None and end is not None:
        hours = min(hours, gpus * (end - start) // HOUR)
    fields: dict[str, object] = {
        "start": start,
        "end": end,
        "maxGPUHours": hours,
        "maxCredits": dice.choice((None,) * 6 + (4, 16)),
        "sharing": dice.choice(("family", "family", "family", "none")),
    }
    if dice.random() < 0.2:
        fields["selector"] = {"fabric.domain": dice.choice(DOMAINS)}
    if dice.random() < 0.5:
        fields["lending"] = {
            "allow": dice.random() < 0.9,
            "to": dice.choice(([], ["lab"], ["org:a:*", "lab"], ["org:*"], ["*"], ["*"])),
            "maxConcurrency": dice.choice((None, None, 0, 4, 8)),
            "maxGPUHours": dice.choice((None, None, None, 2, 8)),
        }
    return envelope(gpus, name, flavor=dice.choice(FLAVORS), **fields)


def random_budget(dice: Random, owner: str) -> Budget:
    envelopes = [random_envelope(dice, f"e{number}") for number in range(dice.choice((0, 1, 1, 2, 2, 3)))]
    caps = []
    if envelopes and dice.random() < 0.3:
        limits: dict[str, object] = {"maxCredits": dice.choice((4, 16, 64))}
        if len({envelope["flavor"] for envelope in envelopes}) == 1 and dice.random() < 0.7:
            limits = {"maxConcurrency": dice.randint(1, 16), "maxGPUHours": dice.choice((None, None, 8, 32))}
        caps.append(cap("cap", *(str(envelope["name"]) for envelope in envelopes), **limits))
    parents = None
    if dice.random() < 0.2:  # parents come earlier in the list, so there is no cycle
        parents = [elder for elder in OWNERS[: OWNERS.index(owner)] if dice.random() < 0.5]
    return budget(owner, *envelopes, caps=caps, parents=parents)


def random_budgets(dice: Random) -> list[Budget]:
    return [random_budget(dice, owner) for owner in OWNERS if dice.random() < 0.8]


def random_run(dice: Random, name: str) -> Run:
    fields: dict[str, Any] = {}
    total = dice.choice((1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 12))
    if dice.random() < 0.3:
        fields["group"] = dice.randint(1, total)
    if dice.random() < 0.3:
        unit = fields.get("group", dice.randint(1, 3))
        least, step = unit * dice.randint(1, 2), unit * dice.randint(1, 2)
        total = least + step * dice.randint(0, 2)
        fields["malleable"] = (least, total + step * dice.randint(0, 1), step)
    if dice.random() < 0.6:
        fields["sponsors"] = dice.sample(OWNERS, dice.randint(1, 4))
        fields["max_borrow"] = dice.choice((None, None, 0, 4))
    if dice.random() < 0.2:
        fields["template"] = template(tolerates="dedicated")
    return run(
        name,
        dice.choice(OWNERS),
        total,
        flavor=dice.choice(FLAVORS),
        spread=dice.random() < 0.8,
        spares=dice.choice((0, 0, 0, 1, 2)),
        max_duration=dice.choice((None, None, "1h", "3h")),
        checkpoint=dice.choice((None, None, "10m", "1h")),
        rendezvous=dice.random() < 0.3,
        opportunistic=dice.random() < 0.4,
        **fields,
    )


def random_job_tree(dice: Random, name: str) -> Run:
    """A few stages: some after others, some in one gang, some without GPUs, some trees under a quota."""
    stages: list[dict[str, Any]] = []
    for number in range(dice.randint(2, 4)):
        stage: dict[str, Any] = {"name": f"s{number}"}
        if dice.random() < 0.25:
            stage["resources"] = {"totalGPUs": 0, "pods": dice.randint(1, 2)}
        else:
            stage["resources"] = {"gpuType": H100, "totalGPUs": dice.choice((1, 2, 2, 4))}
        earlier = [f"s{other}" for other in range(number)]
        if earlier and dice.random() < 0.7:
            stage[dice.choice(("after", "after", "with"))] = [dice.choice(earlier)]
        if dice.random() < 0.3:
            stage["runtime"] = {"maxDuration": "2h"}
        stage["onUpstreamFailure"] = dice.choice(("wait", "fail"))
        stages.append(stage)
    quota = (
        {"maxGPUs": dice.choice((16, 20)), "maxGPUHours": dice.choice((24, 60))}
        if dice.random() < 0.3
        else None
    )
    return tree(name, dice.choice(OWNERS), stages, quota=quota)


class Step(NamedTuple):
    """One change of the cluster; the seed decides its details."""

    kind: str
    seed: int

    @property
    def dice(self) -> Random:
        return Random(self.seed)


WAITS = (1, MINUTE, 20 * MINUTE, HOUR - 1, HOUR, 2 * HOUR, 7 * HOUR)
STEP_KINDS: tuple[str, ...] = ("submit",) * 8 + ("advance",) * 4 + ("finish",) * 3 + ("edit",) * 2
STEP_KINDS += (
    "wait",
    "cancel",
    "drop",
    "fail",
    "heal",
    "cordon",
    "resize",
    "crash",
    "evict",
    "blackout",
    "tree",
)


class RandomHistory(NamedTuple):
    seed: int
    steps: list[Step]

    @property
    def fleet(self) -> list[FleetNode]:
        return random_fleet(Random(self.seed))

    @property
    def budgets(self) -> list[Budget]:
        return random_budgets(Random(self.seed))


SEEDS = st.integers(0, 1 << 16)


def random_histories(longest: int = 24, kinds: tuple[str, ...] = STEP_KINDS) -> SearchStrategy[RandomHistory]:
    steps = st.builds(Step, st.sampled_from(kinds), SEEDS)
    return st.builds(RandomHistory, SEEDS, st.lists(steps, min_size=6, max_size=longest))
