"""Who writes a run directory: one process at a time, for as long as it lives.

The kernel holds the lock and drops it with the process, however that ends, so that a run that was
killed is in nobody's way.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import IO

from slo.rundir import RunDirError

LOCK = ".writing"  # holds the writer's pid
_NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)


def take(directory: Path) -> IO[str]:
    """Make a directory, if need be, and claim it until `release`.

    Raises:
        RunDirError: another process writes a run there, or it cannot be made.
    """
    try:
        while True:
            lock = _opened(directory)
            try:
                _locked(lock)
                if _lies_in(directory, lock):
                    lock.truncate(0)
                    lock.write(f"{os.getpid()}\n")
                    lock.flush()
                    return lock
            except BlockingIOError:
                lock.seek(0)
                pid = lock.read().strip()
                lock.close()
                by = f" by process {pid}" if pid else ""
                why = f"a run is being written there{by}; name another --out"
                raise RunDirError(f"{directory}: {why}") from None
            lock.close()  # of a run that ended as we came
    except OSError as error:
        raise RunDirError(f"{directory}: cannot make the run directory: {error.strerror}") from None


def release(directory: Path, lock: IO[str]) -> None:
    """Let others have the directory; one in which no file was left goes too."""
    (directory / LOCK).unlink(missing_ok=True)
    lock.close()
    with suppress(OSError):
        directory.rmdir()


def writer(directory: Path) -> str | None:
    """The pid of the process that writes a run there now; None where none does."""
    try:
        with (directory / LOCK).open(encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return lock.read().strip() or "?"
    except OSError:  # none, or a file system that knows no locks
        pass
    return None


def _opened(directory: Path) -> IO[str]:
    while True:
        directory.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another one took the folder away in between
            return (directory / LOCK).open("a+", encoding="ascii")


def _locked(lock: IO[str]) -> None:
    """Lock a file; on a file system that knows no locks, go without."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise


def _lies_in(directory: Path, lock: IO[str]) -> bool:
    """Whether the file is still there that we opened, and locked only then."""
    try:
        return os.path.samestat(os.fstat(lock.fileno()), (directory / LOCK).stat())
    except FileNotFoundError:
        return False
