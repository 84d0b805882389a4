"""Finds commands in a batch script that behave differently in pods. Here-documents are skipped."""

import re
from typing import Any, Final

from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import Script
from jobtree.importers.slurm.script.shell_text import script_lines

_START: Final = r"(?:^|[;&|(]\s*|\bthen\s+|\bdo\s+|\btime\s+)"
_COMMANDS: Final = {
    "module load": (
        rf"{_START}(?:module\s+(?:load|add)|ml)\s",
        "a pod has no modules: install the software in the image",
    ),
    "mpirun": (
        rf"{_START}(?:mpirun|mpiexec)\b",
        "needs sshd in all pods: use srun, which starts the tasks of each pod",
    ),
    "ssh": (
        rf"{_START}(?:ssh|pdsh)\s",
        "pods run no sshd: each pod runs the script, so run the command there",
    ),
    "sbatch": (
        rf"{_START}sbatch\s",
        "submits nothing in a pod: use stages or follow for the next job",
    ),
    "sbcast": (rf"{_START}sbcast\s", "is not there: copy the file to a volume or into the image"),
    "squeue": (
        rf"{_START}(?:squeue|scancel|sacct|sinfo)\b",
        "is not there: use kubectl runs state, cancel or leases",
    ),
    "srun --container-image": (
        r"srun\s[^#]*--container-image",
        "the pod is the container: give the image with --image",
    ),
}
_LAUNCHERS: Final = re.compile(rf"{_START}(?:srun|mpirun|mpiexec)\b")


def note_body(script: Script, spec: dict[str, Any], out: Converted) -> None:
    """Adds a remark for each of these commands, at its first line."""
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
            "Slurm runs the script on the first node, Jobtree in all pods: test NODE_RANK if that matters",
        )
