import textwrap
from typing import Any

import pytest

from jobtree.api.schema.problems import InputError
from jobtree.importers.conversion import Converted
from jobtree.importers.slurm.prologue import job_number
from jobtree.importers.slurm.script.sbatch_options import OPTIONS
from jobtree.importers.slurm.script.unsupported_options import INSTEAD, SILENT
from jobtree.importers.slurm.script_importer import convert_slurm
from jobtree.importers.slurm.script_request import CallerOptions, read_environment
from jobtree.importers.slurm.site_mapping import read_map

MAP = """
image: img:1
owner: org:lab
gpuType: H100
jobs: {"7": seven}
"""


def convert(*scripts: tuple[str, str], mapping: str = MAP, **given: Any) -> Converted:  # noqa: ANN401  fields of CallerOptions
    files = [(name, f"#!/bin/bash\n#SBATCH {options}\ntrue\n".encode()) for name, options in scripts]
    return convert_slurm(files, CallerOptions(read_map("site.yaml", mapping.encode()), **given))


def one(options: str, mapping: str = MAP, **given: Any) -> dict[str, Any]:  # noqa: ANN401
    (run,) = convert(("job.sh", options), mapping=mapping, **given).documents
    spec: dict[str, Any] = run["spec"]
    return spec


def container(spec: dict[str, Any]) -> dict[str, Any]:
    (container,) = spec["template"]["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def variables(spec: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["value"] for entry in container(spec)["env"]}


def names(converted: Converted) -> list[str]:
    return [run["metadata"]["name"] for run in converted.documents]


def remarks(converted: Converted) -> str:
    return "\n".join(map(str, converted.remarks))


# The options of which something is made.
CONVERTED = {
    "account",
    "array",
    "chdir",
    "constraint",
    "container-image",
    "container-workdir",
    "cpus-per-gpu",
    "cpus-per-task",
    "dependency",
    "exclusive",
    "export",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "gres",
    "job-name",
    "mem",
    "mem-per-cpu",
    "mem-per-gpu",
    "no-requeue",
    "nodes",
    "ntasks",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "open-mode",
    "partition",
    "qos",
    "requeue",
    "signal",
    "switches",
    "time",
    "tmp",
}


# Arrays


def test_array_becomes_several_runs_with_their_numbers() -> None:
    converted = convert(("job.sh", "-J sweep --array=2,4,8 -G1 -t5"), namespace="lab")
    assert names(converted) == ["sweep-2", "sweep-4", "sweep-8"]
    found = variables(converted.documents[1]["spec"])
    assert found["SLURM_ARRAY_TASK_ID"] == "4"
    assert found["SLURM_ARRAY_JOB_ID"] == str(job_number("lab/sweep"))
    wanted = ("COUNT", "MIN", "MAX", "STEP")
    assert [found[f"SLURM_ARRAY_TASK_{name}"] for name in wanted] == ["3", "2", "8", "2"]


def test_limited_array_becomes_a_tree_with_a_quota() -> None:
    spec = one("--array=0-15%4 -N1 --gpus-per-node=8 -t5")
    assert spec["quota"] == {"maxGPUs": 32}
    assert [stage["name"] for stage in spec["stages"]] == [str(number) for number in range(16)]
    assert variables(spec["stages"][3])["SLURM_ARRAY_TASK_ID"] == "3"


def test_long_limited_array_becomes_a_tree_of_two_levels() -> None:
    spec = one("--array=1-100%10 -G1 -t5")
    assert [len(part["stages"]) for part in spec["stages"]] == [64, 36]


def test_tree_too_large_for_a_cluster_is_refused() -> None:
    with pytest.raises(InputError, match="a cluster stores at most 1000000; split it"):
        one("--array=1-1000%10 -G1 -t5")


def test_limit_of_the_whole_array_has_no_effect() -> None:
    assert len(convert(("job.sh", "--array=0-3%4 -G1")).documents) == 4


def test_limited_array_without_gpus_is_refused() -> None:
    with pytest.raises(InputError, match="an array without GPUs cannot be limited to 4 at a time"):
        one("--array=0-15%4")


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(InputError, match="another Run is named a-1: choose another --job-name"):
        convert(("x.sh", "-J a-1 -G1"), ("y.sh", "-J a --array=0-2 -G1"))


# Dependencies


def test_scripts_converted_together_follow_each_other_by_name() -> None:
    converted = convert(
        ("prep.sh", "-J prep -G1"),
        ("train.sh", "-J train -G8 -d afterok:prep"),
        ("eval.sh", "-J eval -G1 --dependency=afterok:prep:train --kill-on-invalid-dep=yes"),
    )
    follows = [run["spec"].get("follow") for run in converted.documents]
    assert follows == [
        None,
        {"after": ["prep"]},
        {"after": ["prep", "train"], "onUpstreamFailure": "fail"},
    ]


def test_job_numbers_are_in_the_mapping() -> None:
    assert one("-G1 -d afterok:7")["follow"] == {"after": ["seven"]}


def test_dependency_on_an_array_is_on_all_elements_or_the_same_one() -> None:
    converted = convert(("a.sh", "-J a --array=1-2 -G1"), ("b.sh", "-J b --array=1-2 -G1 -d aftercorr:a"))
    assert [run["spec"]["follow"]["after"] for run in converted.documents[2:]] == [["a-1"], ["a-2"]]
    converted = convert(("a.sh", "-J a --array=1-2 -G1"), ("b.sh", "-J b -G1 -d afterok:a"))
    assert converted.documents[2]["spec"]["follow"]["after"] == ["a-1", "a-2"]


def test_singleton_follows_the_last_job_of_its_name() -> None:
    scripts = [(f"{number}.sh", "-J same -G1 -d singleton") for number in range(3)]
    converted = convert(*scripts)
    assert names(converted) == ["same", "same-2", "same-3"]
    assert [run["spec"].get("follow") for run in converted.documents] == [
        None,
        {"after": ["same"]},
        {"after": ["same-2"]},
    ]


@pytest.mark.parametrize(
    ("dependency", "said"),
    [
        ("afterok:99", "the Run of 99 is not known"),
        ("afterany:7", "a Run waits for success"),
        ("afternotok:7", "a Run cannot wait for a failure"),
        ("after:7+5", "not for its start"),
        ("afterok:7?afterok:99", "a Run waits for all Runs that it names"),
        ("whenever:7", "is unknown"),
    ],
)
def test_other_dependencies_get_a_remark(dependency: str, said: str) -> None:
    assert said in remarks(convert(("job.sh", f"-G1 -t5 -d {dependency}")))


# The mapping


def test_partitions_constraints_accounts_and_qos_are_mapped() -> None:
    mapping = textwrap.dedent("""
        image: img:1
        gpus: {h100: H100-80GB}
        partitions:
          big: {gpuType: A100, gpusPerNode: 8, defaultTime: 1-0, nodeSelector: {row: a}}
        constraints:
          ib: {nodeSelector: {net: ib}}
        accounts: {phys: "org:phys"}
        qos:
          low: {allowOpportunistic: true}
          lent: {allowBorrow: true, maxBorrowGPUs: 8, sponsors: ["org:rich"]}
          free: {owner: "org:free"}
        namespace: lab
        volumes: [{claim: data, mountPath: /data}]
    """)
    spec = one("-N2 --exclusive -p big -C ib -A phys -q low", mapping)
    assert spec["owner"] == "org:phys"
    assert spec["resources"] == {"gpuType": "A100", "totalGPUs": 16, "gpusPerPod": 8}
    assert spec["runtime"] == {"maxDuration": "1d"}
    assert spec["funding"] == {"allowOpportunistic": True}
    assert spec["template"]["spec"]["nodeSelector"] == {"net": "ib", "row": "a"}
    assert container(spec)["volumeMounts"] == [{"name": "volume-0", "mountPath": "/data"}]
    assert one("--gres=gpu:h100:8 -A phys -p big", mapping)["resources"]["gpuType"] == "H100-80GB"
    funding = {"allowBorrow": True, "maxBorrowGPUs": 8, "sponsors": ["org:rich"]}
    assert one("-G8 -A phys -p big -q lent", mapping)["funding"] == funding
    assert one("-G8 -A phys -p big -q free", mapping)["owner"] == "org:free"


@pytest.mark.parametrize(
    ("mapping", "message"),
    [
        ("acounts: {a: b}", "acounts: is not a known field; did you mean accounts?"),
        ("accounts: {a: 'Org Lab'}", "must be a team as a path of lower-case names"),
        (
            "partitions: {p: {defaultTime: soon}}",
            r"partitions\['p'\].defaultTime: \"soon\" is not allowed: must be M",
        ),
        ("partitions: {p: {gpusPerNode: 0}}", "must be at least 1"),
        ("volumes: [{claim: x, mountPath: data}]", "must be a path such as /home"),
        ("", "must have one mapping, but has 0 documents"),
        ("[1]", "must be a mapping"),
        ("a: [", "is not YAML"),
    ],
)
def test_wrong_mapping_is_refused_with_the_field(mapping: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_map("site.yaml", mapping.encode())


@pytest.mark.parametrize(
    ("options", "mapping", "message"),
    [
        ("-G1", "image: i\ngpuType: H", "has no owner: it has no --account"),
        ("-G1 -A x", "image: i\ngpuType: H", "the account x is not under accounts: in the mapping"),
        ("-G1", "owner: o\nimage: i", "has no GPU type"),
        ("-G1", "owner: o\ngpuType: H", "has no image"),
    ],
)
def test_missing_owner_gpu_type_or_image_is_refused(options: str, mapping: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        one(options, mapping)
    assert message in str(refused.value)


# What becomes of single options


def test_signal_requeue_and_open_mode_are_converted() -> None:
    spec = one("-G8 -t60 --signal=B:USR1@120 --requeue --open-mode=append")
    assert spec["runtime"] == {"checkpoint": "2m", "onNotice": "Checkpoint", "maxDuration": "1h"}
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 120
    assert variables(spec)["SLURM_JOBTREE_SIGNAL"] == "B:USR1"
    assert one("-G8 -t60 --no-requeue")["runtime"] == {"maxDuration": "1h", "requeue": False}
    assert one("-G8 -t60 --signal=10@60", checkpoint="20m")["runtime"]["checkpoint"] == "20m"
    assert "--checkpoint 30m" in remarks(convert(("job.sh", "-G8 --open-mode=append")))
    for bad in ("--signal=KILL@5", "--signal=X:USR1", "--signal=USR1@x", "--open-mode=x"):
        with pytest.raises(InputError, match=bad.split("=", maxsplit=1)[0]):
            one(f"-G8 {bad}")


def test_switches_become_groups() -> None:
    assert one("-N4 --gpus-per-node=8 --switches=1")["locality"] == {"groupGPUs": 32}
    assert one("-N4 --gpus-per-node=8 --switches=2@1:00")["locality"] == {"groupGPUs": 16}
    assert "locality" not in one("-N4 --gpus-per-node=8 --switches=3")
    assert "locality" not in one("-N2-4 --gpus-per-node=8 --switches=1")


def test_cpu_and_memory_are_converted_per_pod() -> None:
    resources = container(one("-N2 --ntasks-per-node=4 -c 6 --mem-per-cpu=2G --gpus-per-node=4"))["resources"]
    assert resources == {"requests": {"cpu": "24", "memory": "48Gi"}, "limits": {"memory": "48Gi"}}
    resources = container(one("-N2 --cpus-per-gpu=8 --mem-per-gpu=100G --gpus-per-node=4"))["resources"]
    assert resources["requests"] == {"cpu": "32", "memory": "400Gi"}
    assert container(one("-N1 -G1 --tmp=10G"))["resources"]["requests"] == {"ephemeral-storage": "10Gi"}
    assert "resources" not in container(one("-n16 --gpus-per-task=1 -c 4"))


def test_exported_variables_are_converted() -> None:
    options = "-G1 --export=ALL,A=1,B,C"
    converted = convert(("job.sh", options), environment={"B": "two $$"})
    found = variables(converted.documents[0]["spec"])
    assert (found["A"], found["B"]) == ("1", "two $$$$")
    assert "C" not in found
    assert "--export=C: its value is not known" in remarks(converted)
    with pytest.raises(InputError, match="is not the name of a variable"):
        one("-G1 --export=1x=2")


def test_environment_file_is_read() -> None:
    text = b"# overrides\nSBATCH_TIMELIMIT=5\nexport SBATCH_QOS='low'\n\nEMPTY=\n"
    expected = {"SBATCH_TIMELIMIT": "5", "SBATCH_QOS": "low", "EMPTY": ""}
    assert read_environment("env", text) == expected
    with pytest.raises(InputError, match="env, line 1: 'nonsense' must be NAME=VALUE"):
        read_environment("env", b"nonsense\n")


def test_every_option_is_converted_or_gets_a_remark() -> None:
    """An option that is not converted gets a remark."""
    assert set(OPTIONS) - set(INSTEAD) - SILENT == CONVERTED
    assert not set(INSTEAD) & CONVERTED
