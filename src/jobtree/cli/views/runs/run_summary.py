"""Describes a Run in short texts: phase, width, payers, domains and reasons."""

from collections.abc import Iterator

from jobtree.cli.views.place_names import Places
from jobtree.cli.views.runs.promise_view import promise_lines
from jobtree.core import RunState, phase_of
from jobtree.messages.wording import age, counted_noun, joined_list


def run_title(run: RunState) -> str:
    return "/".join(run.key)


def width_text(run: RunState) -> str:
    """Returns ``96/128``: allocated of desired GPUs."""
    return f"{run.width}/{run.shape.desired}" if run.shape else "-"


def since(places: Places, run: RunState) -> str:
    return age(places.world.now - run.phase_at)


def class_split(run: RunState) -> str:
    """Returns ``Owned 96, Borrowed 32, spare 8``: the present GPUs by class."""
    gpus: dict[str, int] = {}
    for lease in run.leases.values():
        name = "spare" if lease.role == "Spare" else lease.class_
        gpus[name] = gpus.get(name, 0) + lease.gpus
    order = ("Owned", "Shared", "Borrowed", "Opportunistic", "spare")
    return ", ".join(f"{name} {gpus[name]}" for name in order if name in gpus)


def payers(run: RunState) -> str:
    """Returns ``west/h100 (Owned 96) and vision/lend (Borrowed 32)``: all payers of its ranks."""
    gpus: dict[tuple[str, str], int] = {}
    for lease in run.leases.values():
        if lease.role == "Active":
            key = ("/".join(lease.payer), lease.class_)
            gpus[key] = gpus.get(key, 0) + lease.gpus
    return joined_list([f"{payer} ({class_} {number})" for (payer, class_), number in gpus.items()], most=8)


def reason(run: RunState) -> str:
    """Returns the reason of the verdict; empty if it adds nothing to the phase."""
    verdict_reason = run.verdict.reason if run.verdict else ""
    return "" if verdict_reason in ("Admitted", run.phase) else verdict_reason


def request_text(run: RunState) -> str:
    """Returns what its spec requests, in one line."""
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
    """Yields the outcome of a Run: where it runs and who pays, or all reasons why it waits."""
    if run.is_tree:
        yield from tree_lines(places, run)
    elif run.phase == "Waiting":
        yield f"{run_title(run)} waits for other Runs:"
        yield from reasons(run)
    elif run.shape is None:
        yield f"{run_title(run)} is {run.phase}: {request_text(run)}"
    elif run.phase == "Running":
        yield from running_lines(places, run)
    elif run.waiting:
        yield f"{run_title(run)} waits for {request_text(run)}:"
        yield from reasons(run)
        yield from promise_lines(places, run)
    else:
        yield f"{run_title(run)} is {run.phase}: {run.verdict.message if run.verdict else ''}"


def tree_lines(places: Places, run: RunState) -> Iterator[str]:
    """Yields the phase of a tree, and the outcome of each stage."""
    children = places.world.run_graph.children(run)
    phase = phase_of(places.world, run)
    yield f"{run_title(run)} is {phase}: a tree of {counted_noun(len(run.run_object.spec.stages), 'stage')}"
    for child in children:
        for line in run_outcome(places, child):
            yield f"  {line}"


def running_lines(places: Places, run: RunState) -> Iterator[str]:
    """Yields ``train runs: 8 GPUs in nv-a (a01), paid by west/h100 (Owned 8)``, then its spares."""
    ranks = [lease for lease in run.leases.values() if lease.role != "Spare"]
    spares = [lease for lease in run.leases.values() if lease.role == "Spare"]
    text = f"{run_title(run)} runs: {counted_noun(run.width, 'GPU')} in {places.where(ranks)}"
    if payers(run):
        text += f", paid by {payers(run)}"
    if run.opportunistic_gpus:
        text += f", {run.opportunistic_gpus} opportunistic until a funded Run needs them"
    yield text
    if spares:
        spare_gpus = counted_noun(sum(lease.gpus for lease in spares), "spare GPU")
        yield f"  and holds {spare_gpus} in {places.where(spares)}"
    if run.provisional:
        yield (
            "  provisionally: these GPUs are promised to other Runs, "
            "and this Run stops first when they are due"
        )
    yield from promise_lines(places, run)


def reasons(run: RunState) -> Iterator[str]:
    for cause in run.verdict.causes if run.verdict else ():
        yield f"  {cause.reason}: {cause}"
