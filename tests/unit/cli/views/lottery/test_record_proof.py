"""The proof of a lottery: told in words, recomputed from the record alone, refused where a byte differs."""

import json
from pathlib import Path
from typing import Any

import pytest

from jobtree.api.documents.document_stream import dump_yaml, read_documents
from tests.unit.cli.desk import SIM, T0, Body, Desk, budget, envelope, nodes, run

KEY = "07" * 32


@pytest.fixture(name="drawn")
def _drawn(desk: Desk) -> Desk:
    """Two Runs of 8 GPUs each; one of them had to go for a third."""
    await_lottery(desk)
    desk.runs("advance", "5m")
    return desk


@pytest.fixture(name="promised")
def _promised(desk: Desk) -> Desk:
    """The same five minutes before, with a beacon that has a round every minute."""
    await_lottery(desk, {"beacon": {"name": "drand", "period": "1m", "genesis": T0}})
    return desk


def await_lottery(desk: Desk, policy: Body | None = None) -> None:
    key_file().parent.mkdir(parents=True)
    key_file().write_text(KEY)
    rules = {"apiVersion": SIM, "kind": "Policy", "spec": policy or {}}
    desk.cluster(*nodes(2), budget("lab", envelope(16)), budget("b", envelope(8)), rules)
    desk.submit(run("one"), run("two"))
    desk.runs("advance", "2h")
    desk.submit(run("third", owner="org:b"))


def key_file() -> Path:
    return Path.home() / ".config" / "jobtree" / "lottery.key"


def proof(desk: Desk) -> Body:
    """The Reservation that came due, as a file of its own would hold it."""
    found: list[Body] = desk.runs("reservations", "--all", "-o", "json").json()["items"]
    return next(body for body in found if body["metadata"]["name"] == "third-1")


def verified(desk: Desk, body: Body, *words: str) -> tuple[int, str]:
    path = desk.directory / "proof.json"
    path.write_text(json.dumps(body))
    answer = desk.bare("--state", str(path), "verify", "third-1", *words)
    return answer.code, answer.out


def losers(desk: Desk) -> list[str]:
    rows = [line.split() for line in desk.runs("state").out.splitlines()]
    return [row[0].removeprefix("default/") for row in rows if row[2] == "Reserved"]


def test_the_loser_is_told_why(drawn: Desk) -> None:
    (loser,) = losers(drawn)
    winner = {"one": "two", "two": "one"}[loser]
    told = drawn.runs("explain", loser).out
    assert "Lottery of reservation default/third-1, due 2026-01-05T11:05:00Z" in told
    assert "1 pod of 8 GPUs in nv-a, of which 0 fitted on free GPUs" in told
    assert "16 in all, one for each GPU" in told
    assert f"drawn    first default/{loser}, with 8 of 16 tickets" in told
    assert f"default/{loser} lost: it was drawn first" in told
    assert f"default/{winner} was not drawn (8 of 16 tickets)" in drawn.runs("explain", winner).out
    assert f"default/third started, and default/{loser} lost" in drawn.runs("explain", "third").out


@pytest.mark.parametrize("name", ["one", "two", "third"])
def test_everyone_who_took_part_can_verify(drawn: Desk, name: str) -> None:
    answer = drawn.runs("explain", name, "--verify")
    assert answer.code == 0
    assert answer.out.splitlines()[-1].startswith("accepted: default/third-1")
    assert drawn.runs("verify", "third-1").code == 0
    assert drawn.runs("verify", "reservation.rq.davidlangworthy.io/third-1").code == 0
    assert drawn.runs("explain", name, "--verify", "-o", "json").json()["status"] == "Success"


def test_those_who_are_gone_keep_their_names(drawn: Desk) -> None:
    (loser,) = losers(drawn)
    drawn.runs("cancel", loser)
    assert f"default/{loser} lost" in drawn.runs("explain", "third").out


def test_the_reservation_alone_is_enough(drawn: Desk) -> None:
    code, out = verified(drawn, proof(drawn))
    assert (code, "signed with the key of this machine" in out) == (0, True)


def test_no_key_is_made_for_it(drawn: Desk) -> None:
    body = proof(drawn)
    key_file().unlink()
    code, out = verified(drawn, body)
    assert (code, "no key on this machine to compare with" in out) == (0, True)
    assert drawn.runs("explain", "third", "--verify").code == 0
    assert not key_file().exists()


def test_a_record_of_another_key_is_refused(drawn: Desk) -> None:
    body = proof(drawn)
    key_file().write_text("08" * 32)
    code, out = verified(drawn, body)
    assert (code, "it was signed with another key than" in out) == (1, True)


def altered(body: Body, path: str, value: object) -> Body:
    *parents, last = path.split(".")
    at: Any = body
    for part in parents:
        at = at[int(part)] if part.isdecimal() else at[part]
    at[int(last) if last.isdecimal() else last] = value
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
def test_what_was_altered_is_refused(drawn: Desk, path: str, value: object, reason: str) -> None:
    code, out = verified(drawn, altered(proof(drawn), path, value))
    assert code == 1
    assert out.startswith("refused: default/third-1\n")
    assert reason in out


