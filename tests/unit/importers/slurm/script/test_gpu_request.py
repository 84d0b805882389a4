import pytest

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.script.batch_script import read_scripts
from jobtree.importers.slurm.script.gpu_request import GpuRequest, gpu_request


def shape(options: str) -> GpuRequest:
    out = Converted()
    (script,) = read_scripts(f"#SBATCH {options}\n", "job.sh", {}, out)
    return gpu_request(script.settings, "job.sh", out)


@pytest.mark.parametrize(
    ("options", "gpus", "nodes", "per_node"),
    [
        ("--gres=gpu", 1, 1, 1),
        ("--gres=gpu:4", 4, 1, 4),
        ("--gres=gpu:a100:4", 4, 1, 4),
        ("--gres=gpu:a100", 1, 1, 1),
        ("--gres=gpu:a100:2,gpu:a100:2,nvme:1", 4, 1, 4),
        ("--gres=gpu:8(S:0-1) -N2", 16, 2, 8),
        ("--gres=none -N2", 0, 2, None),
        ("--gres=gpu:0 -N2", 0, 2, None),
        ("-G 16", 16, None, None),
        ("-G 16 -N2", 16, 2, 8),
        ("-N4 --gpus-per-node=8", 32, 4, 8),
        ("-N4 --gpus-per-node=h100:8 --gpus=32 --gres=gpu:h100:8", 32, 4, 8),
        ("-n 16 --gpus-per-task=1", 16, None, None),
        ("-n 16 --gpus-per-task=1 --ntasks-per-node=8", 16, 2, 8),
        ("-N2 --ntasks-per-node=4 --gpus-per-task=2", 16, 2, 8),
        ("-G 16 --gpus-per-node=8", 16, 2, 8),
        ("-N2 -n16 --gres=gpu:8", 16, 2, 8),
        ("-N 2-4 --gpus-per-node=8", 32, 4, 8),
        ("-n 8", 0, 1, None),
        ("", 0, 1, None),
    ],
)
def test_gpus_can_be_requested_in_many_ways(
    options: str, gpus: int, nodes: int | None, per_node: int | None
) -> None:
    request = shape(options)
    assert (request.gpus, request.nodes, request.per_node) == (gpus, nodes, per_node)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("-N2 --gpus-per-node=8 --gpus=32", "--gpus = 32, but 2 nodes × 8 GPUs a node = 16"),
        (
            "-N2 --gres=gpu:8 -n8 --gpus-per-task=1",
            "2 nodes × 8 GPUs a node = 16, but 8 tasks × 1 GPUs a task = 8",
        ),
        ("--gres=gpu:4 --gpus-per-node=8", "--gpus-per-node is 8 GPUs a node, but --gres is 4"),
        ("-N4 --gpus=6", "6 GPUs cannot be split evenly over 4 nodes"),
        ("--gpus=16 --gpus-per-node=6", "--gpus = 16, but 1 nodes × 6 GPUs a node = 6"),
        ("--gres=gpu:a100:1,gpu:h100:1", "the script asks for a100 and h100"),
        ("--gpus=a100:8 --gres=gpu:h100:8", "the script asks for a100 and h100"),
        ("--gres=gpu:a100:b:2", "must be gpu, gpu:COUNT"),
        ("--gpus=1000000 --gpus-per-task=x:0:0", "must be"),
        ("-N1000000 --gpus-per-node=1000000", "at most 1000000"),
    ],
)
def test_contradiction_is_refused_with_the_arithmetic(options: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        shape(options)


def test_number_of_tasks() -> None:
    assert shape("-G 8 --gpus-per-task=2").tasks == 4
    assert shape("-G 8 --ntasks-per-gpu=2").tasks == 16
    assert shape("-N2 --gpus-per-node=8 --ntasks-per-node=8").tasks is None
    assert shape("--gres=gpu:a100:1").type == "a100"
