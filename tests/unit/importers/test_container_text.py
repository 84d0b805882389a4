import pytest
from hypothesis import given, strategies as st

from jobtree.importers.container_text import escape_for_kubelet
from tests.unit.importers.local_pod import kubelet

SHELL = st.text(alphabet=st.sampled_from("$()AB a_-.\n'\"{}"), max_size=30)


@given(SHELL)
def test_kubelet_restores_escaped_text(text: str) -> None:
    assert (
        kubelet(escape_for_kubelet(text), {"A": "changed", "B": "changed", "AB": "changed", "": "changed"})
        == text
    )


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("echo $HOME ${HOME}", "echo $HOME ${HOME}"),
        ("echo $$", "echo $$$$"),
        ("$(HOSTNAME)", "$$(HOSTNAME)"),
        ("$(hostname -s)", "$(hostname -s)"),
        ("$((1 + 2))", "$((1 + 2))"),
    ],
)
def test_only_text_that_the_kubelet_changes_is_escaped(text: str, written: str) -> None:
    assert escape_for_kubelet(text) == written
