"""Inside the sandbox: take all rights away, then run one function of an answer.

The parent passes this file's text to `python -I -S -c`, inside fresh user, mount, network, process
and IPC namespaces. Only the standard library is imported, and the values that are right stay
outside: what comes back is what the function returned.
"""

import ctypes
import json
import os
import resource
import sys

AT_FDCWD, AT_RECURSIVE = -100, 0x8000
READ_ONLY = 0x1 | 0x2 | 0x4  # MOUNT_ATTR_RDONLY, _NOSUID, _NODEV
MOUNT_SETATTR = 442  # the same number on every architecture
BIND, REC = 4096, 16384
NO_NEW_PRIVS = 38
CAPABILITY_VERSION = 0x20080522
SHOWN = 200

libc = ctypes.CDLL(None, use_errno=True)


def must(result: int, what: str) -> None:
    """Stop where a right could not be taken away."""
    if result:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def shut_in(root: str, sources: list[str]) -> None:
    """See nothing but the interpreter and its libraries, read-only."""
    must(libc.mount(b"none", root.encode(), b"tmpfs", 0, b"size=1m"), "mount tmpfs")
    for source in sources:
        place = root + source
        if os.path.islink(source):
            os.symlink(os.readlink(source), place)
        elif os.path.isdir(source) and not os.path.isdir(place):
            os.makedirs(place)
            must(libc.mount(source.encode(), place.encode(), None, BIND | REC, None), "bind")
    attributes = (ctypes.c_uint64 * 4)(READ_ONLY)
    arguments = (AT_FDCWD, root.encode(), AT_RECURSIVE, ctypes.byref(attributes), 32)
    must(libc.syscall(MOUNT_SETATTR, *arguments), "make all files read-only")
    os.chroot(root)
    os.chdir("/")


def limit(limits: dict[str, int], user: int | None) -> None:
    """Bound what is left, for good."""
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))
    must(libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0), "no new privileges")
    head = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
    must(libc.capset(head, (ctypes.c_uint32 * 6)()), "drop capabilities")


def called(function: object, arguments: list[object]) -> dict[str, object]:
    """What one call returned, or how it ended."""
    try:
        value = function(*arguments)  # type: ignore[operator]
        json.dumps(value)
    except BaseException as error:
        return {"error": f"{type(error).__name__}: {error}"[:SHOWN]}
    return {"value": value}


def main() -> None:
    """Read a job from stdin, write what came of it to stdout."""
    job = json.load(sys.stdin)
    out = os.dup(1)
    nothing, _ = os.pipe()  # what an answer prints is nobody's to read
    os.dup2(nothing, 0)
    shut_in(job["root"], job["sources"])
    limit(job["limits"], job["user"])
    os.write(out, b"ready\n")
    scope: dict[str, object] = {"__name__": "answer"}
    sys.stdout = sys.stderr = None
    try:
        exec(compile(job["code"], "answer", "exec"), scope)
        function = scope[job["function"]]
        told: dict[str, object] = {"calls": [called(function, call) for call in job["calls"]]}
    except KeyError:
        told = {"error": f"no function {job['function']}"}
    except BaseException as error:
        told = {"error": f"{type(error).__name__}: {error}"[:SHOWN]}
    os.write(out, json.dumps(told).encode() + b"\n")
    os._exit(0)


main()
