"""The profiles of hypothesis, and the option --rewrite of scenarios and pages."""

import pytest
from hypothesis import HealthCheck, settings

# ci: the same examples in every run; slowness is not a failure.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# explore: new examples in every run; a failure prints a line that reproduces it.
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the commands printed into scenarios and pages, for review",
    )
