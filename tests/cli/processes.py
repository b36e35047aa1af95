"""What the kernel says of the processes below one."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path


def children_of(pid: int) -> set[int]:
    """All processes below one."""
    below: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended as we looked
            for child in map(int, task.read_text().split()):
                below |= {child, *children_of(child)}
    return below


def is_running(pid: int) -> bool:
    """Whether a process still is, and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def locust_of(pid: int) -> int:
    """The load engine's first process; its workers are below it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return next(
        int(one) for one in children if b"locust" in Path(f"/proc/{one}/cmdline").read_bytes()
    )


def until_written(process: "subprocess.Popen[str]", path: Path) -> None:
    """Wait until a process that runs has written to a file."""
    deadline = time.monotonic() + 30
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.1)
