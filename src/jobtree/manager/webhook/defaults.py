"""What is written into a Run on its way in: one spelling of one thing.

``sparesPerGroup`` becomes ``spares``, in the Run and in every stage, so that all who read a Run (scripts,
other controllers) need to know one name. Other defaults stay unwritten: written down, they would look like
the author's wish and would not follow when another field is edited.
"""

from collections.abc import Iterator
from typing import Any

OLD, NEW = "sparesPerGroup", "spares"

Spec = dict[str, Any]


def one_spelling(spec: Spec, before: Spec, path: str = "/spec") -> Iterator[dict[str, Any]]:
    """The JSON patch. Two different wishes at once are left for the kind's own rules to refuse."""
    if OLD in spec:
        # Applied again, the author's manifest meets the spelling that was written for it last time.
        unsaid = NEW not in spec or (NEW in before and OLD not in before and spec[NEW] == before[NEW])
        if unsaid or spec[NEW] == spec[OLD]:
            yield {"op": "add", "path": f"{path}/{NEW}", "value": spec[OLD]}
            yield {"op": "remove", "path": f"{path}/{OLD}"}
    known = {str(stage.get("name")): stage for _, stage in _stages(before)}
    for position, stage in _stages(spec):
        yield from one_spelling(stage, known.get(str(stage.get("name")), {}), f"{path}/stages/{position}")


def _stages(spec: Spec) -> list[tuple[int, Spec]]:
    """With their positions; the kind's own rules, which come later, refuse what is none."""
    stages = spec.get("stages")
    listed = stages if isinstance(stages, list) else []
    return [(position, stage) for position, stage in enumerate(listed) if isinstance(stage, dict)]
