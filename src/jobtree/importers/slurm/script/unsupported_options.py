"""Options of sbatch that have no equivalent, and what happens instead."""

from typing import Final

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import Script

_PLACED = (
    "where a pod's processes sit inside a node is the kubelet's affair: see its CPU and topology managers"
)
_MAIL = "nobody is written to: 'kubectl runs watch' follows a Run, and its Events can be forwarded"
_NO_PRIORITY = "there are no priorities: the oldest Run that is funded goes first"
_BUFFER = "there are no burst buffers: mount a volume"

INSTEAD: Final = {
    "batch": _PLACED,
    "bb": _BUFFER,
    "bbf": _BUFFER,
    "begin": "a Run is planned from its creation on: submit it then, or give its envelope a start",
    "cluster-constraint": "one cluster is planned at a time: submit to the one that fits",
    "clusters": "one cluster is planned at a time: submit to the one that fits",
    "comment": "put it into metadata.annotations",
    "container": "the image is named by --image",
    "container-id": "the image is named by --image",
    "container-mounts": "mount volumes: name claims under volumes: in the mapping",
    "container-name": "each pod starts from its image anew",
    "contiguous": "an island (locality.groupGPUs) is what counts, not neighbouring names",
    "core-spec": _PLACED,
    "cores-per-socket": _PLACED,
    "cpu-freq": _PLACED,
    "deadline": "'kubectl runs plan' says when it will start; cancel it if that is too late",
    "delay-boot": "nodes are not booted for a Run",
    "distribution": "ranks are numbered node by node (block)",
    "error": "stderr is in the pod's log, with stdout: kubectl logs",
    "exclude": "Jobtree chooses the nodes: cordon a bad one, or select others by label (constraints:)",
    "export-file": "name the variables: --export=NAME=VALUE",
    "extra": "it was left out",
    "extra-node-info": _PLACED,
    "get-user-env": "the image's environment holds: name the variables with --export=NAME=VALUE",
    "gid": "set securityContext in the template",
    "gpu-bind": "a task sees its own GPUs with --gpus-per-task, else all of its pod",
    "gpu-freq": "set it on the node",
    "gpus-per-socket": _PLACED,
    "gres-flags": _PLACED,
    "hint": _PLACED,
    "hold": "a Run is planned at once: submit it when it may start",
    "input": "a pod has no stdin: mount a file and read that",
    "licenses": "only GPUs are counted",
    "mail-type": _MAIL,
    "mail-user": _MAIL,
    "mcs-label": "namespaces and RBAC keep teams apart",
    "mem-bind": _PLACED,
    "mincpus": _PLACED,
    "network": "set it in the template",
    "nice": _NO_PRIORITY,
    "no-kill": "a Run that loses a node goes on with a spare (spares: 1), else it starts again",
    "nodefile": "Jobtree chooses the nodes",
    "nodelist": "Jobtree chooses the nodes: select some by label (constraints: in the mapping)",
    "ntasks-per-core": _PLACED,
    "ntasks-per-socket": _PLACED,
    "output": "stdout is in the pod's log: kubectl logs; write to a volume what must be kept",
    "overcommit": _PLACED,
    "oversubscribe": "a GPU has one Run; idle ones are used by Runs with allowOpportunistic",
    "power": "it was left out",
    "prefer": "label and nodeSelector are all or nothing: use --constraint if it must hold",
    "priority": _NO_PRIORITY,
    "profile": "metrics of a pod come from the cluster's monitoring",
    "propagate": "limits are the container's: set resources in the template",
    "reboot": "nodes are not rebooted for a Run",
    "reservation": "ask for an envelope with start and end: GPUs kept for a time are a budget here",
    "sockets-per-node": _PLACED,
    "spread-job": "gangs are packed together: set gpusPerPod lower to spread one",
    "thread-spec": _PLACED,
    "threads-per-core": _PLACED,
    "time-min": "a Run has one limit: a shorter --time starts sooner in GPUs that are promised to others",
    "tres-bind": _PLACED,
    "tres-per-task": "say --gpus-per-task and --cpus-per-task",
    "uid": "set securityContext in the template",
    "use-min-nodes": "the widest that fits is tried first",
    "wait-all-nodes": "a gang starts together or not at all",
    "wckey": "put it into metadata.annotations",
    "wrap": "the command is the script",
}
SILENT: Final = frozenset(
    ("ignore-pbs", "parsable", "quiet", "verbose", "wait", "test-only", "stepmgr", "kill-on-invalid-dep",
     "container-mount-home", "no-container-mount-home", "container-writable")
)  # fmt: skip


def note_rest(script: Script, out: Converted) -> None:
    """A remark for every option that nothing else has read."""
    for name, setting in script.settings.items():
        if name in INSTEAD:
            out.remark(setting.where, str(setting), INSTEAD[name])
