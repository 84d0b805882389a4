"""Finding the records that a command asks about in a cluster, and answering whether they prove themselves.

A state file is read as it stands: nothing is planned, nothing is written, no key is made.
"""

from pathlib import Path

import click

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.kinds.policy import is_sim_document
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.cli.shell.object_output import print_objects
from jobtree.cli.shell.options import CommandOptions
from jobtree.cli.source.session import choose, translated
from jobtree.cli.views.lottery.lottery_story import lottery_story
from jobtree.cli.views.lottery.record_proof import Proof, local_key, proof_lines, prove, status_of
from jobtree.cli.views.lottery.resolution_records import (
    ObjectBody,
    Resolution,
    has_record,
    record_by_record,
    resolutions,
)
from jobtree.core import RunKey
from jobtree.kube.http.api_resources import RESERVATIONS, RUNS


def verify_reservation(settings: CommandOptions, text: str) -> int:
    """Whether the record of one Reservation proves itself."""
    found = {public_key_of(body): body for body in bodies_of(settings) if body.get("kind") == "Reservation"}
    wanted = text.rpartition(".io/")[2] if ".io/" in text else text
    body = found[choose(wanted, list(found), settings, "Reservation")]
    if not has_record(body):
        state = (body.get("status") or {}).get("state", "Pending")
        raise CommandError(Exit.NOT_FOUND, f"reservation {text} has no record: it is {state}")
    return print_proofs(settings, [checked(part) for part in record_by_record(body)], [])


def verify_run(settings: CommandOptions, text: str) -> int:
    """Whether every record that a Run has a part in proves itself; with the stories that they tell."""
    bodies = bodies_of(settings)
    runs = {public_key_of(body): body for body in bodies if body.get("kind") == "Run"}
    body = runs[choose(text, list(runs), settings)]
    uid = str(body["metadata"].get("uid"))
    told = [one for one in resolutions(bodies) if uid in one.uids]
    unreadable = [one for one in bodies if has_record(one) and concerns(one, uid, told)]
    if not told and not unreadable:
        raise CommandError(Exit.NOT_FOUND, f"{text} has had no part in an activation or a lottery so far")
    stories = [line for one in told for line in lottery_story(one, uid)]
    return print_proofs(
        settings, [checked(one) for one in (*(one.body for one in told), *unreadable)], stories
    )


def concerns(body: ObjectBody, uid: str, told: list[Resolution]) -> bool:
    """Whether a record that cannot be read was that of this Run's own start."""
    known = any(body is one.body for one in told)
    return not known and (body.get("spec") or {}).get("runRef", {}).get("uid") == uid


def checked(body: ObjectBody) -> Proof:
    with translated(""):
        return prove(body, local_key())


def print_proofs(settings: CommandOptions, proofs: list[Proof], stories: list[str]) -> int:
    if not settings.human:
        print_objects(settings, [status_of(proofs)], many=False)
    else:
        for line in (*stories, *(line for proof in proofs for line in proof_lines(proof))):
            click.echo(line)
    return Exit.OK if all(proof.accepted for proof in proofs) else Exit.NO


def public_key_of(body: ObjectBody) -> RunKey:
    metadata = body.get("metadata") or {}
    return (str(metadata.get("namespace", "default")), str(metadata.get("name")))


def bodies_of(settings: CommandOptions) -> list[ObjectBody]:
    """All documents of the state file but its clock and policy; of a live cluster those that matter here."""
    if settings.live:
        from jobtree.cli.source.live_cluster import Live

        return Live(settings).listed(RUNS, RESERVATIONS)
    path = settings.state_path
    try:
        text = Path(path).read_bytes()
    except FileNotFoundError:
        raise CommandError(Exit.NOT_FOUND, f"there is no state file {path}") from None
    except OSError as broken:
        raise CommandError(Exit.IO, f"cannot read {path}: {broken.strerror}") from None
    return [one.body for one in read_documents(text, path) if not is_sim_document(one.body)]
