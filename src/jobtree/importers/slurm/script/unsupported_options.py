"""The options of sbatch that have no equivalent, and what happens instead."""

from typing import Final

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import Script

_PLACED = "the kubelet places processes inside a node: see its CPU and topology managers"
_MAIL = "Jobtree sends no mail: 'kubectl runs watch' shows a Run, and its Events can be forwarded"
_NO_PRIORITY = "Jobtree has no priorities: the oldest funded Run starts first"
_BUFFER = "Jobtree has no burst buffers: mount a volume"

INSTEAD: Final = {
    "batch": _PLACED,
    "bb": _BUFFER,
    "bbf": _BUFFER,
    "begin": "a Run is planned from its creation: submit it then, or give its envelope a start",
    "cluster-constraint": "Jobtree plans one cluster: submit to the right one",
    "clusters": "Jobtree plans one cluster: submit to the right one",
    "comment": "use metadata.annotations",
    "container": "give the image with --image",
    "container-id": "give the image with --image",
    "container-mounts": "add the claims under volumes: in the mapping",
    "container-name": "each pod starts from its image again",
    "contiguous": "nodes of one domain count as close (locality.groupGPUs), not neighbouring names",
    "core-spec": _PLACED,
    "cores-per-socket": _PLACED,
    "cpu-freq": _PLACED,
    "deadline": "'kubectl runs plan' shows when it will start: cancel it if that is too late",
    "delay-boot": "Jobtree boots no nodes",
    "distribution": "ranks are numbered node by node (block)",
    "error": "stderr is in the log of the pod, with stdout: use kubectl logs",
    "exclude": "Jobtree chooses the nodes: cordon a bad node, or select others by label (constraints:)",
    "export-file": "name the variables: --export=NAME=VALUE",
    "extra": "Jobtree ignores it",
    "extra-node-info": _PLACED,
    "get-user-env": "pods have the environment of the image: name the variables with --export=NAME=VALUE",
    "gid": "set securityContext in the template",
    "gpu-bind": "with --gpus-per-task a task sees its own GPUs, otherwise all GPUs of its pod",
    "gpu-freq": "set it on the node",
    "gpus-per-socket": _PLACED,
    "gres-flags": _PLACED,
    "hint": _PLACED,
    "hold": "a Run is planned at once: submit it when it may start",
    "input": "a pod has no stdin: mount the file and read it",
    "licenses": "Jobtree counts only GPUs",
    "mail-type": _MAIL,
    "mail-user": _MAIL,
    "mcs-label": "use namespaces and RBAC to separate teams",
    "mem-bind": _PLACED,
    "mincpus": _PLACED,
    "network": "set it in the template",
    "nice": _NO_PRIORITY,
    "no-kill": "a Run that loses a node continues on a spare (spares: 1), otherwise it starts again",
    "nodefile": "Jobtree chooses the nodes",
    "nodelist": "Jobtree chooses the nodes: select them by label (constraints: in the mapping)",
    "ntasks-per-core": _PLACED,
    "ntasks-per-socket": _PLACED,
    "output": "stdout is in the log of the pod: use kubectl logs, or write to a volume",
    "overcommit": _PLACED,
    "oversubscribe": "a GPU belongs to one Run; Runs with allowOpportunistic use idle GPUs",
    "power": "Jobtree ignores it",
    "prefer": "Jobtree has no preferences for nodes: use --constraint if it must hold",
    "priority": _NO_PRIORITY,
    "profile": "use the monitoring of the cluster",
    "propagate": "set resources in the template",
    "reboot": "Jobtree reboots no nodes",
    "reservation": "ask for an envelope with start and end, which reserves GPUs for a time",
    "sockets-per-node": _PLACED,
    "spread-job": "Jobtree packs the pods of a gang together: lower gpusPerPod to spread them",
    "thread-spec": _PLACED,
    "threads-per-core": _PLACED,
    "time-min": "a Run has one time limit: a shorter --time can start sooner on promised GPUs",
    "tres-bind": _PLACED,
    "tres-per-task": "use --gpus-per-task and --cpus-per-task",
    "uid": "set securityContext in the template",
    "use-min-nodes": "Jobtree tries the largest width first",
    "wait-all-nodes": "all pods of a gang start together",
    "wckey": "use metadata.annotations",
    "wrap": "the command in --wrap is not imported: write it to a script",
}
SILENT: Final = frozenset(
    ("ignore-pbs", "parsable", "quiet", "verbose", "wait", "test-only", "stepmgr", "kill-on-invalid-dep",
     "container-mount-home", "no-container-mount-home", "container-writable")
)  # fmt: skip


def note_rest(script: Script, out: Converted) -> None:
    """Adds a remark for each option that has no equivalent."""
    for name, setting in script.settings.items():
        if name in INSTEAD:
            out.remark(setting.where, str(setting), INSTEAD[name])
