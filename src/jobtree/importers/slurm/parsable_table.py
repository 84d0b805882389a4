"""Reads tables that Slurm prints with ``-p``: a header, then columns separated by bars."""

from collections.abc import Iterator

from jobtree.api.schema.problems import InputError
from jobtree.importers.slurm.script.batch_script import decode_script

TableRow = dict[str, str]


def read_table(
    raw: bytes, source: str, needed: tuple[str, ...], command: str
) -> Iterator[tuple[str, TableRow]]:
    """The rows by the names of their columns, each with its place in the source. Raises InputError."""
    rows = [line for line in enumerate(decode_script(raw, source).splitlines(), start=1) if line[1].strip()]
    header = [name.strip() for name in rows[0][1].rstrip("|").split("|")]
    missing = [name for name in needed if name not in header]
    if missing:
        raise InputError(
            source,
            [f"has no column {', '.join(missing)}: give the output of '{command}' with its header"],
        )
    for number, line in rows[1:]:
        cells = line.split("|")
        if len(cells) < len(header):
            raise InputError(
                f"{source}, line {number}", [f"has {len(cells)} columns, but the header has {len(header)}"]
            )
        cells = [cell.strip() for cell in cells]
        yield f"{source}, line {number}", dict(zip(header, cells, strict=False))


def gpus_in(tres: str) -> dict[str, int]:
    """GPUs by type in ``cpu=8,gres/gpu=4,gres/gpu:a100=4``; an empty type is any. Raises ValueError."""
    gpus: dict[str, int] = {}
    for part in tres.split(","):
        name, _, amount = part.partition("=")
        if name == "gres/gpu" or name.startswith("gres/gpu:"):
            if not amount.isascii() or not amount.isdecimal() or len(amount) > 15:  # noqa: PLR2004  digits
                raise ValueError(f"{part!r} must be a whole number of GPUs")
            gpus[name.removeprefix("gres/gpu").removeprefix(":")] = int(amount)
    return gpus
