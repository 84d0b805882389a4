"""A manager whose API server refuses, stumbles, loses answers and forgets: the outcome is the same."""

from tests.live.eventful import SOUND, Ground, Outcome
from tests.live.hardship import led_astray

SEED = 1  # make soak-live plays twenty hours, each with other faults


def test_whatever_the_server_does_the_outcome_is_the_same(ground: Ground, undisturbed: Outcome) -> None:
    led_astray(ground, undisturbed, SEED)
    assert ground.audit() == SOUND
