"""The CEL rules of gangs and trees, which are too long for ``run.py``."""

from jobtree.api.schema.cel_rules import Rule, cel_seconds, if_has, unchanged

MAX_WIDTHS = 4096  # of one malleable Run
MAX_PODS = 8192  # ranks and spares of one Run: its status lists each, with its place

RUNNING_RULE = (
    "while a Run is running, only malleable.desiredTotalGPUs and a lower runtime.maxDuration may change"
)


def _with_gang(path: str, rule: str) -> str:
    """Returns a rule for gangs that tests a rare field first: the server evaluates it on every write."""
    return if_has(path, if_has("resources", rule))


def _least(stage: str) -> str:
    """Returns the expression for the least width at which a stage can start."""
    return f"(has({stage}.malleable) ? {stage}.malleable.minTotalGPUs : {stage}.resources.totalGPUs)"


_WIDEST = "(has(self.malleable) ? self.malleable.maxTotalGPUs : self.resources.totalGPUs)"
_SPARES = "(has(self.spares) ? self.spares : has(self.sparesPerGroup) ? self.sparesPerGroup : 0)"

GANG_RULES = (
    Rule(
        if_has(
            "resources",
            if_has("resources.gpusPerPod", f"{_WIDEST} / self.resources.gpusPerPod <= {MAX_PODS}"),
        ),
        f"a Run has at most {MAX_PODS} pods: raise resources.gpusPerPod",
    ),
    Rule(
        _with_gang(
            "locality.groupGPUs", f"{_WIDEST} / self.locality.groupGPUs * (1 + {_SPARES}) <= {MAX_PODS}"
        ),
        f"a Run has at most {MAX_PODS} pods, spares included: raise locality.groupGPUs",
    ),
    Rule(
        if_has("spares", if_has("sparesPerGroup", "self.spares == self.sparesPerGroup")),
        "sparesPerGroup means the same as spares: set one of them, or both to the same value",
    ),
    Rule(
        _with_gang("locality.groupGPUs", "self.locality.groupGPUs <= self.resources.totalGPUs"),
        "locality.groupGPUs must be at most resources.totalGPUs",
    ),
    Rule(
        _with_gang(
            "locality.groupGPUs",
            if_has("resources.gpusPerPod", "self.locality.groupGPUs % self.resources.gpusPerPod == 0"),
        ),
        "locality.groupGPUs must be a multiple of resources.gpusPerPod",
    ),
    Rule(
        _with_gang("malleable", "self.malleable.minTotalGPUs <= self.resources.totalGPUs"),
        "malleable.minTotalGPUs must be at most resources.totalGPUs",
    ),
    Rule(
        _with_gang("malleable", "self.malleable.maxTotalGPUs >= self.resources.totalGPUs"),
        "malleable.maxTotalGPUs must be at least resources.totalGPUs",
    ),
    Rule(
        _with_gang(
            "malleable",
            "(self.resources.totalGPUs - self.malleable.minTotalGPUs) % self.malleable.stepGPUs == 0",
        ),
        "resources.totalGPUs must be malleable.minTotalGPUs + k × stepGPUs",
    ),
    *(
        Rule(
            if_has("malleable", if_has(unit, f"self.malleable.{field} % self.{unit} == 0")),
            f"malleable.{field} must be a multiple of {unit}",
        )
        for field in ("minTotalGPUs", "stepGPUs")
        for unit in ("locality.groupGPUs", "resources.gpusPerPod")
    ),
)

LEAF_RULES = (
    *GANG_RULES,
    Rule("has(self.resources)", "resources is required where there are no stages"),
    Rule("!has(self.quota)", "quota goes with stages"),
)

