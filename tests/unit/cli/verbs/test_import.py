"""kubectl runs import: what it prints, writes and says, and that submit takes it."""

import json
from pathlib import Path

import pytest

from jobtree.api.documents.document_stream import read_documents
from jobtree.api.validation.object_parser import parse_object
from tests.unit.cli.desk import Desk, budget, envelope, node
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


def write(desk: Desk, name: str, text: str) -> str:
    path = desk.directory / name
    path.write_text(text)
    return str(path)


def test_a_script_becomes_a_run_that_submit_takes(desk: Desk) -> None:
    desk.cluster(*(node(f"a{number}") for number in range(2)), budget("lab", envelope(16)))
    answer = desk.bare("import", "slurm", write(desk, "train.sh", SCRIPT), *SLURM)
    assert answer.code == 0
    assert answer.err.splitlines()[0] == "without an equivalent (1):"
    assert "train.sh, line 2: --mail-type=END: Jobtree sends no mail" in answer.err
    submitted = desk.runs("submit", "-f", write(desk, "run.yaml", answer.out), "--dry-run")
    assert submitted.code == 0
    assert "default/train runs: 16 GPUs in nv-a (a0-a1), paid by lab/own (Owned 16)" in submitted.out


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in SCRIPTS])
def test_what_the_corpus_becomes_is_taken_by_submit(desk: Desk, path: Path) -> None:
    """Of job trees and Runs that follow others only their rules are checked here."""
    answer = desk.bare("import", "slurm", str(path), "--map", str(SITE), "-n", "lab")
    if answer.code:
        assert (answer.code, answer.out, answer.err[:7]) == (2, "", "error: ")
        return
    documents = [document.body for document in read_documents(answer.out, "stdout")]
    for body in documents:
        parse_object(body, "stdout")
    simple = [body for body in documents if not {"follow", "stages"} & set(body["spec"])]
    if simple:
        submitted = desk.runs("submit", "-f", desk.file("runs.yaml", *simple), "--dry-run")
        assert submitted.code == 0, submitted.err


def test_objects_are_printed_as_other_verbs_print_them(desk: Desk) -> None:
    path = write(desk, "train.sh", SCRIPT)
    items = json.loads(desk.bare("import", "slurm", path, *SLURM, "-o", "json").out)["items"]
    assert [item["kind"] for item in items] == ["Run"]
    assert desk.bare("import", "slurm", path, *SLURM, "-o", "name").out == "run.rq.davidlangworthy.io/train\n"
    (document,) = read_documents(desk.bare("import", "slurm", path, *SLURM, "-n", "team").out, "stdout")
    assert document.body["metadata"] == {"name": "train", "namespace": "team"}


def test_files_are_written_to_a_directory_and_not_over_others(desk: Desk) -> None:
    path = write(desk, "kueue.yaml", KUEUE)
    answer = desk.bare("import", "kueue", "-f", path, "--to", "out")
    wrote = ["budget-lab.yaml", "run-train.yaml", "label-nodes.sh"]
    assert answer.out.splitlines() == [f"wrote out/{name}" for name in wrote]
    assert (desk.directory / "out" / "label-nodes.sh").read_text().splitlines() == [
        "#!/bin/sh",
        "kubectl label nodes -l 'model=h100' gpu.flavor=h100",
    ]
    again = desk.bare("import", "kueue", "-f", path, "--to", "out")
    assert (again.code, again.out) == (4, "")
    assert "out/budget-lab.yaml already exists" in again.err
    assert desk.bare("import", "kueue", "-f", path, "--to", "out", "--force").code == 0
    assert desk.bare("import", "kueue", "-f", path, "--to", "kueue.yaml").code == 74


def test_kueue_is_converted_and_taken(desk: Desk) -> None:
    desk.cluster(*(node(f"a{number}", model="h100") for number in range(2)))
    answer = desk.bare("import", "kueue", "-f", write(desk, "k.yaml", KUEUE), "--flavor", "h100=H100-80GB")
    assert answer.err == ("label the nodes:\n  kubectl label nodes -l 'model=h100' gpu.flavor=H100-80GB\n")
    submitted = desk.runs("submit", "-f", write(desk, "all.yaml", answer.out))
    assert "lab/train runs: 16 GPUs" in submitted.out


KUBECTL = """#!/bin/sh
case "$*" in
  "api-resources --verbs=list -o name") echo "nodes clusterqueues.kueue.x-k8s.io jobs.batch" ;;
  "get nodes -A -o json") echo '{"kind": "List", "items": []}' ;;
  "get clusterqueues.kueue.x-k8s.io -A -o json") cat queues.json ;;
  *) echo "the server is having a bad day" >&2; exit 1 ;;
esac
"""


def test_a_live_cluster_is_read_through_kubectl(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    kubectl = desk.directory / "bin" / "kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(KUBECTL.replace(" jobs.batch", ""))
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{kubectl.parent}:/usr/bin:/bin")
    (queue,) = (one.body for one in read_documents(KUEUE, "k.yaml") if one.body["kind"] == "ClusterQueue")
    write(desk, "queues.json", json.dumps({"kind": "List", "items": [queue]}))
    answer = desk.bare("import", "kueue", "-o", "name")
    assert (answer.code, answer.out) == (0, "budget.rq.davidlangworthy.io/lab\n"), answer.err
    kubectl.write_text(KUBECTL)
    answer = desk.bare("import", "kueue")
    assert answer.code == 74
    assert "'kubectl get jobs.batch -A -o json' failed: the server is having a bad day" in answer.err


def test_accounts_become_budgets_and_past_jobs_a_trace(desk: Desk) -> None:
    answer = desk.bare(
        "import", "slurm", "--accounts", write(desk, "assoc", ASSOC), "--gpu-type", "H100-80GB"
    )
    assert desk.runs("submit", "-f", write(desk, "budgets.yaml", answer.out)).code in (0, 4)
    assert "owner: root:lab" in answer.out
    answer = desk.bare("import", "slurm", "--sacct", write(desk, "jobs", SACCT), "--gpu-type", "H100-80GB")
    assert answer.out == (
        "job_id,user_or_team,submit_s,duration_s,gpus,gpu_type,status\n7,lab,0,3600,8,H100-80GB,COMPLETED\n"
    )
    assert desk.bare("import", "slurm", "--sacct", "jobs", "--to", "out").out == "wrote out/trace.csv\n"


def test_the_environment_overrides_directives_unless_a_file_is_given(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_TIMELIMIT", "5")
    path = write(desk, "train.sh", SCRIPT)
    assert 'maxDuration: "5m"' in desk.bare("import", "slurm", path, *SLURM).out
    empty = write(desk, "env", "# nothing\n")
    assert 'maxDuration: "1h"' in desk.bare("import", "slurm", path, *SLURM, "--env-file", empty).out


@pytest.mark.parametrize(
    ("words", "code", "said"),
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
def test_mistakes_have_messages_and_codes(
    desk: Desk, words: list[str], code: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(desk, "train.sh", SCRIPT)
    write(desk, "empty", "")
    (desk.directory / "binary").write_bytes(b"\x7fELF\x00\x01\x02")
    monkeypatch.setenv("PATH", str(desk.directory))
    answer = desk.bare("import", *words)
    assert (answer.code, answer.out) == (code, "")
    assert said in answer.err


def test_both_are_offered(desk: Desk) -> None:
    assert "slurm" in desk.bare("import", "--help").out
    for kind in ("slurm", "kueue"):
        assert "Examples:" in desk.bare("import", kind, "--help").out
