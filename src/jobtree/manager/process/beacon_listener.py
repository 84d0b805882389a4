"""Fetches the values of a public beacon that coming draws mix in, as soon as they are published.

The policy names the address: ``beacon.url``, with ``{round}`` in it. The answer is JSON as drand gives it:
``{"round": 7, "randomness": "<hex>"}``. Each round is fetched by a task of its own beside the control loop,
from its publication until its value is known or no draw needs it. No draw waits for a beacon: a value that
is not known in time is missing from the record, and the record says so. Only a manager that has just begun to
lead waits, for at most one answer, for rounds that were published before: otherwise anybody who can restart
the manager could choose to have a draw without the beacon.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import islice

import msgspec
from aiohttp import ClientError, ClientSession, ClientTimeout

from jobtree.api.kinds.policy import Beacon
from jobtree.api.schema.quantities import SECOND
from jobtree.core import World
from jobtree.manager.log import Log

Round = tuple[str, int]  # name of the beacon, and number of the round
ANSWER_SECONDS = 5.0
RETRY_SECONDS = 1.0
MOST_AT_ONCE = 16
MOST_BYTES = 128


class BeaconValue(msgspec.Struct, frozen=True):
    """The value of a round."""

    beacon: str
    number: int
    value: str

    def apply_to(self, world: World) -> None:
        world.beacon_values[self.beacon, self.number] = self.value


class _BeaconAnswer(msgspec.Struct):
    randomness: str
    round: int | None = None


class BeaconListener:
    def __init__(self, log: Log, wake: Callable[[], None], clock: Callable[[], float] = time.time) -> None:
        self._log = log
        self._wake = wake
        self._clock = clock
        self._tasks: dict[Round, asyncio.Task[None]] = {}
        self._values: dict[Round, BeaconValue] = {}
        self._new_values: list[BeaconValue] = []
        self._logged_errors: set[str] = set()

    def follow_rounds(self, beacon: Beacon | None, rounds: Iterable[Round]) -> None:
        """Fetches these rounds from now on, the earliest first, and stops fetching others."""
        wanted: set[Round] = set()
        if beacon is not None and beacon.url:
            own_rounds = (of_beacon for of_beacon in sorted(rounds) if of_beacon[0] == beacon.name)
            wanted = set(islice(own_rounds, MOST_AT_ONCE))
        for unwanted in self._tasks.keys() - wanted:
            self._tasks.pop(unwanted).cancel()
        self._values = {key: value for key, value in self._values.items() if key in wanted}
        for missing in wanted - self._tasks.keys() - self._values.keys():
            assert beacon is not None
            self._tasks[missing] = asyncio.ensure_future(self._fetch_round(beacon, missing))

    async def catch_up(self, beacon: Beacon | None, rounds: Iterable[Round]) -> None:
        """Follows these rounds, and waits a moment for those that are published already."""
        self.follow_rounds(beacon, rounds)
        published = [
            task
            for (_, number), task in self._tasks.items()
            if beacon is not None and beacon.published_at(number) <= self._clock() * SECOND
        ]
        if published:
            await asyncio.wait(published, timeout=ANSWER_SECONDS)

    def new_values(self) -> list[BeaconValue]:
        new_values, self._new_values = self._new_values, []
        return new_values

    def restart(self) -> None:
        """Makes all values new again, because the world is built again."""
        self._new_values = list(self._values.values())

    def stop(self) -> None:
        self.follow_rounds(None, ())

    async def _fetch_round(self, beacon: Beacon, wanted: Round) -> None:
        number = wanted[1]
        await asyncio.sleep(max(0.0, beacon.published_at(number) / SECOND - self._clock()))
        while True:
            try:
                value = await fetch(beacon.url.replace("{round}", str(number)), number)
                break
            except (ClientError, TimeoutError, ValueError, msgspec.MsgspecError) as broken:
                self._log_error(beacon.name, broken)
            await asyncio.sleep(RETRY_SECONDS)
        beacon_value = self._values[wanted] = BeaconValue(beacon.name, number, value)
        self._new_values.append(beacon_value)
        del self._tasks[wanted]
        self._wake()

    def _log_error(self, name: str, broken: Exception) -> None:
        why = str(broken) or type(broken).__name__
        if why not in self._logged_errors:
            self._logged_errors.add(why)
            self._log.say("resolver", "a value of the beacon cannot be fetched yet", beacon=name, why=why)


async def fetch(url: str, number: int) -> str:
    """Returns the value of a round, in hex. Raises ClientError, TimeoutError, ValueError, MsgspecError."""
    async with (
        ClientSession(timeout=ClientTimeout(total=ANSWER_SECONDS), trust_env=True) as session,
        session.get(url, raise_for_status=True) as response,
    ):
        answer = msgspec.json.decode(await response.read(), type=_BeaconAnswer)
    if answer.round not in (None, number):
        raise ValueError(f"asked for round {number}, it answers with round {answer.round}")
    value = bytes.fromhex(answer.randomness)
    if not 0 < len(value) <= MOST_BYTES:
        raise ValueError(f"a value must have 1 to {MOST_BYTES} bytes, not {len(value)}")
    return value.hex()
