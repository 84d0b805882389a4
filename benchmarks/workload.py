"""Makes Runs: those that fill a fleet, and those whose arrival is measured."""

from random import Random

from benchmarks.fixtures import FLAVOR, Document, team, team_gpus
from benchmarks.scale import Scale
from jobtree.api.kinds.run import Run
from jobtree.api.schema.object_meta import API_VERSION
from jobtree.api.schema.quantities import format_time
from jobtree.api.validation.object_parser import parse_object

# GPUs and how many of a thousand Runs ask for that many; the mean is 17.
SIZES = ((1, 100), (2, 80), (4, 120), (8, 402), (16, 140), (32, 80), (64, 50), (128, 26), (1024, 2))
GROUP_GPUS = 32


def run_document(name: str, owner: str, gpus: int, at: int, **spec: object) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {
            "name": name,
            "namespace": owner.replace(":", "-"),
            "uid": f"{name}-uid",
            "creationTimestamp": format_time(at),
        },
        "spec": {"owner": owner, "resources": {"gpuType": FLAVOR, "totalGPUs": gpus}, **spec},
    }


def template(number: int) -> Document:
    """Returns the template of a team; two teams in three have one, with different requests."""
    if number % 3 == 0:
        return {}
    requests = {"cpu": str(8 + number % 5), "memory": "96Gi"}
    container = {"name": "main", "image": "trainer:1", "resources": {"requests": requests}}
    return {"template": {"spec": {"containers": [container]}}}


def parse_run(document: Document) -> Run:
    parsed = parse_object(document, "benchmark")
    assert isinstance(parsed, Run)
    return parsed


class Workload:
    """The random Runs of a fleet, always the same: teams in proportion to their GPUs, sizes by SIZES."""

    def __init__(self, scale: Scale, prefix: str = "run") -> None:
        self._scale = scale
        self._prefix = prefix
        self._random = Random(1)
        self._teams = range(scale.teams)
        self._weights = [team_gpus(number) for number in self._teams]
        self._drawn = 0

    def draw(self, at: int, gpus: int = 0) -> Run:
        """Returns the next Run, of the given or of a random size."""
        random, self._drawn = self._random, self._drawn + 1
        (number,) = random.choices(self._teams, self._weights)
        if not gpus:
            sizes, weights = zip(*SIZES, strict=True)
            (gpus,) = random.choices(sizes, weights)
        name, owner = f"{self._prefix}-{self._drawn:05d}", team(self._scale, number)
        return parse_run(run_document(name, owner, gpus, at, **template(number), **self._traits(gpus)))

    def _traits(self, gpus: int) -> Document:
        """Returns random fields: a third is declared, large Runs have groups, a few are malleable."""
        traits: Document = {}
        chance = self._random.randrange(100)
        if chance < 33:
            traits["runtime"] = {"maxDuration": f"{48 + chance}h", "checkpoint": "30m"}
        if gpus >= 64 and chance % 2:
            traits["locality"] = {"groupGPUs": GROUP_GPUS}
            if chance % 5 == 0:
                traits["spares"] = 1
        elif gpus >= 16 and chance % 10 == 0:
            traits["malleable"] = {"minTotalGPUs": gpus // 2, "maxTotalGPUs": gpus, "stepGPUs": gpus // 4}
        if chance % 20 == 1:
            traits["funding"] = {"allowBorrow": True, "sponsors": ["org:d00:t002"]}
        return traits


def arrival(scale: Scale, number: int, gpus: int, at: int, *, grouped: bool) -> Run:
    """Returns one measured arrival; the teams take turns."""
    extra = {"locality": {"groupGPUs": min(GROUP_GPUS, gpus)}} if grouped else {}
    turn = number * 7 % scale.teams
    return parse_run(run_document(f"new-{number}", team(scale, turn), gpus, at, **template(turn), **extra))
