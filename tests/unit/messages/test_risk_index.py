"""Who is told of a risk, and when it is news (R11, R12)."""

import pytest

from jobtree.api.kinds.run import Risk
from jobtree.messages.risk_index import is_news


@pytest.mark.parametrize(
    ("before", "now", "news"),
    [(None, "0", True), (None, "0.5", True), ("0", "0", False), ("0", "0.5", True), ("0.001", "0.5", False)],
)
def test_a_risk_is_news_if_the_run_was_told_nothing_or_zero(before: str | None, now: str, news: bool) -> None:
    risk = Risk(reservation="big-1", at="2026-01-05T11:00:00Z", kill_probability=now)
    assert is_news(before, risk) == news
