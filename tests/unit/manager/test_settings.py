"""Wrong flags are refused by name before the manager starts."""

import click
import pytest

from jobtree.manager.settings import ManagerSettings, read_settings


def test_given_flags_are_read() -> None:
    settings = read_settings(["--webhook-address=0.0.0.0:9443", "--webhook-names=10.0.0.1, hook.example.com"])
    assert settings.webhook_address == "0.0.0.0:9443"
    assert settings.webhook_names == "10.0.0.1, hook.example.com"
    assert settings.webhook_validity_seconds == ManagerSettings().webhook_validity_seconds == 90 * 24 * 3600


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--webhook-address=9443", "'9443' is not HOST:PORT"),
        ("--webhook-address=here:port", "'here:port' is not HOST:PORT"),
        ("--health-address=0.0.0.0:99999", "'0.0.0.0:99999' is not HOST:PORT"),
        ("--webhook-names=a,b c", "'b c' is neither a name nor an address"),
        ("--webhook-names=ключ", "is neither a name nor an address"),
        ("--webhook-client-ca=/no/such/file", "'/no/such/file' is no file that can be read"),
        ("--webhook-validity-seconds=5", "5 is not in the range x>=10"),
        ("--webhook-validity-seconds=long", "'long' is not a valid integer"),
    ],
)
def test_wrong_flag_is_refused(flag: str, says: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        read_settings([flag])
    message = refused.value.format_message()
    assert says in message
    assert flag.partition("=")[0] in message
