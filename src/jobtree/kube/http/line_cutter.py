"""Cuts a stream of bytes into lines of any length."""


class LineCutter:
    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """Returns the non-empty lines that this chunk completes, without their line ends."""
        *whole, rest = chunk.split(b"\n")
        if whole:
            self._rest.append(whole[0])
            whole[0] = b"".join(self._rest)
            self._rest.clear()
        self._rest.append(rest)
        return [line for line in whole if line]

    def rest(self) -> bytes:
        """Returns the bytes after the last line end."""
        return b"".join(self._rest)