def test_a_refusal_for_scripts(drawn: Desk) -> None:
    code, out = verified(drawn, altered(proof(drawn), "status.lottery.seed", "00"), "-o", "json")
    status = json.loads(out)
    assert (code, status["status"], status["reason"]) == (1, "Failure", "Invalid")
    assert status["details"]["causes"][0]["field"] == "default/third-1"


def test_a_forged_state_file_is_refused_by_explain(drawn: Desk) -> None:
    text = drawn.state.read_text()
    nonce = proof(drawn)["status"]["lottery"]["nonce"]
    drawn.state.write_text(text.replace(nonce, "0" * 64))
    answer = drawn.runs("explain", "third", "--verify")
    assert (answer.code, "refused: default/third-1" in answer.out) == (1, True)


@pytest.mark.parametrize("field", ["losers", "draws", "takings"])
def test_a_record_that_makes_no_sense_is_told_as_such(drawn: Desk, field: str) -> None:
    value = [99] if field == "takings" else ["nobody"]
    body = altered(proof(drawn), f"status.lottery.decision.{field}", value)
    put_reservation(drawn, body)
    told = drawn.runs("explain", "third")
    assert (told.code, "its record contradicts itself" in told.out) == (0, True)
    assert drawn.runs("explain", "third", "--verify").code == 1


def test_what_cannot_be_verified_is_not_found(drawn: Desk) -> None:
    (loser,) = losers(drawn)
    assert drawn.runs("verify", f"{loser}-1").code == 3
    assert "did you mean third-1?" in drawn.runs("verify", "third-2").err
    assert drawn.runs("verify", "nothing").code == 3
    drawn.submit(run("fresh", owner="org:b"))
    assert drawn.runs("explain", "fresh", "--verify").code == 3
    assert drawn.bare("--state", "missing.yaml", "verify", "third-1").code == 3


def test_a_key_that_is_none_is_74(drawn: Desk) -> None:
    key_file().write_text("secret")
    for words in (["state"], ["verify", "third-1"]):
        answer = drawn.runs(*words)
        assert answer.code == 74
        assert "must hold 64 hexadecimal digits" in answer.err
        assert "Traceback" not in answer.err


def test_a_key_that_cannot_be_read_is_74(drawn: Desk) -> None:
    key_file().unlink()
    key_file().mkdir()
    answer = drawn.runs("state")
    assert answer.code == 74
    assert "cannot read the lottery key" in answer.err


def test_help_says_where_the_key_is(desk: Desk) -> None:
    words = " ".join(desk.bare("--help").out.split())
    assert "JOBTREE_LOTTERY_KEY" in words
    assert "~/.config/jobtree/lottery.key" in words


def test_a_beacon_of_the_state_file_is_mixed_in_and_kept(promised: Desk) -> None:
    desk = promised
    assert desk.saved("Reservation", "third-1")["status"]["terms"]["beacon"] == {
        "name": "drand",
        "round": 125,
    }
    values = {
        "apiVersion": SIM,
        "kind": "BeaconValues",
        "spec": {"name": "drand", "values": {"125": "c0ffee"}},
    }
    desk.state.write_text(desk.state.read_text() + "---\n" + dump_yaml([values]))
    desk.runs("advance", "5m")
    assert "c0ffee" in desk.state.read_text()
    assert "beacon   drand, round 125: c0ffee" in desk.runs("explain", "third").out
    answer = desk.runs("verify", "third-1")
    assert (answer.code, "round 125 of beacon drand was c0ffee" in answer.out) == (0, True)


def test_a_value_that_is_missing_is_told(promised: Desk) -> None:
    promised.runs("advance", "5m")
    assert "round 125: was not available" in promised.runs("explain", "third").out
    answer = promised.runs("verify", "third-1")
    assert (answer.code, "drawn without round 125 of beacon drand" in answer.out) == (0, True)


def test_a_key_that_changed_before_the_draw_is_told_and_refused(promised: Desk) -> None:
    key_file().write_text("ab" * 32)
    promised.runs("advance", "5m")
    assert "the lottery key is not the one of the commitment" in promised.runs("explain", "third").out
    answer = promised.runs("verify", "third-1")
    assert (answer.code, "committed to" in answer.out) == (1, True)
    assert promised.saved("Reservation", "third-2")["status"]["state"] == "Pending"


def put_reservation(desk: Desk, body: Body) -> None:
    """Write the one Reservation of the file anew."""
    bodies = [one.body for one in read_documents(desk.state.read_bytes(), "cluster.yaml")]
    desk.state.write_text(dump_yaml([one for one in bodies if one["kind"] != "Reservation"] + [body]))


def test_every_stage_that_started_together_has_a_record_and_each_is_checked(drawn: Desk) -> None:
    body = drawn.saved("Reservation", "third-1")
    twice = {**body, "status": {**body["status"], "lotteries": [body["status"]["lottery"]]}}
    put_reservation(drawn, twice)
    said = drawn.runs("verify", "third-1")
    assert (said.code, said.out.count("accepted")) == (0, 2)
    forged = json.loads(json.dumps(twice))
    forged["status"]["lotteries"][0]["nonce"] = "00" * 32
    put_reservation(drawn, forged)
    assert drawn.runs("verify", "third-1").code == 1
    assert drawn.runs("explain", "third", "--verify").code == 1
