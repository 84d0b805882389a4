"""The proof of a lottery: printed in words, recomputed from the record, and refused when a byte differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import dump_yaml, read_documents
from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import SIM, T0, Body, budget, envelope, nodes, run

KEY = "07" * 32


@pytest.fixture(name="drawn")
def _drawn(cli: CliRunner) -> CliRunner:
    """Two Runs of 8 GPUs each, of which a lottery stopped one for a third Run."""
    await_lottery(cli)
    cli.runs("advance", "5m")
    return cli


@pytest.fixture(name="promised")
def _promised(cli: CliRunner) -> CliRunner:
    """The same, five minutes before the draw, with a beacon that has a round every minute."""
    await_lottery(cli, {"beacon": {"name": "drand", "period": "1m", "genesis": T0}})
    return cli


def await_lottery(cli: CliRunner, policy: Body | None = None) -> None:
    key_file().parent.mkdir(parents=True)
    key_file().write_text(KEY)
    rules = {"apiVersion": SIM, "kind": "Policy", "spec": policy or {}}
    cli.write_cluster(*nodes(2), budget("lab", envelope(16)), budget("b", envelope(8)), rules)
    cli.submit(run("one"), run("two"))
    cli.runs("advance", "2h")
    cli.submit(run("third", owner="org:b"))


def key_file() -> Path:
    return Path.home() / ".config" / "jobtree" / "lottery.key"


def proof(cli: CliRunner) -> Body:
    """Returns the Reservation that was due, as it would be saved in a separate file."""
    reservations: list[Body] = cli.runs("reservations", "--all", "-o", "json").json()["items"]
    return next(body for body in reservations if body["metadata"]["name"] == "third-1")


def verified(cli: CliRunner, body: Body, *words: str) -> tuple[int, str]:
    path = cli.directory / "proof.json"
    path.write_text(json.dumps(body))
    answer = cli.without_state("--state", str(path), "verify", "third-1", *words)
    return answer.code, answer.out


def losers(cli: CliRunner) -> list[str]:
    rows = [line.split() for line in cli.runs("state").out.splitlines()]
    return [row[0].removeprefix("default/") for row in rows if row[2] == "Reserved"]


def test_explain_tells_loser_and_winner_how_the_lottery_went(drawn: CliRunner) -> None:
    (loser,) = losers(drawn)
    winner = {"one": "two", "two": "one"}[loser]
    explained = drawn.runs("explain", loser).out
    assert "Lottery of reservation default/third-1, due 2026-01-05T11:05:00Z" in explained
    assert "1 pod of 8 GPUs in nv-a, of which 0 fitted on free GPUs" in explained
    assert "16 in all, one for each GPU" in explained
    assert f"drawn    first default/{loser}, with 8 of 16 tickets" in explained
    assert f"default/{loser} lost: it was drawn first" in explained
    assert f"default/{winner} was not drawn (8 of 16 tickets)" in drawn.runs("explain", winner).out
    assert f"default/third started, and default/{loser} lost" in drawn.runs("explain", "third").out


@pytest.mark.parametrize("name", ["one", "two", "third"])
def test_each_run_of_the_lottery_can_verify_it(drawn: CliRunner, name: str) -> None:
    answer = drawn.runs("explain", name, "--verify")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].startswith("accepted: default/third-1")
    assert drawn.runs("verify", "third-1").code == 0
    assert drawn.runs("verify", "reservation.rq.davidlangworthy.io/third-1").code == 0
    assert drawn.runs("explain", name, "--verify", "-o", "json").json()["status"] == "Success"


def test_explain_names_a_loser_that_was_cancelled(drawn: CliRunner) -> None:
    (loser,) = losers(drawn)
    drawn.runs("cancel", loser)
    assert f"default/{loser} lost" in drawn.runs("explain", "third").out


def test_verify_needs_only_the_reservation(drawn: CliRunner) -> None:
    code, out = verified(drawn, proof(drawn))
    assert (code, "signed with the key of this machine" in out) == (0, True)


def test_verify_creates_no_key(drawn: CliRunner) -> None:
    body = proof(drawn)
    key_file().unlink()
    code, out = verified(drawn, body)
    assert (code, "no key on this machine to compare with" in out) == (0, True)
    assert drawn.runs("explain", "third", "--verify").code == 0
    assert not key_file().exists()


def test_verify_refuses_a_record_that_another_key_signed(drawn: CliRunner) -> None:
    body = proof(drawn)
    key_file().write_text("08" * 32)
    code, out = verified(drawn, body)
    assert (code, "it was signed with another key than" in out) == (1, True)


def altered(body: Body, path: str, value: object) -> Body:
    *parents, last = path.split(".")
    node: Any = body
    for part in parents:
        node = node[int(part)] if part.isdecimal() else node[part]
    node[int(last) if last.isdecimal() else last] = value
    return body


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("status.lottery.seed", "00" * 32, "the seed does not follow"),
        ("status.lottery.nonce", "00" * 32, "the nonce is not the one"),
        ("status.lottery.decision.losers", [], "the decision does not follow"),
        ("status.lottery.case.tickets.0.gpus.0.1", 7, "the signature does not belong"),
        ("status.lottery.signature", "00" * 64, "the signature does not belong"),
        ("status.lottery.signature", "no", "lower-case hex"),
        ("status.lottery.more", 1, "fields or values that no record has"),
        ("status.lottery", {"case": 1}, "the record cannot be read"),
        ("spec.commitment", "00" * 32, "not the one that the Reservation published"),
        ("spec.runRef.uid", "another", "names another Run"),
        ("status.lottery.number", 2, "belongs to another Reservation"),
    ],
)
def test_verify_refuses_an_altered_record(drawn: CliRunner, path: str, value: object, reason: str) -> None:
    code, out = verified(drawn, altered(proof(drawn), path, value))
    assert code == 1
    assert out.startswith("refused: default/third-1\n")
    assert reason in out


def test_verify_prints_a_refusal_as_json(drawn: CliRunner) -> None:
    code, out = verified(drawn, altered(proof(drawn), "status.lottery.seed", "00"), "-o", "json")
    status = json.loads(out)
    assert (code, status["status"], status["reason"]) == (1, "Failure", "Invalid")
    assert status["details"]["causes"][0]["field"] == "default/third-1"


def test_explain_refuses_an_altered_nonce_in_the_state_file(drawn: CliRunner) -> None:
    text = drawn.state.read_text()
    nonce = proof(drawn)["status"]["lottery"]["nonce"]
    drawn.state.write_text(text.replace(nonce, "0" * 64))
    answer = drawn.runs("explain", "third", "--verify")
    assert (answer.code, "refused: default/third-1" in answer.out) == (1, True)


@pytest.mark.parametrize("field", ["losers", "draws", "takings"])
def test_explain_says_when_a_record_contradicts_itself(drawn: CliRunner, field: str) -> None:
    value = [99] if field == "takings" else ["nobody"]
    body = altered(proof(drawn), f"status.lottery.decision.{field}", value)
    put_reservation(drawn, body)
    explained = drawn.runs("explain", "third")
    assert (explained.code, "its record contradicts itself" in explained.out) == (0, True)
    assert drawn.runs("explain", "third", "--verify").code == 1


def test_verify_exits_3_when_there_is_no_record(drawn: CliRunner) -> None:
    (loser,) = losers(drawn)
    assert drawn.runs("verify", f"{loser}-1").code == 3
    assert "did you mean third-1?" in drawn.runs("verify", "third-2").err
    assert drawn.runs("verify", "nothing").code == 3
    drawn.submit(run("fresh", owner="org:b"))
    assert drawn.runs("explain", "fresh", "--verify").code == 3
    assert drawn.without_state("--state", "missing.yaml", "verify", "third-1").code == 3


def test_verbs_exit_74_when_the_key_is_invalid(drawn: CliRunner) -> None:
    key_file().write_text("secret")
    for words in (["state"], ["verify", "third-1"]):
        answer = drawn.runs(*words)
        assert answer.code == 74
        assert "must hold 64 hexadecimal digits" in answer.err
        assert "Traceback" not in answer.err


def test_state_exits_74_when_the_key_cannot_be_read(drawn: CliRunner) -> None:
    key_file().unlink()
    key_file().mkdir()
    answer = drawn.runs("state")
    assert answer.code == 74
    assert "cannot read the lottery key" in answer.err


def test_help_names_the_path_of_the_key(cli: CliRunner) -> None:
    words = " ".join(cli.without_state("--help").out.split())
    assert "JOBTREE_LOTTERY_KEY" in words
    assert "~/.config/jobtree/lottery.key" in words


def test_beacon_value_of_the_state_file_is_used_and_kept(promised: CliRunner) -> None:
    cli = promised
    assert cli.saved("Reservation", "third-1")["status"]["terms"]["beacon"] == {
        "name": "drand",
        "round": 125,
    }
    values = {
        "apiVersion": SIM,
        "kind": "BeaconValues",
        "spec": {"name": "drand", "values": {"125": "c0ffee"}},
    }
    cli.state.write_text(cli.state.read_text() + "---\n" + dump_yaml([values]))
    cli.runs("advance", "5m")
    assert "c0ffee" in cli.state.read_text()
    assert "beacon   drand, round 125: c0ffee" in cli.runs("explain", "third").out
    answer = cli.runs("verify", "third-1")
    assert (answer.code, "round 125 of beacon drand was c0ffee" in answer.out) == (0, True)


def test_explain_and_verify_say_when_the_beacon_value_was_missing(promised: CliRunner) -> None:
    promised.runs("advance", "5m")
    assert "round 125: was not available" in promised.runs("explain", "third").out
    answer = promised.runs("verify", "third-1")
    assert (answer.code, "drawn without round 125 of beacon drand" in answer.out) == (0, True)


def test_verify_refuses_a_lottery_whose_key_changed_before_the_draw(promised: CliRunner) -> None:
    key_file().write_text("ab" * 32)
    promised.runs("advance", "5m")
    assert "the lottery key is not the one of the commitment" in promised.runs("explain", "third").out
    answer = promised.runs("verify", "third-1")
    assert (answer.code, "committed to" in answer.out) == (1, True)
    assert promised.saved("Reservation", "third-2")["status"]["state"] == "Pending"


def put_reservation(cli: CliRunner, body: Body) -> None:
    """Replaces all Reservations of the state file by this one."""
    bodies = [document.body for document in read_documents(cli.state.read_bytes(), "cluster.yaml")]
    others = [other for other in bodies if other["kind"] != "Reservation"]
    cli.state.write_text(dump_yaml([*others, body]))


def test_verify_checks_the_record_of_each_stage_of_a_gang(drawn: CliRunner) -> None:
    body = drawn.saved("Reservation", "third-1")
    twice = {**body, "status": {**body["status"], "lotteries": [body["status"]["lottery"]]}}
    put_reservation(drawn, twice)
    answer = drawn.runs("verify", "third-1")
    assert (answer.code, answer.out.count("accepted")) == (0, 2)
    forged = json.loads(json.dumps(twice))
    forged["status"]["lotteries"][0]["nonce"] = "00" * 32
    put_reservation(drawn, forged)
    assert drawn.runs("verify", "third-1").code == 1
    assert drawn.runs("explain", "third", "--verify").code == 1
