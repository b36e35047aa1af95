"""The sidecar's append-only file of JSON lines, readable by line number while it grows."""

import json
import os
import time
from array import array
from pathlib import Path
from typing import Any

FLUSH_EACH_S = 1.0


class SampleLog:
    """Writes whole lines only, and at least once a second: a kill costs at most the last second.

    One thread writes; any may read.
    """

    def __init__(self, path: Path, mode: str) -> None:
        """Open the file: "new" refuses one that exists, "append" goes on in it, "force" empties it.

        Raises:
            OSError: cannot be opened, FileExistsError where "new" finds one.
        """
        self.path = path
        self.header_line = 0
        if mode == "append":
            _drop_cut_line(path)
        self._file = path.open({"new": "xb+", "append": "ab+", "force": "wb+"}[mode], buffering=0)
        self._starts = array(
            "Q", [0]
        )  # where each flushed line starts, and where the last one ends
        if mode == "append":
            self._index(path.read_bytes())
        self._pending: list[bytes] = []
        self._flushed_s = time.monotonic()

    @property
    def lines(self) -> int:
        """Lines that are in the file."""
        return len(self._starts) - 1

    def write(self, record: dict[str, Any]) -> None:
        """Add a record; a sample reaches the file within a second while samples keep coming."""
        text = json.dumps(record, separators=(",", ":"), allow_nan=False)
        self._pending.append(text.encode() + b"\n")
        if record["type"] == "header":
            self.header_line = self.lines + len(self._pending) - 1
        # All but samples are rare, and nothing may follow them for long.
        if record["type"] != "sample" or time.monotonic() - self._flushed_s >= FLUSH_EACH_S:
            self.flush()

    def flush(self) -> None:
        """Hand all lines to the operating system: they outlive this process then."""
        block, self._pending = b"".join(self._pending), []
        left = block
        while left:
            left = left[self._file.write(left) :]
        self._index(block)
        self._flushed_s = time.monotonic()

    def read(self, since: int, limit: int) -> bytes:
        """At most `limit` lines from line number `since` (from 0) on; nothing beyond the end."""
        lines = self.lines
        if since >= lines:
            return b""
        start, end = self._starts[since], self._starts[min(lines, since + limit)]
        return os.pread(self._file.fileno(), end - start, start)

    def close(self) -> None:
        """Flush and close."""
        self.flush()
        self._file.close()

    def _index(self, block: bytes) -> None:
        end = self._starts[-1]
        for line in block.splitlines(keepends=True):
            end += len(line)
            self._starts.append(end)


def _drop_cut_line(path: Path) -> None:
    """Cut off what a crash left of a line, or the next record would be glued to it."""
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        if whole < path.stat().st_size:
            os.truncate(path, whole)
