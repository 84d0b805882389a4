"""Job trees: a Run of stages is kept as one child Run per stage (SPEC section 9).

Children are ordinary Runs. What a stage comes ``after`` becomes the child's ``follow``; stages joined by
``with`` are one gang, which the world knows from the tree itself, never from what is written on a child.
"""

from collections.abc import Iterator, Sequence

from jobtree.api.kinds.run import Follow, Funding, LeafStage, Phase, Run, RunSpec, Stage
from jobtree.api.schema.object_meta import API_VERSION, SIM_GROUP, ObjectMeta, OwnerReference
from jobtree.api.validation.tree_rules import gangs_of
from jobtree.core.model.gpu_lease import RunKey
from jobtree.core.runs.run_state import FINISHED, RunState

DURATIONS = f"{SIM_GROUP}/duration"  # of stage s of a simulated tree: …/duration.s

ORDER: tuple[Phase, ...] = ("Running", "Reserved", "Pending", "Waiting")


def child_name(tree: str, stage: str) -> str:
    return f"{tree}-{stage}"


def children_of(tree: Run) -> Iterator[Run]:
    """One Run per stage, as it must be."""
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
    """A stage's own shape; the tree's owner and sponsors."""
    after = tuple(child_name(tree.metadata.name, other) for other in stage.after)
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
    """How long simulated work takes: ``duration.train`` of the tree is ``duration`` of its stage train."""
    mine = f"{DURATIONS}.{stage}"
    return {
        DURATIONS + name.removeprefix(mine): text
        for name, text in annotations.items()
        if name == mine or name.startswith(f"{mine}.")
    }


def stage_gangs(tree: Run) -> list[tuple[RunKey, ...]]:
    """Children that start together or not at all, two or more each, in the order they are written."""
    namespace, name = tree.metadata.namespace, tree.metadata.name
    return [
        tuple((namespace, child_name(name, stage.name)) for stage in gang)
        for gang in gangs_of(tree.spec.stages)
        if len(gang) > 1
    ]


def is_child(tree: Run, child: Run) -> bool:
    """Whether the tree itself says so: names and references alone could be anybody's."""
    if tree.metadata.namespace != child.metadata.namespace:
        return False
    names = {child_name(tree.metadata.name, stage.name) for stage in tree.spec.stages}
    references = child.metadata.owner_references
    controlled = any(
        one.controller and one.kind == "Run" and one.uid == tree.metadata.uid for one in references
    )
    return controlled and child.metadata.name in names


def tree_phase(children: Sequence[RunState]) -> Phase:
    """The phase of a tree that is not finished yet: the furthest that any of its children has come."""
    phases = {child.phase for child in children}
    if phases & FINISHED:
        return "Running"
    return next((phase for phase in ORDER if phase in phases), "Pending")
