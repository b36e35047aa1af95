"""The GPU sidecar: a process of its own that samples every GPU into an append-only file.

Line 1 is a header (host, GPUs, what they do not support); then one line per GPU and beat. A host
without a driver gets a header that says so, and the process waits to be stopped like any other.
"""

import argparse
import math
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from target import gpu_sampler, sidecar_http
from target.gpu_sampler import GPM_BEAT_S, SLOW_BEAT_S, Found
from target.nvml_reading import GpuLostError
from target.sample_log import SampleLog

SHORTEST_PERIOD_S = 0.05
LONGEST_PERIOD_S = 60.0
IDLE_BEAT_S = 1.0  # without GPUs there is only the parent to look after

Wait = Callable[[float], bool]

EPILOG = """\
A value that NVML does not give is null, never 0; the header names the error under "unsupported".
Energy and processes come once a second, GPM (Hopper and newer) at most each 0.2 s; a sample
without those keys did not ask. SIGTERM and SIGINT end it with exit code 0.

exit codes: 0 stopped, or --duration over; 1 the file cannot be written any more; 2 could not start
"""


def next_beat(due_s: float, now_s: float, period_s: float) -> tuple[float, int]:
    """When the next beat is due, and how many were missed altogether; the grid never shifts."""
    due_s += period_s
    missed = max(0, math.floor((now_s - due_s) / period_s))
    return due_s + missed * period_s, missed


def run(found: Found, log: SampleLog, options: argparse.Namespace, wait: Wait) -> None:
    """Sample on the beat until told to stop, the duration is over, or the parent is gone.

    Raises:
        OSError: the file cannot be written any more.
    """
    gpus = list(found.gpus)
    period_s = options.period if gpus else max(options.period, IDLE_BEAT_S)
    due_s = time.monotonic()
    ends_s = due_s + options.duration
    beat, previous, beats, skipped = 0, -1, 0, 0
    while not wait(min(due_s, ends_s) - time.monotonic()):
        if time.monotonic() >= ends_s or options.parent not in (None, os.getppid()):
            break
        slow = gpu_sampler.on_beat(beat, previous, SLOW_BEAT_S, period_s)
        with_gpm = gpu_sampler.on_beat(beat, previous, GPM_BEAT_S, period_s)
        for gpu in tuple(gpus):
            try:
                records = gpu_sampler.sample(found.nvml, gpu, slow=slow, with_gpm=with_gpm)
            except GpuLostError as error:
                records = [gpu_sampler.lost(gpu, error)]
                gpus.remove(gpu)
            for record in records:
                log.write(record)
        due_s, missed = next_beat(due_s, time.monotonic(), period_s)
        beat, previous, beats, skipped = beat + 1 + missed, beat, beats + 1, skipped + missed
    log.write(gpu_sampler.end(beats, skipped))
    log.close()


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = _parser().parse_args(argv)
    with told_to_stop() as wait:
        try:
            server = None if options.port is None else sidecar_http.bind(options.host, options.port)
        except OSError as error:
            return _refuse(f"{options.host}:{options.port}: {error.strerror}")
        try:
            log = SampleLog(options.out, options.mode)
            found = gpu_sampler.find_gpus()
            log.write(gpu_sampler.header(found, options.period))
        except FileExistsError:
            return _refuse(f"{options.out}: exists; name another --out, or use --append or --force")
        except FileNotFoundError:
            return _refuse(f"{options.out}: there is no such directory")
        except OSError as error:
            return _refuse(f"{options.out}: {error.strerror or error}")
        if server:
            sidecar_http.serve(server, log)
            _say(
                sys.stdout, f"tailgate sidecar ready on http://{options.host}:{server.server_port}"
            )
        if sys.stdout.isatty():
            _say(
                sys.stdout, f"tailgate sidecar writes {options.out}: {_seen(found, options.period)}"
            )
        try:
            run(found, log, options, wait)
        except OSError as error:
            _say(sys.stderr, f"nvml_sidecar: {options.out}: cannot be written: {error.strerror}")
            return 1
        finally:
            gpu_sampler.stop(found)
    return 0


@contextmanager
def told_to_stop() -> Iterator[Wait]:
    """Sleeps that SIGTERM and SIGINT end: `wait(seconds)` is True once the process is to stop.

    The signals become bytes on a socket, so that none interrupts the writing of a line.
    """
    heard, ears = socket.socketpair()
    heard.setblocking(False)
    ears.setblocking(False)

    def wait(seconds: float) -> bool:
        return bool(select.select([heard], [], [], max(0.0, seconds))[0])

    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT)}
    fd_before = signal.set_wakeup_fd(ears.fileno(), warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(fd_before)
        for one, handler in before.items():
            signal.signal(one, handler)
        heard.close()
        ears.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m target.nvml_sidecar",
        description="Sample every GPU of this host through NVML into a file of JSON lines.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--out", type=Path, default=Path("gpu.jsonl"), help="the file (default: gpu.jsonl)")
    add(
        "--period",
        type=_period,
        default=0.5,
        metavar="SECONDS",
        help=f"time between samples, {SHORTEST_PERIOD_S} or more (default: 0.5); "
        "NVML itself has new values each 0.1 to 0.2 s",
    )
    add("--duration", type=_duration, default=math.inf, metavar="SECONDS", help="stop after it")
    add(
        "--port",
        type=_port,
        help="answer /samples?since=LINE, /clock, /health here (0: a free one)",
    )
    add("--host", default="127.0.0.1", help="address for --port (default: 127.0.0.1)")
    add("--parent", type=int, metavar="PID", help="stop when this process is no longer the parent")
    modes = parser.add_mutually_exclusive_group()
    for mode, text in (("append", "go on in a file that exists"), ("force", "replace it")):
        modes.add_argument(
            f"--{mode}", dest="mode", action="store_const", const=mode, default="new", help=text
        )
    return parser


def _period(text: str) -> float:
    return _seconds(text, SHORTEST_PERIOD_S, LONGEST_PERIOD_S)


def _duration(text: str) -> float:
    return _seconds(text, SHORTEST_PERIOD_S, math.inf)


def _seconds(text: str, least: float, most: float) -> float:
    allowed = f"{least} or more" if most == math.inf else f"{least} to {most:g}"
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds") from None
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"{text} s is outside what is allowed: {allowed} s")
    return seconds


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"{text!r} is no port; allowed: 0 to 65535")
    return int(text)


def _seen(found: Found, period_s: float) -> str:
    if found.unavailable:
        return f"no samples ({found.unavailable})"
    names = ", ".join(str(gpu.about["name"] or "unnamed") for gpu in found.gpus)
    return f"{len(found.gpus)} GPU{'s' * (len(found.gpus) > 1)} ({names}) each {period_s:g} s"


def _refuse(why: str) -> int:
    _say(sys.stderr, f"nvml_sidecar: {why}")
    return 2


def _say(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
