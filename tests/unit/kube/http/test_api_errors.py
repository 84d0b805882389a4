import json

import pytest

from jobtree.kube.http.api_errors import (
    Response,
    StatusCause,
    StatusError,
    UnreachableError,
    decode_response,
    status_error,
)
from tests.unit.kube.server import status


def read(document: object, code: int = 409, retry_after: str | None = None) -> StatusError:
    return status_error(code, json.dumps(document).encode(), retry_after)


def test_status_is_read_with_causes_and_retry_after() -> None:
    causes = [{"reason": "FieldValueInvalid", "message": "too many", "field": "spec.pods"}]
    error = read(status(422, "Invalid", "spec.pods: too many", causes=causes, retryAfterSeconds=3), 422)
    assert (error.code, error.reason, str(error)) == (422, "Invalid", "spec.pods: too many")
    assert error.causes == (StatusCause("FieldValueInvalid", "too many", "spec.pods"),)
    assert error.retry_after_seconds == 3


def test_retry_after_header_is_read_when_it_is_a_number() -> None:
    assert read(status(429, "TooManyRequests"), 429, "7").retry_after_seconds == 7
    assert read(status(429, "TooManyRequests"), 429, "tomorrow").retry_after_seconds is None


@pytest.mark.parametrize("body", [b"404 page not found\n", b"", b"<html>", b"[1]"])
def test_body_that_is_no_status_becomes_the_message(body: bytes) -> None:
    error = status_error(404, body)
    assert error.code == 404
    assert str(error) == (body.decode().strip() or "the server answered 404 and gave no reason")


@pytest.mark.parametrize(
    ("document", "conflict"),
    [
        (status(409, "Conflict"), True),
        (status(409, "AlreadyExists"), False),
        (status(422, "Invalid", causes=[{"field": "metadata.uid"}]), True),
        (status(422, "Invalid", causes=[{"field": "spec.owner"}]), False),
        (status(422, "Invalid"), True),
        (status(404, "NotFound"), False),
    ],
)
def test_is_conflict_depends_on_reason_and_cause(document: dict[str, object], conflict: bool) -> None:
    assert read(document).is_conflict is conflict


@pytest.mark.parametrize(
    ("code", "passing"), [(429, True), (500, True), (503, True), (409, False), (404, False)]
)
def test_is_passing_is_true_for_a_busy_or_failing_server(code: int, passing: bool) -> None:
    assert read(status(code, ""), code).is_passing is passing


def test_is_gone_by_code_or_by_reason() -> None:
    assert read(status(410, "Expired"), 200).is_gone
    assert read(status(410, "Gone"), 410).is_gone
    assert not read(status(404, "NotFound"), 404).is_gone


def test_accepted_returns_the_body_or_raises_the_refusal() -> None:
    assert Response(201, b"{}").accepted() == b"{}"
    with pytest.raises(StatusError, match="no"):
        Response(403, json.dumps(status(403, "Forbidden")).encode()).accepted()


def test_response_of_another_server_is_unreachable() -> None:
    assert decode_response(b'{"a": 1}', dict[str, int]) == {"a": 1}
    with pytest.raises(UnreachableError, match="not from a Kubernetes API server"):
        decode_response(b"<html>Please log in</html>", dict[str, int])


@pytest.mark.parametrize(
    ("code", "message", "lacks"),
    [
        (403, 'pods is forbidden: User "x" cannot create resource "pods" in API group ""', True),
        (403, 'pods "r-0" is forbidden: violates PodSecurity "baseline:latest": host namespaces', False),
        (403, 'pods "r-0" is forbidden: exceeded quota: gpus, requested: 8, used: 8, limited: 8', False),
        (404, 'User "x" cannot create resource "pods"', False),
    ],
)
def test_lacks_right_is_true_for_rbac_but_not_for_admission(code: int, message: str, lacks: bool) -> None:
    assert StatusError(code, "Forbidden", message).lacks_right is lacks
