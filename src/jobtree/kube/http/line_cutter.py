"""Cutting a stream of bytes into lines, of any length and however they arrive."""


class LineCutter:
    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their ends; empty ones are left out."""
        *whole, rest = chunk.split(b"\n")
        if whole:
            self._rest.append(whole[0])
            whole[0] = b"".join(self._rest)
            self._rest.clear()
        self._rest.append(rest)
        return [line for line in whole if line]

    def rest(self) -> bytes:
        """What came after the last end of a line."""
        return b"".join(self._rest)
