"""What keeps a live cluster from doing what a command asks, as exit codes and what to do about it."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobtree.api.schema.object_meta import GROUP
from jobtree.cli.shell.command_errors import CommandError, Exit
from jobtree.kube.http.api_errors import (
    FORBIDDEN,
    NOT_FOUND,
    SERVER_ERROR,
    UNAUTHORIZED,
    KubeError,
    StatusError,
)

READING = ("cannot get ", "cannot list ", "cannot watch ")
NOT_INSTALLED = (
    "the server does not know Jobtree's kinds: Jobtree is not installed on this cluster.\n"
    "  An administrator installs it; or choose another cluster with --context"
)
UNTRUSTED = (
    "the server's certificate is not believed: it has expired, or is not of the kubeconfig's "
    "certificate-authority"
)
UNREACHABLE = "is it up, and is this the right --context? 'kubectl cluster-info' asks the same server"
STRANGER = (
    "the cluster does not know you: your token or certificate may have expired; log in again, or choose "
    "another --context"
)
READER = "ask an administrator to bind you to the ClusterRole jobtree-planner, which lets you read and plan"
WRITER = "ask an administrator to bind you to the ClusterRole jobtree-researcher in your namespace"
NAMESPACE = "'kubectl get namespaces' lists those there are"
MANAGER_DOWN = (
    "Jobtree does not answer the cluster, and new Runs and Budgets wait for it; what runs goes on. "
    "An administrator looks at 'kubectl get pods -n jobtree-system'"
)
RUNS = "'kubectl runs state --all' lists all Runs of the cluster"


YOUNG_SECONDS = 30.0
"""For so long a server that has just started may refuse what it allowed before."""


class NoAnswerError(CommandError):
    """The cluster may well answer later: it cannot be reached, or is unwell."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what the cluster says, or that it says nothing, into a message for the user."""
    try:
        yield
    except StatusError as refused:
        kind = NoAnswerError if refused.is_passing else CommandError
        raise kind(exit_code(refused), sentence(refused)) from None
    except KubeError as broken:
        hint = UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(broken) else UNREACHABLE
        raise NoAnswerError(Exit.IO, f"the cluster does not answer: {broken}\n  {hint}") from None


def exit_code(refused: StatusError) -> Exit:
    if refused.code == NOT_FOUND:
        return Exit.NOT_FOUND
    if refused.is_conflict or refused.exists_already:
        return Exit.CONFLICT
    return Exit.USAGE if refused.code < SERVER_ERROR else Exit.IO


def sentence(refused: StatusError) -> str:
    """The server's own words, all that is wrong with the object sent, and what to do next."""
    if refused.code == NOT_FOUND and not refused.reason:  # no Status: nobody there has heard of the path
        return NOT_INSTALLED
    causes = [f"  {cause.field}: {cause.message}" for cause in refused.causes if cause.field]
    return "\n".join([refused.message, *causes, *(f"  {hint}" for hint in hints(refused))])


def hints(refused: StatusError) -> Iterator[str]:
    message = refused.message
    if refused.code == UNAUTHORIZED:
        yield STRANGER
    elif "failed calling webhook" in message and GROUP in message:
        yield MANAGER_DOWN
    elif refused.code == FORBIDDEN and " cannot " in message:
        reads = any(word in message for word in READING) and "pods/log" not in message
        yield READER if reads else WRITER
    elif refused.code == NOT_FOUND and message.startswith("namespaces "):
        yield NAMESPACE
    elif refused.code == NOT_FOUND and message.startswith("runs."):
        yield RUNS
    elif refused.exists_already:
        yield "choose another name, or add --replace"
