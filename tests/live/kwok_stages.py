"""What kwok does with the nodes and pods of a fake fleet, in kwok's own language of stages.

A stage says: when an object looks like this, after this long, change it like that. Ours are few:

- a node that was created without a Ready condition becomes ready, once; kwok never touches it again, so a
  test may declare it broken and it stays so;
- a pod bound to a node runs at once, with its init containers done;
- a running pod succeeds or fails when it has run for as long as an annotation says, and not without one;
- a pod that is being deleted is gone at once.
"""

import json
from typing import Any

RUNS_FOR = "kwok.jobtree.test/runs-for"
"""Annotation of a pod: it succeeds after running for this long, such as ``200ms``."""
FAILS_AFTER = "kwok.jobtree.test/fails-after"
"""Annotation of a pod: it fails, with exit code 1, after running for this long."""

_EXISTS = "Exists"
_ABSENT = "DoesNotExist"
_READY = '.status.conditions.[] | select( .type == "Ready" )'

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
    """The file that ``kwok --config`` reads: JSON documents, which are YAML."""
    succeeds = {"phase": "Succeeded", "code": 0, "reason": "Completed"}
    fails = {"phase": "Failed", "code": 1, "reason": "Error"}
    stages = [
        _stage("node-ready", "Node", {_READY: _ABSENT}, _NODE_READY),
        _stage(
            "pod-runs", "Pod", {".metadata.deletionTimestamp": _ABSENT, ".status.podIP": _ABSENT}, _POD_RUNS
        ),
        _stage("pod-succeeds", "Pod", *_ending(RUNS_FOR, succeeds)),
        _stage("pod-fails", "Pod", *_ending(FAILS_AFTER, fails)),
        _stage("pod-goes", "Pod", {".metadata.deletionTimestamp": _EXISTS}),
    ]
    return "\n---\n".join(json.dumps(stage) for stage in stages)


def _ending(annotation: str, outcome: dict[str, Any]) -> tuple[dict[str, str | list[str]], str, str]:
    duration = f'.metadata.annotations["{annotation}"]'
    selector: dict[str, str | list[str]] = {
        ".metadata.deletionTimestamp": _ABSENT,
        ".status.phase": ["Running"],
        duration: _EXISTS,
    }
    return selector, _POD_ENDS % outcome, duration


def _stage(
    name: str,
    kind: str,
    selector: dict[str, str] | dict[str, str | list[str]],
    status: str | None = None,
    delay: str | None = None,
) -> dict[str, Any]:
    """One stage: without a ``status`` to change to, the object is deleted."""
    expressions = [
        {"key": key, "operator": "In", "values": wanted}
        if isinstance(wanted, list)
        else {"key": key, "operator": wanted}
        for key, wanted in selector.items()
    ]
    spec: dict[str, Any] = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": expressions},
        "next": {"statusTemplate": status} if status else {"delete": True, "finalizers": {"empty": True}},
    }
    if delay:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": delay}}
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": name},
        "spec": spec,
    }
