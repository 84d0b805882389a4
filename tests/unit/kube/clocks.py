"""A clock that tests move."""


class Clock:
    """A monotonic clock that ``pass_by`` and ``sleep`` advance at once."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds

    def sleep_now(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    async def sleep(self, seconds: float) -> None:
        self.sleep_now(seconds)
