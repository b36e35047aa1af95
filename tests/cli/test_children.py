"""Processes that a command starts end with it, whatever ends it and whenever."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slo.children import child
from tests.cli.processes import children_of, is_running

STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    signal.pause()
print("forked", flush=True)
signal.pause()
"""

# Starts children as fast as it can, so that a signal at any time finds one being started.
STARTING = """
import subprocess, sys
from slo import children
children.on_signals_stop()
print("go", flush=True)
try:
    while True:
        with children.child(["sleep", "30"], stdout=subprocess.DEVNULL):
            pass
except KeyboardInterrupt:
    print("stopped", flush=True)
"""

# Is killed while a child of it runs, which has no chance to be ended by it.
KILLED = """
import subprocess
from slo.children import child
with child(["sleep", "30"], stdout=subprocess.DEVNULL) as process:
    print(process.pid, flush=True)
    process.wait()
"""


def ended(pids: set[int]) -> None:
    """All of them end: a signal that was sent to a grandchild takes a moment."""
    deadline = time.monotonic() + 10
    while any(map(is_running, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_ends_when_the_command_is_killed() -> None:
    argv = [sys.executable, "-c", KILLED]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        below = int(process.stdout.readline())
        assert is_running(below)
        process.kill()
    ended({below})


def test_a_child_that_ignores_sigterm_is_killed_with_what_it_forked(tmp_path: Path) -> None:
    before = children_of(os.getpid())
    log = tmp_path / "log"
    with (
        log.open("wb") as file,
        child([sys.executable, "-c", STUBBORN], stdout=file, grace_s=0.2) as process,
    ):
        deadline = time.monotonic() + 20
        while not log.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        below = children_of(os.getpid()) - before
        assert len(below) == 2
    assert process.returncode == -signal.SIGKILL
    ended(below)


def test_a_child_ends_when_the_block_is_left_by_an_exception() -> None:
    with (
        pytest.raises(RuntimeError, match="mistake"),
        child(["sleep", "30"], stdout=subprocess.DEVNULL) as process,
    ):
        raise RuntimeError("mistake")
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("after_ms", range(0, 20, 2))
def test_a_signal_that_comes_while_a_child_is_started_leaves_none(after_ms: int) -> None:
    argv = [sys.executable, "-c", STARTING]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "go\n"
        time.sleep(after_ms / 1000)
        os.kill(process.pid, signal.SIGSTOP)  # its children cannot change while they are listed
        below = children_of(process.pid)
        process.send_signal(signal.SIGINT)
        os.kill(process.pid, signal.SIGCONT)
        assert process.stdout.readline() == "stopped\n"
    assert not [pid for pid in below if is_running(pid)]
