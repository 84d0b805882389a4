"""Escapes text in a container's args and environment, so that the kubelet does not change it.

The kubelet replaces ``$$`` by ``$`` and ``$(NAME)`` by the value of a variable of the container. A shell has
other meanings for both.
"""

import re
from typing import Final

# What the kubelet reads at once. Parentheses around anything but a name of a variable stay as they are.
_TOKEN: Final = re.compile(r"\$(\$|\([^)]*\))")
_VARIABLE: Final = re.compile(r"\$\([A-Za-z0-9_.-]*\)")


def escape_for_kubelet(text: str) -> str:
    """The text that the kubelet turns into ``text``."""
    return _TOKEN.sub(lambda match: _escaped(match[0]), text)


def _escaped(escape: str) -> str:
    if escape == "$$":
        return "$$$$"
    return f"${escape}" if _VARIABLE.fullmatch(escape) else escape
