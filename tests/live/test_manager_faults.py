"""A manager whose API server refuses, stumbles, loses answers and forgets: the outcome is the same."""

import os
from pathlib import Path

import pytest
import yaml

from tests.live.eventful import SOUND, Ground, Hour, Outcome
from tests.live.faultproxy import WATCHES, WRITES, FaultProxy

SEEDS = (
    20 if os.environ.get("JOBTREE_SOAK") else 1
)  # make soak-live plays twenty hours, each with other faults
PATIENCE = ("--request-seconds=3", "--silence-seconds=6")


def through(ground: Ground, proxy: FaultProxy) -> Path:
    """The manager's kubeconfig, with the proxy in the server's place."""
    config = yaml.safe_load(ground.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = proxy.url
    path = ground.plane.directory / "faulty.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("seed", range(1, SEEDS + 1))
def test_whatever_the_server_does_the_outcome_is_the_same(
    ground: Ground, undisturbed: Outcome, seed: int
) -> None:
    hour = Hour(ground)
    with FaultProxy(ground.plane, seed) as proxy:
        kubeconfig = through(ground, proxy)
        hour.live_through(lambda: ground.manager(*PATIENCE, kubeconfig=kubeconfig), undisturbed)
        assert proxy.met.keys() == {*WRITES, *WATCHES}, proxy.met
    assert ground.audit() == SOUND
