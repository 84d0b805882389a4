"""The number of random examples of a property."""

from hypothesis import settings

DEFAULT = 100  # of hypothesis


def examples(count: int) -> settings:
    """Returns settings for that many examples in CI, and in proportion for other profiles."""
    return settings(max_examples=count * settings().max_examples // DEFAULT)
