"""``kubectl runs check``: whether the invariants hold."""

from typing import Any

import click

from jobtree.cli.errors import Exit
from jobtree.cli.settings import Settings, verb
from jobtree.cli.words import count, listing

EXAMPLES = """
kubectl runs --state cluster.yaml check
"""


@verb("check", examples=EXAMPLES)
def command(settings: Settings) -> int:
    """Check the invariants of a cluster: says OK, or lists all that are broken (exit code 1)."""
    from jobtree.cli.output import print_objects
    from jobtree.cli.session import read

    cluster = read(settings, checked=False)
    broken = [(violation.invariant, violation.message) for violation in cluster.violations()]
    if not settings.human:
        print_objects(settings, [_status(broken)], many=False)
    elif broken:
        for invariant, message in broken:
            click.echo(f"{invariant}: {message}")
    else:
        kinds = ("Run", "Lease", "Budget", "Node")
        found = [count(sum(1 for _ in cluster.objects.of(kind)), kind) for kind in kinds]
        click.echo(f"OK: all invariants hold ({listing(found)})")
    return Exit.NO if broken else Exit.OK


def _status(broken: list[tuple[str, str]]) -> dict[str, Any]:
    """The answer as the API server words its own."""
    if not broken:
        return {"apiVersion": "v1", "kind": "Status", "status": "Success"}
    return {
        "apiVersion": "v1",
        "kind": "Status",
        "status": "Failure",
        "reason": "Invalid",
        "message": f"{len(broken)} invariants are broken",
        "details": {"causes": [{"reason": name, "message": message} for name, message in broken]},
    }
