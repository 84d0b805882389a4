"""The prologue runs in bash, with converted scripts and the environment of a rank."""

import signal
import subprocess
from pathlib import Path

import pytest

from jobtree.importers.slurm.prologue import PROLOGUE, job_number
from tests.unit.importers.local_pod import LIMIT_SECONDS, pod, pods, process

HEAD = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8 --ntasks-per-node=8\n"
ONE_TASK = "#!/bin/bash\n#SBATCH --nodes=2 --gpus-per-node=8\n"
SINGLE = "#!/bin/bash\n#SBATCH --nodes=1 --gpus=8\n"


def wait_for(path: Path, running: "subprocess.Popen[str]") -> None:
    """Waits until the file exists; the process must not end before."""
    for _ in range(LIMIT_SECONDS * 100):
        if path.exists():
            return
        assert running.poll() is None, running.communicate()
        try:
            running.wait(0.01)
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError(f"{path} did not come")


def test_srun_starts_the_tasks_of_all_pods_with_their_numbers() -> None:
    script = HEAD + "srun bash -c 'echo $SLURM_PROCID/$SLURM_NTASKS $SLURM_NODEID.$SLURM_LOCALID'\n"
    expected = [f"{8 * node + local}/16 {node}.{local}" for node in range(2) for local in range(8)]
    assert pods(script, 2) == sorted(expected)


def test_srun_python_sees_what_a_training_script_reads(tmp_path: Path) -> None:
    train = tmp_path / "train.py"
    train.write_text(
        "import os\n"
        "names = 'PROCID LOCALID NTASKS NNODES JOB_ID JOB_NAME'\n"
        "print(*(os.environ['SLURM_' + name] for name in names.split()), os.environ['MASTER_ADDR'])\n"
    )
    code, out, _ = pod(ONE_TASK + f"srun python3 {train}\n", rank=1, nodes=2)
    number = job_number("lab/train")
    assert (code, out) == (0, [f"1 0 2 2 {number} train.sh train-0.train.lab.svc.cluster.local"])


def test_srun_takes_its_own_number_of_tasks() -> None:
    script = ONE_TASK + "srun --ntasks-per-node=8 --cpu-bind=none bash -c 'echo $SLURM_PROCID'\n"
    assert pods(script, 2) == sorted(str(rank) for rank in range(16))


def test_uneven_tasks_are_distributed_in_blocks() -> None:
    script = SINGLE.replace("--nodes=1", "--nodes=2 --ntasks=3") + (
        "srun bash -c 'echo $SLURM_NODEID:$SLURM_PROCID'; echo per node $SLURM_TASKS_PER_NODE\n"
    )
    expected = ["0:0", "0:1", "1:2", "per node 2(x1),1(x1)", "per node 2(x1),1(x1)"]
    assert pods(script, 2, gpus=4) == expected


def test_scontrol_expands_the_list_of_nodes() -> None:
    script = HEAD + 'scontrol show hostnames "$SLURM_JOB_NODELIST"; echo "me $SLURMD_NODENAME"\n'
    code, out, _ = pod(script, rank=1, nodes=2)
    hosts = [f"train-{rank}.train.lab.svc.cluster.local" for rank in range(2)]
    assert (code, out) == (0, [f"me {hosts[1]}", *hosts])


def test_scontrol_expands_the_short_form() -> None:
    _, out, _ = pod(SINGLE + "scontrol show hostnames 'gpu[08-10,12],login'\n")
    assert out == ["gpu08", "gpu09", "gpu10", "gpu12", "login"]


def test_usual_lines_for_the_master_address_work() -> None:
    script = HEAD + (
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)\n'
        "export MASTER_PORT=$(expr 10000 + $(echo -n $SLURM_JOBID | tail -c 4))\n"
        "export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE))\n"
        "echo $MASTER_ADDR $MASTER_PORT $WORLD_SIZE\n"
    )
    first, second = (pod(script, rank, 2)[1] for rank in range(2))
    port = 10000 + int(str(job_number("lab/train"))[-4:])
    assert first == second == [f"train-0.train.lab.svc.cluster.local {port} 16"]


def test_other_programs_find_srun_and_scontrol() -> None:
    script = (
        "#!/usr/bin/env python3\n#SBATCH --gpus=8 --nodes=2\nimport subprocess\n"
        "print(subprocess.getoutput('scontrol show hostname $SLURM_NODELIST | head -n1'))\n"
        "print(subprocess.check_output(['srun', '-n1', 'echo', 'one'], text=True), end='')\n"
    )
    code, out, err = pod(script, 0, 2, 4)
    assert (code, out) == (0, ["one", "train-0.train.lab.svc.cluster.local"]), err


