"""``kubectl runs import`` prints or writes objects that ``submit`` accepts, and messages."""

import json
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.validation.object_parser import parse_object
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import budget, envelope, node
from tests.unit.importers.test_corpus import SCRIPTS, SITE

SCRIPT = "#!/bin/bash\n#SBATCH -J train -N2 --gpus-per-node=8 -t 60 --mail-type=END\nsrun python train.py\n"
SLURM = ("--image", "train:1", "--owner", "org:lab", "--gpu-type", "H100-80GB")
ASSOC = "Cluster|Account|User|GrpTRES|ParentName|\nc|root||||\nc|lab||gres/gpu=16|root|\n"
SACCT = (
    "JobID|Account|Submit|Elapsed|AllocTRES|State|\n"
    "7|lab|2026-01-05T09:00:00|01:00:00|gres/gpu=8|COMPLETED|\n"
)
KUEUE = """
kind: ResourceFlavor
metadata: {name: h100}
spec: {nodeLabels: {model: h100}}
---
kind: ClusterQueue
metadata: {name: lab}
spec:
  resourceGroups:
  - coveredResources: [nvidia.com/gpu]
    flavors: [{name: h100, resources: [{name: nvidia.com/gpu, nominalQuota: 16}]}]
---
kind: LocalQueue
metadata: {name: q, namespace: lab}
spec: {clusterQueue: lab}
---
kind: Job
metadata: {name: train, namespace: lab, labels: {kueue.x-k8s.io/queue-name: q}}
spec:
  parallelism: 2
  template: {spec: {containers: [{name: w, image: i, resources: {limits: {nvidia.com/gpu: 8}}}]}}
"""


def write(cli: CliRunner, name: str, text: str) -> str:
    path = cli.directory / name
    path.write_text(text)
    return str(path)


def test_script_becomes_a_run_that_submit_accepts(cli: CliRunner) -> None:
    cli.write_cluster(*(node(f"a{number}") for number in range(2)), budget("lab", envelope(16)))
    answer = cli.without_state("import", "slurm", write(cli, "train.sh", SCRIPT), *SLURM)
    assert answer.code == 0
    assert answer.err.splitlines()[0] == "without an equivalent (1):"
    assert "train.sh, line 2: --mail-type=END: Jobtree sends no mail" in answer.err
    submitted = cli.runs("submit", "-f", write(cli, "run.yaml", answer.out), "--dry-run")
    assert submitted.code == 0
    assert "default/train runs: 16 GPUs in nv-a (a0-a1), paid by lab/own (Owned 16)" in submitted.out


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in SCRIPTS])
def test_corpus_becomes_objects_that_submit_accepts(cli: CliRunner, path: Path) -> None:
    """Job trees and Runs that follow others are only validated."""
    answer = cli.without_state("import", "slurm", str(path), "--map", str(SITE), "-n", "lab")
    if answer.code:
        assert (answer.code, answer.out, answer.err[:7]) == (2, "", "error: ")
        return
    documents = [document.body for document in read_documents(answer.out, "stdout")]
    for body in documents:
        parse_object(body, "stdout")
    simple = [body for body in documents if not {"follow", "stages"} & set(body["spec"])]
    if simple:
        submitted = cli.runs("submit", "-f", cli.write_file("runs.yaml", *simple), "--dry-run")
        assert submitted.code == 0, submitted.err


def test_import_prints_objects_in_the_format_of_the_output_option(cli: CliRunner) -> None:
    path = write(cli, "train.sh", SCRIPT)
    items = json.loads(cli.without_state("import", "slurm", path, *SLURM, "-o", "json").out)["items"]
    assert [item["kind"] for item in items] == ["Run"]
    assert (
        cli.without_state("import", "slurm", path, *SLURM, "-o", "name").out
        == "run.rq.davidlangworthy.io/train\n"
    )
    (document,) = read_documents(
        cli.without_state("import", "slurm", path, *SLURM, "-n", "team").out, "stdout"
    )
    assert document.body["metadata"] == {"name": "train", "namespace": "team"}


def test_import_writes_files_and_overwrites_only_with_force(cli: CliRunner) -> None:
    path = write(cli, "kueue.yaml", KUEUE)
    answer = cli.without_state("import", "kueue", "-f", path, "--to", "out")
    names = ["budget-lab.yaml", "run-train.yaml", "label-nodes.sh"]
    assert answer.out.splitlines() == [f"wrote out/{name}" for name in names]
    assert (cli.directory / "out" / "label-nodes.sh").read_text().splitlines() == [
        "#!/bin/sh",
        "kubectl label nodes -l 'model=h100' gpu.flavor=h100",
    ]
    again = cli.without_state("import", "kueue", "-f", path, "--to", "out")
    assert (again.code, again.out) == (4, "")
    assert "out/budget-lab.yaml already exists" in again.err
    assert cli.without_state("import", "kueue", "-f", path, "--to", "out", "--force").code == 0
    assert cli.without_state("import", "kueue", "-f", path, "--to", "kueue.yaml").code == 74


