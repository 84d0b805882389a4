"""Writes the result of a conversion: objects to stdout or a directory, remarks to stderr."""

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
    """Writes results to stdout, or to ``directory`` if it is given."""

    def __init__(self, settings: CommandOptions, directory: str | None, *, replace: bool) -> None:
        self._settings = settings
        self._directory = Path(directory) if directory is not None else None
        self._replace = replace

    def write(self, converted: Converted) -> None:
        files = {
            f"{body['kind'].lower()}-{body['metadata']['name']}.yaml": dump_yaml([body])
            for body in converted.documents
        }
        if converted.labels:
            files[LABELS] = "".join(f"{line}\n" for line in ["#!/bin/sh", *converted.labels])
        if self._directory is not None:
            self._write_files(files)
        elif self._settings.human:
            click.echo(dump_yaml(converted.documents) if converted.documents else "", nl=False)
        else:
            print_objects(self._settings, converted.documents)
        if converted.labels:
            _print_note("label the nodes:", converted.labels)
        self._print_remarks(converted)

    def write_trace(self, trace: str, converted: Converted) -> None:
        if self._directory is not None:
            self._write_files({TRACE: trace})
        else:
            click.echo(trace, nl=False)
        self._print_remarks(converted)

    def _print_remarks(self, converted: Converted) -> None:
        if converted.remarks:
            _print_note(f"without an equivalent ({len(converted.remarks)}):", map(str, converted.remarks))

    def _write_files(self, files: dict[str, str]) -> None:
        assert self._directory is not None
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            existing = [name for name in files if (self._directory / name).exists()]
            if existing and not self._replace:
                path = self._directory / existing[0]
                raise CommandError(
                    Exit.CONFLICT, f"{path} already exists: choose another directory, or add --force"
                )
            for name, text in files.items():
                (self._directory / name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CommandError(
                Exit.IO, f"cannot write to {self._directory}: {os.strerror(error.errno or 0)}"
            ) from None
        for name in files:
            click.echo(f"wrote {self._directory / name}")


def _print_note(title: str, lines: Iterable[str]) -> None:
    click.echo(title, err=True)
    for line in lines:
        click.echo(f"  {line}", err=True)
