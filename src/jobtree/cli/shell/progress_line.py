"""Draws the progress of a long command as one line, only on a terminal."""

import sys
import time

import click

from jobtree.messages.wording import age

SHOWN_EVERY_SECONDS = 0.2
KEPT_EVERY_SECONDS = 30.0
WIDTH = 24


class ProgressLine:
    def __init__(self, title: str, total: int, done: int = 0) -> None:
        self._title, self._total, self._began_with = title, total, done
        self._began = self._shown = self._kept = time.monotonic()
        self._drawn = False

    def show(self, done: int) -> bool:
        """Draws the line if its interval is over; returns whether it is time to save the replay as well."""
        now = time.monotonic()
        if now - self._shown >= SHOWN_EVERY_SECONDS and sys.stderr.isatty():
            self._shown, self._drawn = now, True
            click.echo(f"\r{self.line(done, now - self._began)}\x1b[K", nl=False, err=True)
        if now - self._kept < KEPT_EVERY_SECONDS:
            return False
        self._kept = now
        return True

    def line(self, done: int, seconds: float) -> str:
        """``jobtree  ████░░░░  1,200 of 3,000 jobs, 400/s, 4s left``."""
        filled = WIDTH * done // max(1, self._total)
        rate = (done - self._began_with) / seconds if seconds else 0.0
        left = age(int((self._total - done) / rate * 1000)) if rate else "?"
        bar = "█" * filled + "░" * (WIDTH - filled)
        return f"{self._title}  {bar}  {done:,} of {self._total:,} jobs, {rate:,.0f}/s, {left} left"

    def clear(self) -> None:
        if self._drawn:
            click.echo("\r\x1b[K", nl=False, err=True)