# Of a stage and of a Run, either of which may be a gang or a tree.
BRANCH_RULES = (
    *GANG_RULES,
    Rule(
        "has(self.resources) != (has(self.stages) && size(self.stages) > 0)",
        "set either resources or stages, not both",
    ),
    Rule("!(has(self.resources) && has(self.quota))", "quota goes with stages, not with resources"),
    Rule(
        "has(self.resources) || !(has(self.malleable) || has(self.spares) || has(self.sparesPerGroup))",
        "malleable, spares and sparesPerGroup go with resources: set them in a stage",
    ),
    Rule(
        if_has(
            "stages",
            if_has(
                "quota.maxGPUs",
                f"self.stages.all(s, !has(s.resources) || self.quota.maxGPUs >= {_least('s')})",
            ),
        ),
        "quota.maxGPUs is less than one of the stages needs",
    ),
)

STAGE_RULES = (
    *BRANCH_RULES,
    Rule(
        "!has(self.stages) || size(self.stages) == 0 || !has(self.with) || size(self.with) == 0",
        "a stage with stages of its own cannot be joined to a gang",
    ),
    Rule(
        if_has("after", if_has("with", "!self.after.exists(n, n in self.with)")),
        "a stage cannot wait for a stage that it starts with",
    ),
)

TREE_RULES = (
    *(
        Rule(
            if_has(
                "stages",
                "[self.stages.map(s, s.name)].all(names, self.stages.all(s,"
                f" !has(s.{field}) || s.{field}.all(n, n != s.name && n in names)))",
            ),
            f"{field} must name other stages of the same level, not the stage itself",
        )
        for field in ("after", "with")
    ),
    Rule(
        if_has(
            "stages",
            if_has(
                "quota.maxGPUs",
                "self.stages.all(s, !has(s.with) || !has(s.resources) || self.stages.all(t,"
                " !(t.name in s.with) || !has(t.resources)"
                f" || self.quota.maxGPUs >= {_least('s')} + {_least('t')}))",
            ),
        ),
        "quota.maxGPUs is less than two stages joined by with need at once",
    ),
)

_RUNNING = (
    "has(oldSelf.status) && (has(oldSelf.status.phase) && oldSelf.status.phase == 'Running'"
    " || has(oldSelf.status.allocation)"
    " && !(has(oldSelf.status.phase) && oldSelf.status.phase in ['Completed', 'Failed']))"
)
_FIXED = unchanged(
    ".spec",
    *(
        "resources",
        "locality",
        "spares",
        "sparesPerGroup",
        "template",
        "quota",
        "funding",
        "follow",
        "stages",
    ),
)
_FIXED_RUNTIME = unchanged(".spec.runtime", "checkpoint", "onNotice", "maxRestarts", "requeue", "onResize")
_FIXED_MALLEABLE = unchanged(".spec.malleable", "minTotalGPUs", "maxTotalGPUs", "stepGPUs")
_LOWER = (
    f"{cel_seconds('self.spec.runtime.maxDuration')} <= {cel_seconds('oldSelf.spec.runtime.maxDuration')}"
)

_SAME_RUNTIME = f"!has(self.spec.runtime) || !has(oldSelf.spec.runtime) || {_FIXED_RUNTIME}"
_SAME_WIDTHS = (
    "has(self.spec.malleable) == has(oldSelf.spec.malleable)"
    f" && (!has(self.spec.malleable) || {_FIXED_MALLEABLE})"
)
_NOT_LONGER = (
    "!has(oldSelf.spec.runtime) || !has(oldSelf.spec.runtime.maxDuration)"
    f" || (has(self.spec.runtime) && has(self.spec.runtime.maxDuration) && {_LOWER})"
)
_ALLOWED = f"({_FIXED}) && ({_SAME_RUNTIME}) && ({_SAME_WIDTHS}) && ({_NOT_LONGER})"

RUN_RULES = (
    Rule(
        if_has("spec.follow", "!(self.metadata.name in self.spec.follow.after)"),
        "a Run cannot wait for itself",
    ),
    # One rule, whose first terms let almost every write of a status pass: the server's cost of each field
    # access grows with the number of fields of its object.
    Rule(f"!({_RUNNING}) || self.spec == oldSelf.spec || {_ALLOWED}", RUNNING_RULE),
)
