"""Watches one kind in a program that blocks, as ``kubectl runs watch`` does."""

import time
from collections.abc import Callable, Generator
from contextlib import closing

from jobtree.kube.http.api_errors import FORBIDDEN, NOT_FOUND, UNAUTHORIZED, KubeError, StatusError
from jobtree.kube.http.blocking_client import send_all
from jobtree.kube.http.line_cutter import LineCutter
from jobtree.kube.http.transport import Transport
from jobtree.kube.watch.watch_protocol import SILENCE_SECONDS, WatchProtocol


def follow_changes(
    transport: Transport, protocol: WatchProtocol, sleep: Callable[[float], None] = time.sleep
) -> Generator[None, None, None]:
    """Yields whenever the sink has changed. Raises StatusError where another attempt cannot help."""
    while True:
        watch_error: KubeError | None = None
        try:
            if protocol.must_list:
                send_all(transport, protocol.list_pages())
                yield
            cutter = LineCutter()
            with closing(transport.stream(protocol.next_watch(), SILENCE_SECONDS)) as stream:
                for chunk in stream:
                    lines = cutter.feed(chunk)
                    for line in lines:
                        protocol.apply_line(line)
                    if lines:
                        yield
        except KubeError as error:
            if isinstance(error, StatusError) and error.code in (UNAUTHORIZED, FORBIDDEN, NOT_FOUND):
                raise
            watch_error = error
        sleep(protocol.pause(watch_error))
