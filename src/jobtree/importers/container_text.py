"""Text in a container's args and environment, written so that the kubelet leaves it as it is.

The kubelet reads ``$$`` as ``$`` and ``$(NAME)`` as the value of a variable that the container has. A shell
means other things by both.
"""

import re
from typing import Final

# What the kubelet takes in one bite. Whatever else is in parentheses names no variable and passes unchanged.
_BITE: Final = re.compile(r"\$(\$|\([^)]*\))")
_VARIABLE: Final = re.compile(r"\$\([A-Za-z0-9_.-]*\)")


def escape_for_kubelet(text: str) -> str:
    """The text that the kubelet turns into this one."""
    return _BITE.sub(lambda match: _escaped(match[0]), text)


def _escaped(bite: str) -> str:
    if bite == "$$":
        return "$$$$"
    return f"${bite}" if _VARIABLE.fullmatch(bite) else bite
