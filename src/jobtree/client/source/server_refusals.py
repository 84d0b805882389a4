"""Translates errors of a live cluster to errors of the library, whose messages say what to do next."""

from collections.abc import Iterator
from contextlib import contextmanager

from jobtree.api.schema.object_meta import GROUP
from jobtree.api.schema.problems import JobtreeError
from jobtree.client.errors import (
    ConflictError,
    CredentialsError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    RefusalCause,
    RefusedError,
)
from jobtree.kube.http.api_errors import (
    FORBIDDEN,
    NOT_FOUND,
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
    "the server's certificate is not trusted: it has expired, or the kubeconfig's certificate-authority "
    "did not sign it"
)
UNREACHABLE = (
    "check that it is running and that --context is right: 'kubectl cluster-info' asks the same server"
)
INVALID_CREDENTIALS = (
    "the cluster rejected your credentials: your token or certificate may have expired; log in again, or "
    "choose another --context"
)
READER = "ask an administrator to bind you to the ClusterRole jobtree-planner, which lets you read and plan"
WRITER = "ask an administrator to bind you to the ClusterRole jobtree-researcher in your namespace"
NAMESPACE = "'kubectl get namespaces' lists the namespaces"
MANAGER_DOWN = (
    "Jobtree's webhook does not answer, so Runs and Budgets cannot be created now; running Runs continue. "
    "An administrator can check 'kubectl get pods -n jobtree-system'"
)
RUNS = "'kubectl runs state --all' lists all Runs of the cluster"


STARTUP_SECONDS = 30.0
"""For this time after its start a server may refuse requests that it allowed before."""


@contextmanager
def translated_errors() -> Iterator[None]:
    """Translates an error of the cluster, or its silence, to an error of the library."""
    try:
        yield
    except StatusError as refused:
        raise library_error(refused) from None
    except KubeError as error:
        hint = UNTRUSTED if "CERTIFICATE_VERIFY_FAILED" in str(error) else UNREACHABLE
        raise NoAnswerError(f"the cluster does not answer: {error}\n  {hint}") from None


def library_error(refused: StatusError) -> JobtreeError:
    message = sentence(refused)
    if refused.is_passing:
        return NoAnswerError(message)
    if refused.code == NOT_FOUND:
        return NotFoundError(message)
    if refused.is_conflict or refused.exists_already:
        return ConflictError(message)
    kind = {UNAUTHORIZED: CredentialsError, FORBIDDEN: ForbiddenError}.get(refused.code, RefusedError)
    causes = (RefusalCause(cause.field, cause.message) for cause in refused.causes)
    return kind(message, refused.code, refused.reason, causes)


def sentence(refused: StatusError) -> str:
    """Returns the server's message, all causes in the object that was sent, and what to do next."""
    if refused.code == NOT_FOUND and not refused.reason:  # without a Status the server does not know the path
        return NOT_INSTALLED
    causes = [f"  {cause.field}: {cause.message}" for cause in refused.causes if cause.field]
    return "\n".join([refused.message, *causes, *(f"  {hint}" for hint in hints(refused))])


def hints(refused: StatusError) -> Iterator[str]:
    message = refused.message
    if refused.code == UNAUTHORIZED:
        yield INVALID_CREDENTIALS
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
