"""The stages of kwok: how it changes the nodes and pods of a fake fleet.

A stage says how an object changes, and how long after it matches a condition:

- A node without a Ready condition becomes ready. kwok does not change it again, so a test can make it
  NotReady.
- A pod that is bound to a node runs at once, with its init containers completed.
- A running pod succeeds or fails after the time in its annotation; without an annotation it keeps running.
- A pod that is being deleted is removed at once.
"""

import json
from typing import Any

RUNS_FOR = "kwok.jobtree.test/runs-for"
"""Annotation of a pod that succeeds after running for this time, such as ``200ms``."""
FAILS_AFTER = "kwok.jobtree.test/fails-after"
"""Annotation of a pod that fails, with exit code 1, after running for this time."""

POD_WORKERS = 32
"""How many pods kwok updates at once. Real kubelets do not wait for each other either."""

_NO_READINESS = {"key": '.status.conditions.[] | select( .type == "Ready" )', "operator": "DoesNotExist"}
_NOT_DELETED = "!has(self.metadata.deletionTimestamp)"

_NODE_READY = """
conditions:
- {type: Ready, status: "True", reason: KwokReady, message: a fake node,
   lastHeartbeatTime: {{ Now | Quote }}, lastTransitionTime: {{ Now | Quote }}}
"""

_POD_RUNS = """
{{ $now := Now }}
phase: Running
startTime: {{ $now | Quote }}
hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
podIP: {{ PodIPWith .spec.nodeName ( or .spec.hostNetwork false ) ( or .metadata.uid "" )
          ( or .metadata.name "" ) ( or .metadata.namespace "" ) | Quote }}
conditions:
{{ range (list "Initialized" "ContainersReady" "Ready") }}
- {type: {{ . }}, status: "True", lastTransitionTime: {{ $now | Quote }}}
{{ end }}
initContainerStatuses:
{{ range .spec.initContainers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  restartCount: 0
  state:
    {{ if eq .restartPolicy "Always" }}
    running: {startedAt: {{ $now | Quote }}}
    {{ else }}
    terminated: {exitCode: 0, reason: Completed,
                 startedAt: {{ $now | Quote }}, finishedAt: {{ $now | Quote }}}
    {{ end }}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: true
  started: true
  restartCount: 0
  state: {running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""

_POD_ENDS = """
{{ $now := Now }}
{{ $begun := .status.startTime }}
phase: %(phase)s
conditions:
{{ range (list "ContainersReady" "Ready") }}
- {type: {{ . }}, status: "False", reason: PodCompleted, lastTransitionTime: {{ $now | Quote }}}
{{ end }}
containerStatuses:
{{ range .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ .image | Quote }}
  ready: false
  started: false
  restartCount: 0
  state:
    terminated: {exitCode: %(code)d, reason: %(reason)s,
                 startedAt: {{ $begun | Quote }}, finishedAt: {{ $now | Quote }}}
{{ end }}
"""


def kwok_configuration() -> str:
    """Returns the file for ``kwok --config``, as JSON documents."""
    succeeds = {"phase": "Succeeded", "code": 0, "reason": "Completed"}
    fails = {"phase": "Failed", "code": 1, "reason": "Error"}
    options = {"podPlayStageParallelism": POD_WORKERS}
    documents = [
        {"apiVersion": "config.kwok.x-k8s.io/v1alpha1", "kind": "KwokConfiguration", "options": options},
        _stage("node-ready", "Node", _NO_READINESS, _NODE_READY),
        _stage("pod-runs", "Pod", _cel(f'self.status.podIP == "" && {_NOT_DELETED}'), _POD_RUNS),
        _ending("pod-succeeds", RUNS_FOR, succeeds),
        _ending("pod-fails", FAILS_AFTER, fails),
        _stage("pod-deleted", "Pod", _cel("has(self.metadata.deletionTimestamp)")),
    ]
    return "\n---\n".join(json.dumps(document) for document in documents)


def _ending(name: str, annotation: str, outcome: dict[str, Any]) -> dict[str, Any]:
    is_due = (
        f'self.status.phase == "Running" && "{annotation}" in self.metadata.annotations && {_NOT_DELETED}'
    )
    after = _cel(f'self.metadata.annotations["{annotation}"]')
    return _stage(name, "Pod", _cel(is_due), _POD_ENDS % outcome, after)


def _cel(expression: str) -> dict[str, Any]:
    """Returns a CEL condition. It costs kwok far less than jq, for which kwok encodes the whole object."""
    return {"cel": {"expression": expression}}


def _stage(
    name: str,
    kind: str,
    condition: dict[str, Any],
    status: str | None = None,
    delay: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Returns a stage that changes the status or, without ``status``, deletes the object."""
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": [condition]},
        "next": {"statusTemplate": status} if status else {"delete": True, "finalizers": {"empty": True}},
    }
    if delay:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": delay}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": spec,
    }
