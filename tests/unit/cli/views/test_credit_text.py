"""Where the policy sets prices, plan and explain show credits; elsewhere they show none."""

from tests.unit.cli.cli_runner import CliRunner
from tests.unit.cli.manifests import SIM, budget, envelope, nodes, run


def test_plan_and_explain_show_credits_where_prices_are_set(cli: CliRunner) -> None:
    policy = {"apiVersion": SIM, "kind": "Policy", "spec": {"prices": {"H100-80GB": "2.5"}}}
    cli.write_cluster(*nodes(4), policy, budget("lab", envelope(16)))
    cli.submit(run("train", 8, spares=1), run("wide", 32))
    assert "charge 10, 25 credits an hour" in cli.runs("plan", "train").out
    assert "32 GPUs of H100-80GB, 80 credits an hour" in cli.runs("plan", "wide").out
    cli.runs("advance", "2h")
    assert "50 credits, at the present price" in cli.runs("explain", "train").out


def test_no_credits_are_shown_without_a_price(cli: CliRunner) -> None:
    cli.submit(run("train"))
    cli.runs("advance", "1h")
    assert "credits" not in cli.runs("plan", "train").out + cli.runs("explain", "train").out
