"""What befalls a manager in an eventful hour: a death after a given write, or faults from a given seed.

Whatever it is, the hour must come to the same as one in which nothing befell it.
"""

from pathlib import Path

import yaml

from tests.live.eventful import SOUND, Ground, Hour, Outcome
from tests.live.faultproxy import WATCHES, WRITES, FaultProxy
from tests.live.managing import Manager

PATIENCE = ("--request-seconds=3", "--silence-seconds=6")


def undisturbed_outcome(ground: Ground) -> Outcome:
    """What an eventful hour comes to when nothing befalls the manager."""
    hour = Hour(ground)
    ground.free_election()
    with ground.manager() as manager:
        hour.play([manager])
        outcome = hour.await_rest()
        hour.await_outcome(outcome, [manager])
        assert ground.audit() == SOUND
        hour.clear()
    return outcome


def killed_after(ground: Ground, undisturbed: Outcome, write: int) -> bool:
    """An hour in which the manager dies after that write, and another one takes over.

    Whether there was such a write.
    """
    managers: list[Manager] = []

    def start() -> Manager:
        flags = () if managers else (f"--stop-after-writes={write}",)
        managers.append(ground.manager(*flags))
        return managers[-1]

    Hour(ground).live_through(start, undisturbed)
    return len(managers) > 1


def led_astray(ground: Ground, undisturbed: Outcome, seed: int) -> None:
    """An hour behind a proxy that lets answers and watches go wrong, all kinds of faults among them."""
    hour = Hour(ground)
    with FaultProxy(ground.plane, seed) as proxy:
        kubeconfig = through(ground, proxy)
        hour.live_through(lambda: ground.manager(*PATIENCE, kubeconfig=kubeconfig), undisturbed)
        assert proxy.met.keys() == {*WRITES, *WATCHES}, proxy.met


def through(ground: Ground, proxy: FaultProxy) -> Path:
    """The manager's kubeconfig, with the proxy in the server's place."""
    config = yaml.safe_load(ground.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = proxy.url
    path = ground.plane.directory / "faulty.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))
    return path
