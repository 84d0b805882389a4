"""What all tests share: the profiles of hypothesis and the --rewrite switch of the scenarios."""

import pytest
from hypothesis import HealthCheck, settings

# ci: the same examples on every machine and every run; a slow machine is not a failure.
settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow]
)
# explore: fresh examples each time; a failure prints the line that reproduces it.
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("ci")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what the scenarios printed into their files, for a human to review",
    )
