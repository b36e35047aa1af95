"""Run a function that a model wrote, where it can harm nobody; or refuse to.

Enforced by the Linux kernel, and tried out before the first answer runs (`refusal`):

- no network and no other process to be seen: namespaces of its own, made by unshare(1);
- no file but the interpreter's own, and those read-only, through a root directory of its own;
- no capability, no new privileges; under root it runs as a user that owns nothing;
- memory, processor time, processes, open files and file size by limits; wall time by a kill of
  the whole process group and its process namespace.

There is no filter of system calls: against a flaw of the kernel itself this is no wall. Where the
kernel or a container denies any of it, nothing is run.
"""

import itertools
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WALL_S = 10.0
CPU_S = 5
MEMORY_BYTES = 512 * 2**20
PROCESSES = 4  # unshare, the interpreter, and two more
OUTPUT_BYTES = 65_536

_NAMESPACES = ("--net", "--pid", "--ipc", "--uts", "--mount")
_USER = ("--user", "--map-root-user")  # root has the rights that the others need without it
# One of its own for each sandbox, since the limit of processes counts all of a user's.
_USERS = (60_000 + number % 4_000 for number in itertools.count(os.getpid() * 64))
_FOLDERS = ("/usr", "/lib", "/lib64", "/bin")
_TRIAL = """
import os, socket
def trial(place):
    done = []
    try:
        socket.create_connection(("127.0.0.1", 9), 0.2)
        done.append("network")
    except ConnectionRefusedError:
        done.append("network")
    except OSError:
        pass
    for path in (place, "/usr/tailgate", "/tailgate"):
        try:
            open(path, "w").close()
            done.append("files")
        except OSError:
            pass
    try:
        os.chroot("/usr")
        done.append("capabilities")
    except OSError:
        pass
    return done
"""


@dataclass(frozen=True, slots=True)
class Returned:
    """What a function's calls gave; `error` says why there is nothing."""

    values: tuple[Any, ...] = ()
    error: str | None = None
    ready: bool = True  # the walls stood before the answer's code ran


def call(
    code: str,
    function: str,
    calls: Sequence[Sequence[object]],
    *,
    wall_s: float = WALL_S,
    memory_bytes: int = MEMORY_BYTES,
) -> Returned:
    """Define a function by code, and call it with each list of arguments.

    A call that raised makes the whole an error.
    """
    limits = {
        "RLIMIT_AS": memory_bytes,
        "RLIMIT_CPU": CPU_S,
        "RLIMIT_NPROC": PROCESSES,
        "RLIMIT_NOFILE": 64,
        "RLIMIT_FSIZE": 0,
        "RLIMIT_CORE": 0,
    }
    with tempfile.TemporaryDirectory(prefix="slo-sandbox-") as root:
        Path(root).chmod(0o755)
        job = {
            "root": root,
            "user": next(_USERS) if os.geteuid() == 0 else None,
            "sources": list(dict.fromkeys((*_FOLDERS, os.path.realpath(sys.base_prefix)))),
            "limits": limits,
            "code": code,
            "function": function,
            "calls": calls,
        }
        said, in_time = _run(json.dumps(job).encode(), wall_s)
    return _read(said, in_time, wall_s)


@cache
def refusal() -> str | None:
    """Why answers cannot be run here; None where every wall stood a trial."""
    if not sys.platform.startswith("linux") or not hasattr(resource, "RLIMIT_NPROC"):
        return f"code answers need Linux namespaces, which {sys.platform} has not"
    if shutil.which("unshare") is None:
        return "code answers need unshare(1), of the package util-linux"
    with tempfile.TemporaryDirectory(prefix="slo-sandbox-") as folder:
        tried = call(_TRIAL, "trial", [[f"{folder}/file"]])
    if not tried.ready or tried.error is not None:
        return f"the sandbox for code answers cannot be set up here: {tried.error}"
    if tried.values != ([],):
        return f"the sandbox for code answers does not hold here: {', '.join(tried.values[0])}"
    return None


def _run(job: bytes, wall_s: float) -> tuple[bytes, bool]:
    """What the sandbox wrote, and whether it ended by itself in time."""
    inside = Path(__file__).with_name("sandbox_child.py").read_text(encoding="utf-8")
    python = os.path.realpath(sys.executable)
    user = () if os.geteuid() == 0 else _USER
    argv = ["unshare", *user, *_NAMESPACES, "--fork", "--kill-child=KILL", "--"]
    process = subprocess.Popen(
        [*argv, python, "-I", "-S", "-c", inside],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd="/",
        env={"PATH": os.defpath, "LANG": "C.UTF-8"},
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    deadline = time.monotonic() + wall_s
    said = b""
    try:
        try:
            process.stdin.write(job)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it ended before it read; what it said tells why
        while len(said) < OUTPUT_BYTES:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([process.stdout], [], [], left)[0]:
                return said, False
            part = os.read(process.stdout.fileno(), 4096)
            if not part:
                return said, True
            said += part
        return said, True
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            process.kill()
        process.wait()
        process.stdout.close()
        process.stdin.close()


def _read(said: bytes, in_time: bool, wall_s: float) -> Returned:
    """An answer may write what it likes: anything but our own form is an error of its own."""
    head, _, rest = said.partition(b"\n")
    if head != b"ready":
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return Returned(error=lines[-1][:200] if lines else "it said nothing", ready=False)
    if not in_time:
        return Returned(error=f"it did not end within {wall_s:g} s")
    try:
        told = json.loads(rest.partition(b"\n")[0])
        if "error" in told:
            return Returned(error=str(told["error"]))
        failed = next((one["error"] for one in told["calls"] if "error" in one), None)
        if failed is not None:
            return Returned(error=str(failed))
        return Returned(tuple(one["value"] for one in told["calls"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return Returned(error="it ended without a result: killed by a limit, or by itself")
