"""Formats the proof of a lottery, as lines and as a Status object."""

from collections.abc import Iterator
from typing import Any

from jobtree.cli.shell.object_output import api_status
from jobtree.client.lottery.record_proof import Proof


def proof_lines(proof: Proof) -> Iterator[str]:
    """Yields ``accepted: default/j4-1 …``, or ``refused: …`` and every reason."""
    if proof.accepted:
        key = (
            "signed with the key of this machine"
            if proof.compared
            else "no key on this machine to compare with"
        )
        checked = f"commitment, seed, draws, decision, signature ({key}){proof.beacon}"
        yield f"accepted: {proof.reservation}: {checked}"
        return
    yield f"refused: {proof.reservation}"
    for reason in proof.wrong:
        yield f"  {reason}"


def status_of(proofs: list[Proof]) -> dict[str, Any]:
    """Returns the result as a Status object of the API."""
    causes = [
        {"reason": "Refused", "field": proof.reservation, "message": reason}
        for proof in proofs
        for reason in proof.wrong
    ]
    return api_status("the proof is refused", causes)