def test_kueue_objects_are_converted_and_accepted_by_submit(cli: CliRunner) -> None:
    cli.write_cluster(*(node(f"a{number}", model="h100") for number in range(2)))
    answer = cli.without_state(
        "import", "kueue", "-f", write(cli, "k.yaml", KUEUE), "--flavor", "h100=H100-80GB"
    )
    assert answer.err == ("label the nodes:\n  kubectl label nodes -l 'model=h100' gpu.flavor=H100-80GB\n")
    submitted = cli.runs("submit", "-f", write(cli, "all.yaml", answer.out))
    assert "lab/train runs: 16 GPUs" in submitted.out


KUBECTL = """#!/bin/sh
case "$*" in
  "api-resources --verbs=list -o name") echo "nodes clusterqueues.kueue.x-k8s.io jobs.batch" ;;
  "get nodes -A -o json") echo '{"kind": "List", "items": []}' ;;
  "get clusterqueues.kueue.x-k8s.io -A -o json") cat queues.json ;;
  *) echo "the server is not available" >&2; exit 1 ;;
esac
"""


def test_import_reads_a_live_cluster_through_kubectl(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = cli.directory / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL.replace(" jobs.batch", ""))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:/usr/bin:/bin")
    documents = (document.body for document in read_documents(KUEUE, "k.yaml"))
    (queue,) = (body for body in documents if body["kind"] == "ClusterQueue")
    write(cli, "queues.json", json.dumps({"kind": "List", "items": [queue]}))
    answer = cli.without_state("import", "kueue", "-o", "name")
    assert (answer.code, answer.out) == (0, "budget.rq.davidlangworthy.io/lab\n"), answer.err
    kubectl.write_text(KUBECTL)
    answer = cli.without_state("import", "kueue")
    assert answer.code == 74
    assert "'kubectl get jobs.batch -A -o json' failed: the server is not available" in answer.err


def test_accounts_become_budgets_and_past_jobs_become_a_trace(cli: CliRunner) -> None:
    answer = cli.without_state(
        "import", "slurm", "--accounts", write(cli, "assoc", ASSOC), "--gpu-type", "H100-80GB"
    )
    assert cli.runs("submit", "-f", write(cli, "budgets.yaml", answer.out)).code in (0, 4)
    assert "owner: root:lab" in answer.out
    answer = cli.without_state(
        "import", "slurm", "--sacct", write(cli, "jobs", SACCT), "--gpu-type", "H100-80GB"
    )
    assert answer.out == (
        "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status\n7,lab,0,3600,8,H100-80GB,COMPLETED\n"
    )
    assert (
        cli.without_state("import", "slurm", "--sacct", "jobs", "--to", "out").out == "wrote out/trace.csv\n"
    )


def test_environment_overrides_directives_unless_a_file_is_given(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    path = write(cli, "train.sh", SCRIPT)
    assert 'maxDuration: "5m"' in cli.without_state("import", "slurm", path, *SLURM).out
    empty = write(cli, "env", "# nothing\n")
    assert 'maxDuration: "1h"' in cli.without_state("import", "slurm", path, *SLURM, "--env-file", empty).out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["slurm"], 2, "give exactly one of: batch scripts, --accounts FILE, --sacct FILE"),
        (["slurm", "none.sh", *SLURM], 3, "there is no file none.sh"),
        (["slurm", "empty", *SLURM], 2, "empty: is empty"),
        (["slurm", "binary", *SLURM], 2, "binary: is a binary file, not a batch script"),
        (["slurm", ".", *SLURM], 2, "cannot read ."),
        (["slurm", "train.sh"], 2, "has no GPU type"),
        (["slurm", "train.sh", *SLURM, "--owner", "Not A Team"], 2, 'owner: "Not A Team" is not allowed'),
        (["slurm", "train.sh", *SLURM, "--checkpoint", "soon"], 2, "checkpoint"),
        (["slurm", "train.sh", *SLURM, "--map", "empty"], 2, "must have one mapping"),
        (["kueue"], 3, "kubectl was not found"),
        (["kueue", "-f", "empty"], 2, "there is nothing to convert"),
        (["kueue", "-f", "binary"], 2, "binary"),
        (["kueue", "-f", "train.sh", "--flavor", "x"], 2, "must be OLD=NEW"),
        (["kueue", "-f", "none"], 3, "there is no file none"),
        (["torque"], 2, "no such command"),
    ],
)
def test_import_refuses_invalid_input_with_message_and_exit_code(
    cli: CliRunner, words: list[str], code: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cli, "train.sh", SCRIPT)
    write(cli, "empty", "")
    (cli.directory / "binary").write_bytes(b"\x7fELF\x00\x01\x02")
    monkeypatch.setenv("PATH", str(cli.directory))
    answer = cli.without_state("import", *words)
    assert (answer.code, answer.out) == (code, "")
    assert message in answer.err


def test_import_help_lists_both_importers(cli: CliRunner) -> None:
    assert "slurm" in cli.without_state("import", "--help").out
    for kind in ("slurm", "kueue"):
        assert "Examples:" in cli.without_state("import", kind, "--help").out
