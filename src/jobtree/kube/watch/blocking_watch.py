"""Following a kind from a program that waits: ``kubectl runs watch`` streams, it does not poll."""

import time
from collections.abc import Callable, Generator
from contextlib import closing

from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, UNAUTHORIZED, KubeError, StatusError
from jobtree.kube.http.blocking_client import converse
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.transport import Transport
from jobtree.kube.watch.watch_protocol import SILENCE_SECONDS, WatchProtocol


def follow_changes(
    transport: Transport, follow: WatchProtocol, sleep: Callable[[float], None] = time.sleep
) -> Generator[None, None, None]:
    """Comes back whenever the sink has been told something. What waiting does not mend is raised."""
    while True:
        trouble: KubeError | None = None
        try:
            if follow.must_list:
                converse(transport, follow.list_pages())
                yield
            cutter = LineCutter()
            with closing(transport.stream(follow.next_watch(), SILENCE_SECONDS)) as stream:
                for chunk in stream:
                    lines = cutter.feed(chunk)
                    for line in lines:
                        follow.take(line)
                    if lines:
                        yield
        except KubeError as broken:
            if isinstance(broken, StatusError) and broken.code in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
                raise
            trouble = broken
        sleep(follow.pause(trouble))
