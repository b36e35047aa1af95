"""Processes that a command starts, and ends again however it ends itself."""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

GRACE_S = 5.0
PR_SET_PDEATHSIG = 1
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Out = IO[bytes] | int


def on_signals_stop() -> None:
    """Let SIGINT, SIGTERM and SIGHUP be a KeyboardInterrupt, so that every block is left."""
    for number in STOPPING:
        nohup = number == signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN
        if not nohup:
            signal.signal(number, signal.default_int_handler)


@contextmanager
def child(
    argv: Sequence[str], *, stdout: Out, stderr: Out = subprocess.STDOUT, grace_s: float = GRACE_S
) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own; on leaving, it and whatever it forked are ended.

    The group keeps a terminal's Ctrl-C from it: the command decides what it is told, and when.
    Where the command itself is killed (SIGKILL, out of memory), Linux sends the process SIGTERM.
    """
    process = None
    try:
        with _signals_held():  # one that came inside Popen would leave a child that nobody knows
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=_with_its_parent(),
            )
        yield process
    finally:
        if process is not None:
            _end(process, grace_s)


def _with_its_parent() -> Callable[[], None] | None:
    """Let a process that is about to start get SIGTERM when we die; nothing where not on Linux."""
    if sys.platform != "linux":
        return None
    libc, parent = ctypes.CDLL(None), os.getpid()  # before the fork, where it is safe

    def ask() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # we died before it could ask
            os._exit(1)

    return ask


@contextmanager
def _signals_held() -> Iterator[None]:
    """Turn a signal that comes in the block into a KeyboardInterrupt at its end."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in STOPPING}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            raise KeyboardInterrupt


def kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and its group at once."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    try:
        if process.poll() is None:
            process.terminate()
            process.wait(grace_s)
    except subprocess.TimeoutExpired:
        pass
    finally:
        kill(process)
