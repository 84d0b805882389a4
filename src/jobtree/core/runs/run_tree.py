"""Job trees: for each stage of a tree there is one child Run (specification section 9).

Children are ordinary Runs. The ``after`` of a stage becomes the ``follow`` of its child. Stages joined by
``with`` are one gang. The world reads the gangs from the spec of the tree, never from a child.
"""

from collections.abc import Iterator, Sequence

from jobtree.api.kinds.run import Follow, Funding, LeafStage, Phase, Run, RunSpec, Stage
from jobtree.api.schema.object_meta import API_VERSION, SIM_GROUP, ObjectMeta, OwnerReference
from jobtree.api.validation.tree_rules import gangs_of
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import FINISHED, RunState

DURATIONS = f"{SIM_GROUP}/duration"  # an annotation; for stage s of a tree it ends in /duration.s

OPEN_PHASES: tuple[Phase, ...] = ("Running", "Reserved", "Pending", "Waiting")  # the furthest first


def child_name(tree: str, stage: str) -> str:
    return f"{tree}-{stage}"


def children_of(tree: Run) -> Iterator[Run]:
    """Yields the child Run that each stage must have."""
    meta, spec = tree.metadata, tree.spec
    owner = OwnerReference(
        api_version=API_VERSION,
        kind="Run",
        name=meta.name,
        uid=meta.uid,
        controller=True,
        block_owner_deletion=True,
    )
    for stage in spec.stages:
        yield Run(
            metadata=ObjectMeta(
                name=child_name(meta.name, stage.name),
                namespace=meta.namespace,
                annotations=stage_durations(meta.annotations, stage.name),
                owner_references=(owner,),
            ),
            spec=child_spec(tree, stage),
        )


def child_spec(tree: Run, stage: LeafStage) -> RunSpec:
    """Returns the spec of a child Run: the fields of its stage, and the owner and sponsors of the tree."""
    after = tuple(child_name(tree.metadata.name, upstream) for upstream in stage.after)
    shared = {name: getattr(stage, name) for name in type(stage).__struct_fields__ if name in SHARED}
    return RunSpec(
        owner=tree.spec.owner,
        funding=Funding(
            allow_borrow=stage.funding.allow_borrow,
            max_borrow_gpus=stage.funding.max_borrow_gpus,
            sponsors=tree.spec.funding.sponsors,
            allow_opportunistic=stage.funding.allow_opportunistic,
        ),
        follow=Follow(after=after, on_upstream_failure=stage.on_upstream_failure) if after else None,
        stages=tuple(as_stage(leaf) for leaf in stage.stages) if isinstance(stage, Stage) else (),
        **shared,
    )


SHARED = ("resources", "locality", "runtime", "malleable", "spares", "spares_per_group", "template", "quota")


def as_stage(leaf: LeafStage) -> Stage:
    return Stage(**{name: getattr(leaf, name) for name in LeafStage.__struct_fields__})


def stage_durations(annotations: dict[str, str], stage: str) -> dict[str, str]:
    """Returns the durations of simulated work: ``duration.a`` of a tree is ``duration`` of its stage a."""
    prefix = f"{DURATIONS}.{stage}"
    return {
        DURATIONS + name.removeprefix(prefix): text
        for name, text in annotations.items()
        if name == prefix or name.startswith(f"{prefix}.")
    }


def stage_gangs(tree: Run) -> list[tuple[RunKey, ...]]:
    """Returns the children that start together or not at all, two or more each, in the order of the spec."""
    namespace, name = tree.metadata.namespace, tree.metadata.name
    return [
        tuple((namespace, child_name(name, stage.name)) for stage in gang)
        for gang in gangs_of(tree.spec.stages)
        if len(gang) > 1
    ]


def is_child(tree: Run, child: Run) -> bool:
    """Whether the tree controls the Run and has a stage of its name; any user can write a reference alone."""
    if tree.metadata.namespace != child.metadata.namespace:
        return False
    names = {child_name(tree.metadata.name, stage.name) for stage in tree.spec.stages}
    return is_controlled_by(tree, child) and child.metadata.name in names


def is_controlled_by(tree: Run, child: Run) -> bool:
    """Whether the tree, and no other object of its name, controls the Run."""
    return any(
        reference.controller and reference.kind == "Run" and reference.uid == tree.metadata.uid
        for reference in child.metadata.owner_references
    )


def tree_phase(children: Sequence[RunState]) -> Phase:
    """Returns the phase of a tree that is not finished: the furthest phase of its children."""
    phases = {child.phase for child in children}
    if phases & FINISHED:
        return "Running"
    return next((phase for phase in OPEN_PHASES if phase in phases), "Pending")
