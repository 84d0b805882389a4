"""What happens in a simulated cluster, and that its file tells it faithfully."""

import pytest

from tests.unit.cli.desk import Desk, budget, envelope, lasting, node, nodes, run

SUPERSEDED = "it starts before reservation {} is due"


def test_events_on_the_way_are_printed_with_their_time(desk: Desk) -> None:
    desk.submit(lasting(run("train"), "1h"))
    desk.submit(run("next"))
    assert desk.runs("advance", "90m").out.splitlines() == [
        "2026-01-05T10:00:00Z  Completed   default/train  all its work is done",
        "2026-01-05T10:00:00Z  Admitted    default/next   8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T10:00:00Z  Superseded  default/next   {SUPERSEDED.format('next-1')}",
        "it is 2026-01-05T10:30:00Z",
    ]
    assert desk.runs("advance", "--to", "2026-01-05T10:30:00Z").out == "it is 2026-01-05T10:30:00Z\n"


def test_nodes_fail_and_heal(desk: Desk) -> None:
    desk.submit(run("train"))
    failed = desk.runs("fail", "a01", "a02", "a01")
    assert failed.code == 0
    assert failed.out.splitlines() == [
        "a01-a02: out of service",
        "2026-01-05T09:00:00Z  CapacityLost  default/train  it lost node a01",
        "2026-01-05T09:00:00Z  Reserved      default/train  reservation train-1",
    ]
    assert desk.saved("Node", "a01")["spec"]["taints"]
    healed = desk.runs("heal", "a02")
    assert healed.out.splitlines() == [
        "a02: in service",
        "2026-01-05T09:00:00Z  Admitted    default/train  8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T09:00:00Z  Superseded  default/train  {SUPERSEDED.format('train-1')}",
    ]
    assert "taints" not in desk.saved("Node", "a02")["spec"]


def test_what_a_cancel_lets_start(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.submit(run("next"))
    assert desk.runs("cancel", "train", "train").out.splitlines() == [
        "default/train is cancelled",
        "2026-01-05T09:00:00Z  Admitted    default/next  8 GPUs paid by lab/own (Owned)",
        f"2026-01-05T09:00:00Z  Superseded  default/next  {SUPERSEDED.format('next-1')}",
    ]


def test_several_are_completed_all_or_none(desk: Desk) -> None:
    desk.cluster(*nodes(2), budget("lab", envelope(16)))
    desk.submit(run("one"), run("two"), run("three"))
    before = desk.state.read_bytes()
    assert desk.runs("complete", "one", "four").code == 3
    assert desk.state.read_bytes() == before
    assert desk.runs("complete", "one", "two").code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["state"],
        ["plan", "train"],
        ["explain", "train"],
        ["leases", "train"],
        ["budgets", "usage"],
        ["watch", "train", "--once"],
        ["check"],
        ["submit", "--dry-run", "-f", "submitted.yaml", "--replace"],
    ],
)
def test_reading_never_writes(desk: Desk, words: list[str]) -> None:
    desk.submit(run("train"))
    before = desk.state.stat()
    assert desk.runs(*words).code == 0
    after = desk.state.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_a_link_to_the_state_file_stays_a_link(desk: Desk) -> None:
    link = desk.directory / "link.yaml"
    link.symlink_to(desk.state)
    assert desk.bare("--state", str(link), "advance", "1h").code == 0
    assert link.is_symlink()
    assert "10:00:00Z" in desk.state.read_text()


def test_saving_what_was_read_changes_nothing(desk: Desk) -> None:
    desk.cluster(*nodes(3), budget("lab", envelope(8, maxGPUHours=100)), budget("other", envelope(8)))
    desk.submit(lasting(run("train", runtime={"checkpoint": "10m"}), "5h"), run("wide", 64))
    desk.submit(run("late", owner="org:other", runtime={"maxDuration": "10m"}))
    desk.submit(run("unpaid", funding={"allowOpportunistic": True}))
    desk.runs("advance", "1h")
    first = desk.state.read_text()
    assert "reason: DurationExceeded" in first
    desk.runs("advance", "0s")
    assert desk.state.read_text() == first


def test_nulls_count_as_absent(desk: Desk) -> None:
    body = run("train")
    body["metadata"] |= {"creationTimestamp": None, "uid": None, "namespace": None}
    desk.submit(body)
    metadata = desk.saved("Run", "train")["metadata"]
    assert metadata["creationTimestamp"] == "2026-01-05T09:00:00Z"
    assert metadata["uid"]
    lease = desk.saved("Run", "train")["status"]["allocation"]["leases"][0]["name"]
    uid = desk.saved("Lease", lease)["metadata"]["uid"]
    desk.state.write_text(desk.state.read_text().replace(uid, "null"))
    assert desk.runs("complete", "train").code == 0


def test_the_verdict_of_a_finished_run_is_kept(desk: Desk) -> None:
    """The Run failed because it reached its maxDuration (F7)."""
    desk.submit(run("train", runtime={"maxDuration": "1h"}))
    desk.runs("advance", "2h")
    desk.runs("advance", "2h")
    status = desk.saved("Run", "train")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "DurationExceeded")
    assert status["message"] == "DurationExceeded: it reached its maxDuration (1h)"


