"""Draws a chart of the coming hours: a line for each Run or promise with GPUs of a domain.

``#``: the Run holds the GPUs; ``?``: it may be stopped from then on; ``=``: the GPUs are promised. A line up
to the right edge may have no known end.
"""

from collections.abc import Iterator, Sequence

from jobtree.api.schema.quantities import format_time
from jobtree.cli.shell.table import room
from jobtree.cli.views.place_names import Places
from jobtree.client.answers.timeline import Bar, Timeline
from jobtree.messages.wording import counted_noun

PLAIN_WIDTH = 110
NARROWEST = 24
LEGEND = "# held   ? may be stopped   = promised"
TICK = 10  # columns between two times


class Chart:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._now, self._ahead = timeline.now, timeline.ahead

    def lines(self) -> Iterator[str]:
        places = Places(self._timeline.world)
        domains = list(self._timeline.domains())
        for domain in domains:
            capacity = f"{counted_noun(domain.capacity, 'GPU')} of {domain.flavor}, {domain.free} free"
            yield f"{places.called(domain.name)}  {capacity}"
            yield from self._draw(domain.bars)
        yield LEGEND if domains else "no GPUs"

    def _draw(self, bars: Sequence[Bar]) -> Iterator[str]:
        """Yields a scale of times and the bars, or a note if there are none."""
        if not bars:
            yield "  no GPUs are in use or promised here"
            return
        names = max(len(bar.name) for bar in bars)
        gpus = max(len(str(bar.gpus)) for bar in bars)
        width = max(NARROWEST, (room() or PLAIN_WIDTH) - names - gpus - 6)
        yield f"{' ' * (names + gpus + 6)}{self._scale(width)}".rstrip()
        for bar in bars:
            yield f"  {bar.name:<{names}}  {bar.gpus:>{gpus}}  {self._signs(bar, width)}".rstrip()

    def _scale(self, width: int) -> str:
        """Returns ``11:00     11:45     …``: the time of every tenth column."""
        times = (
            format_time(self._now + column * self._ahead // width) for column in range(0, width - 4, TICK)
        )
        return "".join(f"{time[11:16]:<{TICK}}" for time in times).rstrip()

    def _signs(self, bar: Bar, width: int) -> str:
        return "".join(self._sign(bar, self._now + column * self._ahead // width) for column in range(width))

    @staticmethod
    def _sign(bar: Bar, at: int) -> str:
        if at < bar.start or (bar.end is not None and at >= bar.end):
            return " "
        return "?" if bar.at_risk is not None and at >= bar.at_risk else bar.sign
