"""Reads a batch script as sbatch does: its directives, its interpreter, its body.

Directives are the lines that begin with ``#SBATCH``, up to the first line that is neither blank nor a
comment. If an option is given twice, the last one counts. The environment overrides the script, and the
command line of sbatch overrides both. In a file without directives, here-documents that are passed to sbatch
are the scripts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.sbatch_options import (
    OPTIONS,
    SHORT,
    VARIABLES,
    SbatchOption,
    find_option,
    near_option,
)
from jobtree.importers.slurm.script.shell_text import HereDocument, here_documents, script_lines, words

DIRECTIVE = "#SBATCH"
HETEROGENEOUS = ("hetjob", "packjob")
SPLIT = "a heterogeneous job becomes stages that start together (with): convert a script for each part"
MAX_BYTES = 512 * 1024  # of a script: a Kubernetes object can hold it with the rest of the Run


class OptionSetting(NamedTuple):
    """The value of an option, and the place where it was set."""

    value: str
    where: str
    name: str

    def __str__(self) -> str:
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


@dataclass
class Script:
    """A batch script. ``source`` is for messages; ``settings`` are by the long names of the options."""

    source: str
    body: str
    interpreter: list[str]
    settings: dict[str, OptionSetting] = field(default_factory=dict)


def decode_script(raw: bytes, source: str) -> str:
    """The text of a script. Raises InputError."""
    if b"\0" in raw:
        raise InputError(source, ["is a binary file, not a batch script"])
    try:
        text = raw.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as broken:
        raise InputError(source, [f"is not UTF-8: byte {broken.start} is {raw[broken.start]:#04x}"]) from None
    if not text.strip():
        raise InputError(source, ["is empty: a batch script has directives (#SBATCH …) and commands"])
    if len(raw) > MAX_BYTES:
        raise InputError(
            source, [f"has {len(raw)} bytes, but a script in a Run can have at most {MAX_BYTES}"]
        )
    return text


def read_scripts(text: str, source: str, environment: Mapping[str, str], out: Converted) -> list[Script]:
    """The scripts of a file: the file itself, or those that it passes to sbatch. Raises InputError."""
    if "\r" in text:
        out.remark(source, "line ends of Windows (CRLF)", "the Run gets the line ends of Unix")
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    inner = (
        []
        if _has_directives(text)
        else [document for document in here_documents(text) if _is_sbatch(document.command)]
    )
    if not inner:
        return [_read(text, source, environment, [], out)]
    return [_read_inner(document, source, environment, out) for document in inner]


def _has_directives(text: str) -> bool:
    return any(line.startswith(DIRECTIVE) for line in _head(text))


def _is_sbatch(command: str) -> bool:
    try:
        return words(command)[:1] == ["sbatch"]
    except ValueError:
        return False


def _read_inner(here: HereDocument, source: str, environment: Mapping[str, str], out: Converted) -> Script:
    where = f"{source}, line {here.number}"
    given = words(here.command.partition("<<")[0])[1:]
    if not here.literal and "$" in here.text:
        out.remark(
            where,
            "variables in a here-document",
            "in Slurm the submitting shell replaces them; in Jobtree they are replaced when the Run starts",
        )
    return _read(here.text, f"{where} (here-document)", environment, given, out)


def _head(text: str) -> Iterator[str]:
    """The lines up to the first command."""
    for line in text.split("\n"):
        if line.strip() and not line.startswith("#"):
            return
        yield line


def _read(
    text: str, source: str, environment: Mapping[str, str], command_line: list[str], out: Converted
) -> Script:
    head = list(_head(text))
    settings: dict[str, OptionSetting] = {}
    for number, line in enumerate(head, start=1):
        where = f"{source}, line {number}"
        if line.startswith(DIRECTIVE):
            settings.update(_parsed(_words(line[len(DIRECTIVE) :], where), where, out))
        elif line.lower().replace(" ", "").lstrip("#").startswith("sbatch-") and not line.startswith("##"):
            out.remark(
                where, line.strip(), f"is a comment, in Slurm as well: a directive begins with {DIRECTIVE}"
            )
    _note_late_directives(text, len(head), source, out)
    for variable, name in VARIABLES.items():
        if variable in environment:
            value = "" if OPTIONS[name].value == "none" else environment[variable]
            settings[name] = OptionSetting(value, f"the environment ({variable})", name)
    settings.update(_parsed(command_line, f"{source}, the command line of sbatch", out))
    return Script(source, text, _interpreter(text), settings)


def _note_late_directives(text: str, ended: int, source: str, out: Converted) -> None:
    for line in script_lines(text):
        if line.number > ended and not line.quoted and line.text.startswith(DIRECTIVE):
            where = f"{source}, line {line.number}"
            out.remark(
                where,
                line.text.strip(),
                "is after the first command: sbatch ignores it, and so does the import",
            )


def _words(text: str, where: str) -> list[str]:
    try:
        return words(text)
    except ValueError as broken:
        raise InputError(where, [str(broken)]) from None


def _interpreter(text: str) -> list[str]:
    """The interpreter in the first line, or bash."""
    first = text.split("\n", 1)[0]
    asked = first[2:].split() if first.startswith("#!") else []
    if asked and asked[0].rpartition("/")[2] == "env":
        asked = [word for word in asked[1:] if word != "-S"]
    return asked or ["/bin/bash"]


def _parsed(given: list[str], where: str, out: Converted) -> Iterator[tuple[str, OptionSetting]]:
    """The options among the words of one line."""
    rest = list(given)
    while rest:
        word = rest.pop(0)
        if word.startswith("--") and word != "--":
            name, equals, value = word[2:].partition("=")
            option = find_option(name)
            if option is None:
                _note_unknown(word, name, where, out)
                if not equals and rest and not rest[0].startswith("-"):
                    rest.pop(0)
                continue
            yield option.name, OptionSetting(_value(option, value, equals, rest, where), where, option.name)
        elif word.startswith("-") and len(word) > 1 and word != "--":
            yield from _parsed_short(word[1:], rest, where, out)
        elif word in HETEROGENEOUS:
            raise InputError(where, [f"{word}: {SPLIT}"])
        else:
            out.remark(where, word, "is not an option: sbatch ignores the rest of the line")
            return


def _value(option: SbatchOption, value: str, equals: str, rest: list[str], where: str) -> str:
    if option.value == "none":
        if equals:
            raise InputError(where, [f"--{option.name} takes no value, but has {value!r}"])
        return ""
    if option.value == "must" and not equals:
        if not rest:
            raise InputError(where, [f"--{option.name} needs a value, as in --{option.name}=VALUE"])
        return rest.pop(0)
    return value


def _parsed_short(
    letters: str, rest: list[str], where: str, out: Converted
) -> Iterator[tuple[str, OptionSetting]]:
    """Reads ``-N2``, ``-N 2``, and flags in one word (``-vH``)."""
    while letters:
        option = SHORT.get(letters[0])
        if option is None:
            out.remark(where, f"-{letters}", "is unknown to sbatch, and is ignored")
            return
        letters = letters[1:]
        if option.value == "must":
            value = _value(option, letters.removeprefix("="), letters, rest, where)
            yield option.name, OptionSetting(value, where, option.name)
            return
        yield option.name, OptionSetting("", where, option.name)


def _note_unknown(word: str, name: str, where: str, out: Converted) -> None:
    """Refuses an option with a typing error. An option of a plugin only gets a remark."""
    near = near_option(name)
    if near:
        raise InputError(where, [f"{word}: there is no option --{name}; did you mean --{near}?"])
    out.remark(where, word, "is unknown to sbatch, perhaps an option of a plugin, and is ignored")
