"""What the status of a Budget says of an envelope: what is committed, free, to lend, and why not more."""

from jobtree.api.kinds.budget import Usage
from jobtree.core.reporting.object_status import budget_status
from tests.unit.core.build import budget, envelope, nodes, run
from tests.unit.core.lab import Lab


def usage_of(lab: Lab, name: str = "org") -> Usage:
    (usage,) = budget_status(lab.world, name).envelopes
    return usage


def test_a_declared_run_commits_its_whole_time() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, maxGPUHours=100)))
    assert usage_of(lab).committed_gpu_hours == "0"
    lab.submit(run("declared", "org", 8, max_duration="4h"))
    assert usage_of(lab).committed_gpu_hours == "32"


def test_an_envelope_says_why_less_is_free() -> None:
    lab = Lab(nodes("nv-a", 2), budget("org", 16))
    assert (usage_of(lab).free_gpus, usage_of(lab).limited_by) == ("16", "")
    lab.submit(run("own", "org", 8))
    assert (usage_of(lab).free_gpus, usage_of(lab).limited_by) == ("8", "in use")


def test_an_envelope_says_what_it_could_lend_and_pay_for_its_family() -> None:
    lending = {"allow": True, "to": ["*"], "maxConcurrency": 8}
    lab = Lab(nodes("nv-a", 2), budget("org", envelope(16, lending=lending)))
    assert (usage_of(lab).lendable_gpus, usage_of(lab).family_free_gpus) == ("8", "16")
    lab.put(budget("org", envelope(16, sharing="none")))
    lab.settle()
    assert (usage_of(lab).lendable_gpus, usage_of(lab).family_free_gpus) == (None, None)
