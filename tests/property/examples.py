"""How many examples a property is tried on."""

from hypothesis import settings

USUAL = 100  # what hypothesis does by default


def examples(count: int) -> settings:
    """That many in CI; in proportion more or fewer under another profile."""
    return settings(max_examples=count * settings().max_examples // USUAL)
