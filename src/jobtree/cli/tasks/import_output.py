"""What a conversion gave: objects on stdout or in a directory, what has no equivalent on stderr."""

import os
from collections.abc import Iterable
from pathlib import Path

import click

from jobtree.api.documents.document_stream import dump_yaml
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.importers.conversion import Converted

LABELS, TRACE = "label-nodes.sh", "trace.csv"


class ImportOutput:
    """Where the results go: ``directory`` in place of stdout where it is given."""

    def __init__(self, settings: CommandOptions, directory: str | None, *, replace: bool) -> None:
        self._settings = settings
        self._directory = Path(directory) if directory is not None else None
        self._replace = replace

    def give(self, converted: Converted) -> None:
        files = {
            f"{body['kind'].lower()}-{body['metadata']['name']}.yaml": dump_yaml([body])
            for body in converted.documents
        }
        if converted.labels:
            files[LABELS] = "".join(f"{line}\n" for line in ["#!/bin/sh", *converted.labels])
        if self._directory is not None:
            self._write(files)
        elif self._settings.human:
            click.echo(dump_yaml(converted.documents) if converted.documents else "", nl=False)
        else:
            print_objects(self._settings, converted.documents)
        if converted.labels:
            _tell("label the nodes:", converted.labels)
        self._tell_remarks(converted)

    def give_trace(self, trace: str, converted: Converted) -> None:
        if self._directory is not None:
            self._write({TRACE: trace})
        else:
            click.echo(trace, nl=False)
        self._tell_remarks(converted)

    def _tell_remarks(self, converted: Converted) -> None:
        if converted.remarks:
            _tell(f"without an equivalent ({len(converted.remarks)}):", map(str, converted.remarks))

    def _write(self, files: dict[str, str]) -> None:
        assert self._directory is not None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            there = [name for name in files if (self._directory / name).exists()]
            if there and not self._replace:
                path = self._directory / there[0]
                raise CommandError(
                    Exit.CONFLICT, f"{path} is there already: choose another directory, or add --force"
                )
            for name, text in files.items():
                (self._directory / name).write_text(text, encoding="utf-8")
        except OSError as broken:
            raise CommandError(
                Exit.IO, f"cannot write to {self._directory}: {os.strerror(broken.errno or 0)}"
            ) from None
        for name in files:
            click.echo(f"wrote {self._directory / name}")


def _tell(title: str, lines: Iterable[str]) -> None:
    click.echo(title, err=True)
    for line in lines:
        click.echo(f"  {line}", err=True)
