"""Implements ``verify`` and ``explain --verify``: finds records in a cluster and checks their proofs.

A state file is only read: nothing is planned or written, and no key is created.
"""

from pathlib import Path

import click

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.policy import is_sim_document
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import choose
from jobtree.cli.views.lottery.lottery_story import lottery_story
from jobtree.cli.views.lottery.proof_lines import proof_lines, status_of
from jobtree.client.lottery.record_proof import Proof, local_key, prove
from jobtree.client.lottery.resolution_records import (
    ObjectBody,
    Resolution,
    has_record,
    record_by_record,
    resolutions,
)
from jobtree.core import RunKey
from jobtree.kube.http.api_resources import RESERVATIONS, RUNS


def verify_reservation(settings: CommandOptions, text: str) -> int:
    """Checks the record of one Reservation and returns the exit code."""
    reservations = {
        object_key(body): body for body in bodies_of(settings) if body.get("kind") == "Reservation"
    }
    wanted = text.rpartition(".io/")[2] if ".io/" in text else text
    body = reservations[choose(wanted, list(reservations), settings, "Reservation")]
    if not has_record(body):
        state = (body.get("status") or {}).get("state", "Pending")
        raise CommandError(Exit.NOT_FOUND, f"reservation {text} has no record: it is {state}")
    return print_proofs(settings, [check_proof(part) for part in record_by_record(body)], [])


def verify_run(settings: CommandOptions, text: str) -> int:
    """Checks all records that concern a Run and prints their lotteries; returns the exit code."""
    bodies = bodies_of(settings)
    runs = {object_key(body): body for body in bodies if body.get("kind") == "Run"}
    body = runs[choose(text, list(runs), settings)]
    uid = str(body["metadata"].get("uid"))
    readable = [resolution for resolution in resolutions(bodies) if uid in resolution.uids]
    unreadable = [body for body in bodies if has_record(body) and is_unreadable_start(body, uid, readable)]
    if not readable and not unreadable:
        raise CommandError(Exit.NOT_FOUND, f"{text} has not been part of an activation or a lottery so far")
    stories = [line for resolution in readable for line in lottery_story(resolution, uid)]
    records = [*(resolution.body for resolution in readable), *unreadable]
    return print_proofs(settings, [check_proof(record) for record in records], stories)


def is_unreadable_start(body: ObjectBody, uid: str, readable: list[Resolution]) -> bool:
    """Whether a record is that of the Run's own start and cannot be read."""
    is_readable = any(body is resolution.body for resolution in readable)
    return not is_readable and (body.get("spec") or {}).get("runRef", {}).get("uid") == uid


def check_proof(body: ObjectBody) -> Proof:
    return prove(body, local_key())


def print_proofs(settings: CommandOptions, proofs: list[Proof], stories: list[str]) -> int:
    if not settings.human:
        print_objects(settings, [status_of(proofs)], many=False)
    else:
        for line in (*stories, *(line for proof in proofs for line in proof_lines(proof))):
            click.echo(line)
    return Exit.OK if all(proof.accepted for proof in proofs) else Exit.NO


def object_key(body: ObjectBody) -> RunKey:
    metadata = body.get("metadata") or {}
    return (str(metadata.get("namespace", "default")), str(metadata.get("name")))


def bodies_of(settings: CommandOptions) -> list[ObjectBody]:
    """Returns all objects of the state file, or Runs and Reservations of a live cluster."""
    if settings.live:
        from jobtree.cli.source.session import live_cluster

        return live_cluster(settings).listed(RUNS, RESERVATIONS)
    path = settings.state_path
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, f"there is no state file {path}") from None
    except OSError as error:
        raise CommandError(Exit.IO, f"cannot read {path}: {error.strerror}") from None
    return [document.body for document in read_documents(text, path) if not is_sim_document(document.body)]
