"""Reads the examples of a page: commands, the output shown below each, and named manifests."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
ANY_LINES = "…"
SIMULATED = "```console"
LIVE = "```shell-session"
"""The language of blocks that need a live cluster; readers see no difference."""
LIVE_GUIDES = ("operator-guide/admin-setup.md",)
"""The pages below docs/ that have such blocks."""


@dataclass(frozen=True)
class Shown:
    """A command of a page, the lines shown below it, and the number of the first of these lines."""

    text: str
    printed: tuple[str, ...]
    at: int


@dataclass(frozen=True)
class Manifest:
    name: str
    text: str


def shown(page: str, fence: str = SIMULATED) -> Iterator[Shown | Manifest]:
    """Yields the commands in blocks of that language, and the named manifests, in the order of the page."""
    lines = page.splitlines()
    inside = ""
    for number, line in enumerate(lines):
        below = number + 1
        if line.startswith("```"):
            inside = "" if inside else line
        elif inside == fence and line.startswith("$ "):
            end = next(at for at in range(below, len(lines)) if lines[at].startswith(("$ ", "```")))
            yield Shown(without_comment(line[2:]), tuple(without_blanks(lines[below:end])), below)
        elif inside == "```yaml" and (name := re.fullmatch(r"# ([a-z0-9-]+\.yaml)", line)):
            end = lines.index("```", below)
            yield Manifest(name[1], "".join(f"{content}\n" for content in lines[below:end]))


def without_comment(command: str) -> str:
    return re.split(r"\s+# ", command, maxsplit=1)[0].strip()


def without_blanks(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def agrees(expected: tuple[str, ...], printed: list[str]) -> bool:
    """Whether the output is as shown; if nothing is shown, whether the command succeeded."""
    output = [line for line in printed if not line.startswith("[exit ")]
    if not expected:
        return output == printed
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == ANY_LINES else re.escape(f"{line}\n") for line in expected
    )
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in output)) is not None


def rewritten(page: str, wrong: list[tuple[Shown, list[str]]]) -> str:
    """Returns the page with what the wrong commands printed."""
    lines = page.splitlines()
    for command, printed in reversed(wrong):
        output = [line for line in printed if not line.startswith("[exit ")]
        lines[command.at : command.at + len(command.printed)] = output
    return "".join(f"{line}\n" for line in lines)


def complaint(path: Path, command: Shown, printed: list[str]) -> str:
    where = f"{path.relative_to(REPOSITORY)}, line {command.at}: $ {command.text}"
    return "\n".join([where, "shown:", *command.printed, "printed:", *printed])