def test_a_budget_that_was_cut_in_the_file_is_settled_when_it_is_read(desk: Desk) -> None:
    desk.submit(run("train"))
    desk.runs("advance", "1h")
    desk.state.write_text(desk.state.read_text().replace("concurrency: 8", "concurrency: 4"))
    out = desk.runs("state").out
    assert "Opportunistic 8" in out
    assert desk.runs("check").code == 0
    assert desk.runs("advance", "1h").code == 0
    assert desk.runs("check").code == 0


def test_objects_are_replaced_like_with_apply(desk: Desk) -> None:
    desk.submit(run("train"))
    uid = desk.saved("Run", "train")["metadata"]["uid"]
    desk.submit(run("next", 16))
    again = desk.file("next.yaml", run("next", 8), node("a02", rack="r2"))
    assert desk.runs("submit", "-f", again, "--replace").code == 0
    assert desk.saved("Node", "a02")["metadata"]["labels"]["rack"] == "r2"
    assert desk.saved("Run", "next")["spec"]["resources"]["totalGPUs"] == 8
    wider = desk.runs("submit", "-f", desk.file("train.yaml", run("train", 16)), "--replace")
    assert wider.code == 2
    assert "of a running Run only malleable.desiredTotalGPUs" in wider.err
    same = desk.runs("submit", "-f", desk.file("train.yaml", run("train", 8)), "--replace")
    assert same.code == 0
    assert desk.saved("Run", "train")["metadata"]["uid"] == uid
    assert desk.saved("Run", "train")["status"]["phase"] == "Running"


def test_a_waiting_run_keeps_its_reservation_when_planning_does_not_use_the_edit(desk: Desk) -> None:
    desk.submit(run("train", runtime={"maxDuration": "1h"}))
    desk.submit(run("next"))
    before = desk.saved("Reservation", "next-1")
    other = desk.file("next.yaml", run("next", runtime={"maxRestarts": 9}))
    assert "Edited" not in desk.runs("submit", "-f", other, "--replace").out
    assert desk.saved("Run", "next")["spec"]["runtime"]["maxRestarts"] == 9
    assert desk.saved("Reservation", "next-1") == before
    more = desk.file("next.yaml", run("next", 64))
    desk.runs("submit", "-f", more, "--replace")
    assert [slip["reason"] for slip in desk.saved("Reservation", "next-1")["status"]["slips"]] == ["Edited"]


def test_a_lease_is_not_replaced(desk: Desk) -> None:
    desk.submit(run("train"))
    lease = desk.saved("Run", "train")["status"]["allocation"]["leases"][0]["name"]
    path = desk.file("lease.yaml", desk.saved("Lease", lease))
    answer = desk.runs("submit", "-f", path, "--replace")
    assert answer.code == 2
    assert "a Lease cannot be replaced: only Jobtree writes it" in answer.err


def test_a_dry_run_says_so(desk: Desk) -> None:
    path = desk.file("run.yaml", run("train"))
    answer = desk.runs("submit", "--dry-run", "-f", path)
    assert answer.out.splitlines()[-1] == "dry run: nothing was saved"
    assert desk.runs("state").out == "no Runs\n"


def test_usage_by_class_and_caps(desk: Desk) -> None:
    cap = {
        "name": "all",
        "flavor": "H100-80GB",
        "envelopes": ["own"],
        "maxConcurrency": 12,
        "maxGPUHours": 40,
    }
    desk.cluster(*nodes(3), budget("lab", envelope(16, maxGPUHours=100), aggregateCaps=[cap]))
    desk.submit(run("train", 8, spares=1), run("child", 1, owner="org:lab:child"))
    desk.runs("advance", "1h")
    assert desk.runs("budgets", "usage").out.splitlines() == [
        "ENVELOPE     OWNER    FLAVOR     USED  FREE  BY CLASS                    HOURS USED  HOURS LEFT",
        "lab/own      org:lab  H100-80GB    11     5  owned 8, shared 1, spare 2          11          89",
        "cap lab/all  org:lab  H100-80GB    11     1                                      11          29",
    ]


def test_init_writes_a_cluster_to_start_from(desk: Desk) -> None:
    answer = desk.bare("init", "lab.yaml")
    assert answer.code == 0
    assert "export JOBTREE_STATE=lab.yaml" in answer.out
    text = (desk.directory / "lab.yaml").read_text()
    assert text.count("# ") > 5
    assert desk.bare("--state", "lab.yaml", "check").code == 0
    assert "Running" in desk.bare("--state", "lab.yaml", "state").out
    assert "--force" in desk.bare("init", "lab.yaml").err
    assert desk.bare("init", "lab.yaml", "--force").code == 0
    assert desk.bare("init").code == 4  # the desk's own cluster.yaml is the default


def test_work_that_is_lost_is_kept_in_the_file_and_told(desk: Desk) -> None:
    desk.submit(run("r"))
    desk.runs("advance", "1h")
    (slot,) = desk.saved("Run", "r")["status"]["allocation"]["leases"][0]["slots"]
    desk.runs("fail", slot.partition("#")[0])
    assert desk.saved("Run", "r")["metadata"]["annotations"]["sim.rq.davidlangworthy.io/lost"] == "28800000"
    desk.runs("advance", "1h")
    assert "lost     8 GPU-hours of work that had to be done again" in desk.runs("explain", "r").out
