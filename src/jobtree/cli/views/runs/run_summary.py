"""What a Run looks like from outside: its phase, its width, who pays, where it is and why."""

from collections.abc import Iterator

from jobtree.cli.shell.wording import age, counted_noun, joined_list
from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.core import RunState, phase_of


def run_title(run: RunState) -> str:
    return "/".join(run.key)


def width_text(run: RunState) -> str:
    """``96/128``: allocated of desired."""
    return f"{run.width}/{run.shape.desired}" if run.shape else "-"


def since(places: Places, run: RunState) -> str:
    return age(places.world.now - run.phase_at)


def class_split(run: RunState) -> str:
    """``Owned 96, Borrowed 32, spare 8``: GPUs now, by who pays for them."""
    gpus: dict[str, int] = {}
    for lease in run.leases.values():
        name = "spare" if lease.role == "Spare" else lease.class_
        gpus[name] = gpus.get(name, 0) + lease.gpus
    order = ("Owned", "Shared", "Borrowed", "Opportunistic", "spare")
    return ", ".join(f"{name} {gpus[name]}" for name in order if name in gpus)


def payers(run: RunState) -> str:
    """``west/h100 (Owned 96) and vision/lend (Borrowed 32)``: everyone who pays for its ranks."""
    gpus: dict[tuple[str, str], int] = {}
    for lease in run.leases.values():
        if lease.role == "Active":
            key = ("/".join(lease.payer), lease.class_)
            gpus[key] = gpus.get(key, 0) + lease.gpus
    return joined_list([f"{payer} ({class_} {number})" for (payer, class_), number in gpus.items()], most=8)


def reason(run: RunState) -> str:
    """The reason where it says more than the phase: why it waits, why it failed, that nobody pays."""
    said = run.verdict.reason if run.verdict else ""
    return "" if said in ("Admitted", run.phase) else said


def asks(run: RunState) -> str:
    """What its spec asks for, in a line."""
    shape = run.shape
    if shape is None:
        resources = run.run_object.spec.resources
        stages = len(run.run_object.spec.stages)
        return (
            f"{counted_noun(resources.pods or 1, 'pod')} without GPUs"
            if resources
            else counted_noun(stages, "stage")
        )
    parts = [f"{counted_noun(shape.total, 'GPU')} of {shape.flavor}"]
    if shape.group:
        parts.append(f"groups of {shape.group}" + ("" if shape.spread else " in one domain"))
    elif not shape.spread:
        parts.append("in one domain")
    if shape.malleable:
        parts.append(f"malleable {shape.min} to {shape.max} by {shape.step}")
    if shape.spares:
        parts.append(f"{counted_noun(shape.spares, 'spare pod')} per group")
    return ", ".join(parts)


def run_outcome(places: Places, run: RunState) -> Iterator[str]:
    """What became of a Run: where it runs and who pays, or every reason why it waits."""
    if run.is_tree:
        yield from tree(places, run)
    elif run.phase == "Waiting":
        yield f"{run_title(run)} waits for other Runs:"
        yield from reasons(run)
    elif run.shape is None:
        yield f"{run_title(run)} is {run.phase}: {asks(run)}"
    elif run.phase == "Running":
        yield from running(places, run)
    elif run.waiting:
        yield f"{run_title(run)} waits for {asks(run)}:"
        yield from reasons(run)
        yield from promise_lines(places, run)
    else:
        yield f"{run_title(run)} is {run.phase}: {run.verdict.message if run.verdict else ''}"


def tree(places: Places, run: RunState) -> Iterator[str]:
    """A tree, and what became of each of its stages."""
    children = places.world.run_graph.children(run)
    phase = phase_of(places.world, run)
    yield f"{run_title(run)} is {phase}: a tree of {counted_noun(len(run.run_object.spec.stages), 'stage')}"
    for child in children:
        for line in run_outcome(places, child):
            yield f"  {line}"


def running(places: Places, run: RunState) -> Iterator[str]:
    """``train runs: 8 GPUs in nv-a (a01), paid by west/h100 (Owned 8)``; spares on a line of their own."""
    ranks = [lease for lease in run.leases.values() if lease.role != "Spare"]
    spares = [lease for lease in run.leases.values() if lease.role == "Spare"]
    text = f"{run_title(run)} runs: {counted_noun(run.width, 'GPU')} in {places.where(ranks)}"
    if payers(run):
        text += f", paid by {payers(run)}"
    if run.opportunistic_gpus:
        text += f", {run.opportunistic_gpus} unpaid until someone funded needs them"
    yield text
    if spares:
        held = counted_noun(sum(lease.gpus for lease in spares), "spare GPU")
        yield f"  and holds {held} in {places.where(spares)}"
    if run.provisional:
        yield "  provisionally: these GPUs are promised to others, and it goes first when they are due"
    yield from promise_lines(places, run)


def reasons(run: RunState) -> Iterator[str]:
    for why in run.verdict.causes if run.verdict else ():
        yield f"  {why.reason}: {why}"