def test_step_may_use_a_part_of_the_nodes() -> None:
    script = ONE_TASK + (
        "srun --nodes=1 --ntasks=1 -w $(scontrol show hostnames | head -n1) echo head &\n"
        "srun -N1 -n 1 -r 1 echo tail &\nwait\nsrun -n1 echo once\n"
    )
    assert pods(script, 2) == ["head", "once", "tail"]


def test_parallel_steps_have_their_own_gpus(tmp_path: Path) -> None:
    script = SINGLE.replace("--gpus=8", "--ntasks=4 --gpus-per-task=2") + (
        "for part in 0 1 2 3; do\n"
        "  srun --ntasks=1 --exact bash -c 'echo $CUDA_VISIBLE_DEVICES; touch $HERE/$$; "
        "for i in {1..900}; do (($(ls $HERE | wc -l) < 4)) || break; sleep 0.05; done' &\ndone\nwait\n"
    )
    assert pod(script, HERE=str(tmp_path))[1] == ["0,1", "2,3", "4,5", "6,7"]


def test_tasks_of_a_step_have_their_own_gpus() -> None:
    script = SINGLE.replace("--gpus=8", "--ntasks=4 --gpus-per-task=2") + (
        "srun bash -c 'echo $SLURM_LOCALID: $CUDA_VISIBLE_DEVICES'\n"
        "srun -n1 bash -c 'echo then $CUDA_VISIBLE_DEVICES'\n"
    )
    assert pod(script)[1] == ["0: 0,1", "1: 2,3", "2: 4,5", "3: 6,7", "then 0,1"]


def test_step_that_asks_for_too_many_gpus_fails_with_a_message() -> None:
    code, _, err = pod(SINGLE + "srun -n 2 --gpus-per-task=8 true\n")
    assert code == 1
    assert "16 GPUs are asked for, but the pod has 8" in err


@pytest.mark.parametrize("options", ["", "set -euo pipefail\n"])
def test_failing_task_fails_the_script(options: str) -> None:
    code, out, _ = pod(
        HEAD + options + "srun bash -c 'exit $((SLURM_PROCID == 3 ? 7 : 0))' || exit $?\necho on\n", 0, 2
    )
    assert (code, out) == (7, [])


def test_script_with_strict_shell_options_runs() -> None:
    script = (
        HEAD
        + "set -euo pipefail\nmodule purge\nml cuda/12\nsrun true\necho ok $(echo $SLURM_JOB_NUM_NODES)\n"
    )
    code, out, err = pod(script, 0, 2)
    assert (code, out) == (0, ["ok 2"])
    assert "module cuda/12: the image has to bring this along" in err


def test_here_documents_and_process_numbers_are_not_changed() -> None:
    script = (
        SINGLE + 'cat <<EOF | srun -n1 cat\n$$ $(echo nested $$) $(NODE_RANK) "quoted"\nEOF\necho "$$" >&2\n'
    )
    _, (line,), err = pod(script)
    number = err.splitlines()[-1]
    assert number.isdecimal()
    assert line == f'{number} nested {number}  "quoted"'


def test_job_that_requeues_itself_starts_again() -> None:
    code, _, err = pod(SINGLE + "scontrol requeue $SLURM_JOB_ID\nexit 0\n")
    assert code == 75
    assert "starts the Run again" in err
    assert pod(SINGLE + "echo $SLURM_RESTART_COUNT\n", JOBTREE_ATTEMPT="3")[1] == ["2"]


@pytest.mark.parametrize(
    ("directive", "body", "expected"),
    [
        (
            "--signal=B:USR1@30",
            "trap 'echo shell got it; exit' USR1\ntouch {ready}-0\nfor i in {{1..900}}; do sleep 0.05; done",
            ["shell got it"],
        ),
        (
            "--signal=USR2@30",
            (
                'srun -n2 bash -c \'trap "echo task got it; exit 0" USR2; touch {ready}-$SLURM_LOCALID; '
                "for i in {{1..900}}; do sleep 0.05; done'\necho shell went on"
            ),
            ["shell went on", "task got it", "task got it"],
        ),
        (
            "--requeue",
            "trap 'echo terminated; exit 0' TERM\ntouch {ready}-0\nfor i in {{1..900}}; do sleep 0.05; done",
            ["terminated"],
        ),
    ],
)
def test_script_gets_the_requested_signal_at_the_end_of_the_pod(
    directive: str, body: str, expected: list[str], tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --gpus=8 {directive}\n{body.format(ready=ready)}\n"
    running = process(script)
    for task in range(1 + ("srun" in body)):
        wait_for(tmp_path / f"ready-{task}", running)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=LIMIT_SECONDS)
    assert sorted(out.splitlines()) == expected, err


def test_prologue_leaves_no_files(tmp_path: Path) -> None:
    pod(HEAD + "srun true\n", 0, 2, TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_prologue_is_valid_bash() -> None:
    subprocess.run(["/bin/bash", "-n", "-c", PROLOGUE], check=True, capture_output=True)
