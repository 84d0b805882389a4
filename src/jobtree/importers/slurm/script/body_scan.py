"""What the body of a batch script does that will be different in pods. Here-documents are only data."""

import re
from typing import Any, Final

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import Script
from jobtree.importers.slurm.script.shell_text import script_lines

_START: Final = r"(?:^|[;&|(]\s*|\bthen\s+|\bdo\s+|\btime\s+)"
_COMMANDS: Final = {
    "module load": (
        rf"{_START}(?:module\s+(?:load|add)|ml)\s",
        "there are no modules in a pod: the image has to bring them along",
    ),
    "mpirun": (
        rf"{_START}(?:mpirun|mpiexec)\b",
        "reaches other pods only if they run sshd: srun starts the tasks of every pod",
    ),
    "ssh": (rf"{_START}(?:ssh|pdsh)\s", "pods run no sshd: every pod runs the script, so do it there"),
    "sbatch": (
        rf"{_START}sbatch\s",
        "submits nothing here: stages of a tree, or follow, start what comes next",
    ),
    "sbcast": (rf"{_START}sbcast\s", "copy to a volume, or into the image"),
    "squeue": (
        rf"{_START}(?:squeue|scancel|sacct|sinfo)\b",
        "has no stand-in: kubectl runs state, cancel, leases",
    ),
    "srun --container-image": (
        r"srun\s[^#]*--container-image",
        "the pod is the container: name it with --image",
    ),
}
_LAUNCHERS: Final = re.compile(rf"{_START}(?:srun|mpirun|mpiexec)\b")


def note_body(script: Script, spec: dict[str, Any], out: Converted) -> None:
    """Remarks on the commands of the body, each where it first stands."""
    commands = [
        line
        for line in script_lines(script.body)
        if not line.quoted and not line.text.lstrip().startswith("#")
    ]
    for name, (pattern, instead) in _COMMANDS.items():
        first = next((line for line in commands if re.search(pattern, line.text)), None)
        if first:
            out.remark(f"{script.source}, line {first.number}", name, instead)
    resources = spec["resources"]
    pods = resources.get("pods") or resources["totalGPUs"] // resources.get(
        "gpusPerPod", resources["totalGPUs"]
    )
    launched = any(_LAUNCHERS.search(line.text) for line in commands)
    if pods > 1 and not launched:
        out.remark(
            script.source,
            f"{pods} nodes without srun",
            "Slurm runs the script on the first node, Jobtree in all pods: test NODE_RANK where that matters",
        )
