"""HTTP/1.1 answers, as bytes come in: the head, then the body out of its framing."""

from dataclasses import dataclass

MOST_HEAD = 64 * 1024


class NotHttpError(ValueError):
    """Bytes that are no HTTP/1.1 answer; says which."""


@dataclass(frozen=True, slots=True)
class Head:
    """Status line and headers (names in small letters; of a repeated header, the last)."""

    status: int
    headers: dict[str, str]
    keeps_open: bool


class AnswerReader:
    """Reads one answer: `head` once it is whole, `ended` once the body is."""

    __slots__ = ("_left", "_pending", "_until_close", "chunked", "ended", "head")

    def __init__(self) -> None:
        self.head: Head | None = None
        self.ended = False
        self._pending = b""
        self.chunked = False
        self._until_close = False
        self._left = 0  # bytes still to come, of the chunk (with its CRLF) or of the body

    def feed(self, data: bytes) -> bytes:
        """The body's bytes among these.

        Raises:
            NotHttpError: a head or a chunk size that is none.
        """
        if self.head is None:
            data = self._read_head(self._pending + data)
            if self.head is None:
                return b""
        if self.chunked:
            return self._chunks(data)
        if self._until_close:
            return data
        self._left -= len(data)
        self.ended = self._left <= 0
        return data

    def close(self) -> None:
        """The peer closed the connection; a body without a length ends so."""
        if self.head is not None and self._until_close:
            self.ended = True

    def _read_head(self, data: bytes) -> bytes:
        start = data[:5]
        if start != b"HTTP/"[: len(start)]:
            raise NotHttpError(f"the answer begins with {data[:40]!r}, not with HTTP/1.1")
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MOST_HEAD:
                raise NotHttpError(f"a head of more than {MOST_HEAD} bytes")
            self._pending = data
            return b""
        self._pending = b""
        head = parse_head(data[:end])
        if 100 <= head.status < 200:
            return self._read_head(data[end + 4 :])
        self.head = head
        if head.headers.get("transfer-encoding", "").lower() == "chunked":
            self.chunked = True
        elif "content-length" in head.headers:
            try:
                self._left = int(head.headers["content-length"])
            except ValueError:
                raise NotHttpError("a Content-Length that is no number") from None
            self.ended = self._left == 0
        else:
            self._until_close = head.status not in (204, 304)
            self.ended = not self._until_close
        return data[end + 4 :]

    def _chunks(self, data: bytes) -> bytes:
        if self._pending:
            data = self._pending + data
            self._pending = b""
        elif not self._left:
            # The usual packet: exactly one chunk.
            line = data.find(b"\r\n")
            if 0 < line < 9 and _size(data[:line]) == len(data) - line - 4 > 0:
                return data[line + 2 : -2]
        body = []
        at = 0
        while at < len(data) and not self.ended:
            if not self._left:
                line = data.find(b"\r\n", at)
                if line < 0:
                    if len(data) - at > MOST_HEAD:
                        raise NotHttpError("a chunk without a size")
                    break
                size = _size(data[at:line])
                if size == 0:
                    if not self._trailer_ended(data, line):
                        break
                    self.ended = True
                    at = len(data)
                    break
                self._left = size + 2
                at = line + 2
            part = data[at : at + self._left]
            # The chunk's own CRLF is counted in what is left, and is no part of the body.
            extra = max(0, len(part) - max(0, self._left - 2))
            body.append(part[: len(part) - extra] if extra else part)
            at += len(part)
            self._left -= len(part)
        self._pending = data[at:]
        return b"".join(body)

    @staticmethod
    def _trailer_ended(data: bytes, line: int) -> bool:
        return data[line + 2 : line + 4] == b"\r\n" or data.find(b"\r\n\r\n", line) >= 0


def parse_head(data: bytes) -> Head:
    """Read a status line and headers.

    Raises:
        NotHttpError: no status line.
    """
    first, *lines = data.split(b"\r\n")
    version, _, rest = first.partition(b" ")
    code = rest[:3]
    if not (version.startswith(b"HTTP/1.") and code.isdigit() and len(code) == 3):
        raise NotHttpError(f"{first[:60]!r} is no status line of HTTP/1.1")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.strip().lower().decode("latin-1")] = value.strip().decode("latin-1")
    connection = headers.get("connection", "").lower()
    keeps = connection == "keep-alive" if version == b"HTTP/1.0" else connection != "close"
    return Head(int(code), headers, keeps)


def _size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip()
    if not digits or digits.strip(b"0123456789abcdefABCDEF"):  # int() takes signs and more
        raise NotHttpError(f"{line[:40]!r} is no chunk size")
    return int(digits, 16)
