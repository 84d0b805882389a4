"""What a Budget's status calls free can really be started now, and not one GPU more.

In random budget worlds with ample nodes, Runs of growing width are submitted to copies of the cluster: for
the owner, for a relative, for a sponsored team. The widest that starts, paid by the envelope alone, must be
the figure in the status.
"""

import random
from copy import deepcopy
from typing import Any

import pytest

from jobtree.api.documents.document_stream import Document
from jobtree.api.kinds.lease import LeaseClass
from jobtree.api.schema.quantities import HOUR, MINUTE, format_time
from jobtree.core import headroom_of
from jobtree.simulation.cluster.simulated_cluster import SimulatedCluster
from tests.property.fingerprint import fingerprint
from tests.unit.cli.manifests import Body, budget, envelope, node, run
from tests.unit.core.build import T0

WORLDS = 40
OWNERS = ("org", "org:a", "org:b", "lend")


def random_cluster(seed: int) -> SimulatedCluster:
    dice = random.Random(seed)
    cluster = SimulatedCluster(T0)
    submit(cluster, *(node(f"a{number:02}") for number in range(20)))
    for number, owner in enumerate(OWNERS):
        if dice.random() < 0.85:
            submit(cluster, random_budget(dice, f"b{number}", owner))
    for number in range(dice.randint(2, 9)):
        submit(cluster, random_run(dice, f"r{number}"))
        cluster.advance(cluster.now + dice.choice((0, 1, 7, 20, 60)) * MINUTE)
    return cluster


def random_budget(dice: random.Random, name: str, owner: str) -> Body:
    fields: dict[str, Any] = {}
    gpus = dice.randint(1, 9)
    if dice.random() < 0.4:
        fields["maxGPUHours"] = dice.randint(1, 30)
    if dice.random() < 0.2:
        fields["maxCredits"] = dice.randint(1, 30)
    if dice.random() < 0.3:
        fields["start"] = format_time(T0 + dice.choice((0, HOUR, 5 * HOUR)))
    if dice.random() < 0.3:
        fields["end"] = format_time(T0 + dice.choice((6, 8, 40)) * HOUR)
    if "start" in fields and "end" in fields:
        fields.pop("maxGPUHours", None)
    if dice.random() < 0.2:
        fields["sharing"] = "none"
    if dice.random() < 0.5:
        fields["lending"] = random_lending(dice)
    caps = {}
    if dice.random() < 0.25:
        cap = dice.choice(({"maxConcurrency": dice.randint(1, 9)}, {"maxGPUHours": dice.randint(1, 20)}))
        caps["aggregateCaps"] = [{"name": "cap", "envelopes": ["own"], **cap}]
    return budget(name, envelope(gpus, **fields), owner=owner, **caps)


def random_lending(dice: random.Random) -> dict[str, Any]:
    lending: dict[str, Any] = {"allow": True, "to": ["*"]}
    if dice.random() < 0.5:
        lending["maxConcurrency"] = dice.randint(1, 9)
    if dice.random() < 0.3:
        lending["maxGPUHours"] = dice.randint(1, 9)
    return lending


def random_run(dice: random.Random, name: str) -> Body:
    gpus = dice.randint(1, 9)
    fields: dict[str, Any] = {}
    runtime: dict[str, str] = {}
    if dice.random() < 0.6:
        runtime["maxDuration"] = dice.choice(("30m", "1h", "3h", "10h"))
    if dice.random() < 0.3:
        runtime["checkpoint"] = "10m"
    if dice.random() < 0.3:
        fields["funding"] = {"allowBorrow": True, "sponsors": [dice.choice(OWNERS)]}
    body = run(name, gpus, dice.choice((*OWNERS, "org:a:x", "guest")), runtime=runtime, **fields)
    body["spec"]["resources"]["gpusPerPod"] = 1
    return body


def submit(cluster: SimulatedCluster, *bodies: Body) -> None:
    cluster.submit(Document("test", deepcopy(body)) for body in bodies)


class Attempts:
    """New Runs of growing width, each on a copy of the cluster: the payers of those that start at once."""

    def __init__(
        self, cluster: SimulatedCluster, key: tuple[str, str], class_: LeaseClass, most: int
    ) -> None:
        self.payer = (key, class_)
        self._cluster = cluster
        self._documents = deepcopy(cluster.documents())
        self.payers = [self._start(gpus) for gpus in range(most + 1)]

    def _start(self, gpus: int) -> set[tuple[tuple[str, str], str]]:
        if not gpus:
            return set()
        (key, class_), copy = self.payer, SimulatedCluster(self._cluster.now)
        copy.load(Document("copy", deepcopy(body)) for body in self._documents)
        owner = copy.world.budgets.envelopes[key].owner
        body = run("zz-new", gpus, {"Owned": owner, "Shared": f"{owner}:zz"}.get(class_, "zz"))
        body["spec"]["resources"]["gpusPerPod"] = 1
        if class_ == "Borrowed":
            body["spec"]["funding"] = {"allowBorrow": True, "sponsors": [owner]}
        submit(copy, body)
        return {(lease.payer, lease.class_) for lease in copy.world.runs["default", "zz-new"].leases.values()}

    @property
    def widest_alone(self) -> int:
        """The widest start that the envelope alone pays for."""
        return max((gpus for gpus, payers in enumerate(self.payers) if payers == {self.payer}), default=0)

    def confirm(self, free: int) -> bool:
        """Whether a Run of that width starts, and none is wider by this envelope alone.

        Before an owner takes anything back from its family, the family pays for a part of its Run (C2).
        """
        with_others = self.payers[self.widest_alone + 1 : free + 1]
        return self.widest_alone <= free and all(payers - {self.payer} for payers in with_others)


@pytest.mark.parametrize("seed", range(WORLDS))
def test_free_is_what_can_be_started_now(seed: int) -> None:
    cluster = random_cluster(seed)
    cluster.documents()
    before = fingerprint(cluster.world)
    for key, envelope_state in cluster.world.budgets.envelopes.items():
        headroom_of(cluster.world, envelope_state)
        assert fingerprint(cluster.world) == before, f"the figures of {key} decide nothing"
    for _, body in cluster.objects.of("Budget"):
        for declared, used in zip(body["spec"]["envelopes"], body["status"]["envelopes"], strict=True):
            key, most = (body["metadata"]["name"], declared["name"]), declared["concurrency"] + 1
            owned = Attempts(cluster, key, "Owned", most)
            assert owned.confirm(int(used["freeGPUs"])), (key, used, owned.payers)
            for class_, field in (("Shared", "familyFreeGPUs"), ("Borrowed", "lendableGPUs")):
                others = Attempts(cluster, key, class_, most)  # type: ignore[arg-type]
                assert int(used.get(field, "0")) == others.widest_alone, (key, class_, used)
