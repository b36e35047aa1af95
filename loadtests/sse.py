"""Server-sent events: bytes in, the data of complete events out."""


class EventReader:
    """Reads events as the HTML standard has them: any line ends, comments, data of several lines.

    Bytes stay bytes until an event is whole, so that no character is cut at a packet's edge.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return bool(self._rest.strip(b"\r\n"))

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that ended in these bytes; events without data are left out."""
        if not self._rest:
            # The usual packet: one event, one line.
            one_line = data[:6] == b"data: " and data[-2:] == b"\n\n" and data.count(b"\n") == 2
            if one_line and b"\r" not in data:
                return [data[6:-2]]
        else:
            data = self._rest + data
        if b"\r" in data:
            # A CR at the very end may be half of a CRLF: keep it back.
            held = b"\r" if data[-1:] == b"\r" else b""
            data = (
                data[: len(data) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n") + held
            )
        *blocks, self._rest = data.split(b"\n\n")
        return [found for block in blocks if (found := _data(block)) is not None]


def _data(block: bytes) -> bytes | None:
    lines = []
    for line in block.split(b"\n"):
        if line[:5] == b"data:":
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
