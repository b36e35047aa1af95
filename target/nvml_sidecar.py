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

from target import gpu_metrics, gpu_sampler, sidecar_http, sidecar_watch
from target.gpu_metrics import Latest
from target.gpu_sampler import GPM_BEAT_S, SLOW_BEAT_S, SLOWEST_BEAT_S, Found
from target.nvml_reading import GpuLostError, Values
from target.sample_log import SampleLog
from target.sidecar_options import parser

IDLE_BEAT_S = 1.0  # without GPUs there is only the parent to look after

Wait = Callable[[float], bool]
See = Callable[[list[Values]], None]


def next_beat(due_s: float, now_s: float, period_s: float) -> tuple[float, int]:
    """When the next beat is due, and how many were missed altogether; the grid never shifts."""
    due_s += period_s
    missed = max(0, math.floor((now_s - due_s) / period_s))
    return due_s + missed * period_s, missed


def run(found: Found, log: SampleLog, options: argparse.Namespace, wait: Wait, see: See) -> None:
    """Sample on the beat until told to stop, the duration is over, or the parent is gone.

    `see` is handed the records of each beat.

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
        slowest = gpu_sampler.on_beat(beat, previous, SLOWEST_BEAT_S, period_s)
        records: list[Values] = []
        gone = [gpu for gpu in found.gpus if gpu not in gpus]
        for gpu in tuple(gpus):
            try:
                records += gpu_sampler.sample(
                    found.nvml, gpu, slow=slow, with_gpm=with_gpm, slowest=slowest
                )
            except GpuLostError as error:
                records.append(gpu_sampler.lost(gpu, error))
                gpus.remove(gpu)
        if slowest:  # after the others, since the answer of a GPU that is gone may take long
            gpus += [gpu for gpu in gone if gpu_sampler.is_back(found.nvml, gpu)]
        for record in records:
            log.write(record)
        see(records)
        due_s, missed = next_beat(due_s, time.monotonic(), period_s)
        beat, previous, beats, skipped = beat + 1 + missed, beat, beats + 1, skipped + missed
    log.write(gpu_sampler.end(beats, skipped))
    log.close()


def main(argv: list[str] | None = None) -> int:
    """The command; returns its exit code."""
    options = parser().parse_args(argv)
    with told_to_stop() as wait:
        try:
            server = None if options.port is None else sidecar_http.bind(options.host, options.port)
        except OSError as error:
            return _refuse(f"{options.host}:{options.port}: {error.strerror}")
        # To watch leaves nothing behind, unless a file is named.
        out = options.out or Path(os.devnull if options.watch else "gpu.jsonl")
        try:
            log = SampleLog(out, "force" if str(out) == os.devnull else options.mode)
            found = gpu_sampler.find_gpus()
            log.write(gpu_sampler.header(found, options.period))
        except FileExistsError:
            return _refuse(f"{out}: exists; name another --out, or use --append or --force")
        except FileNotFoundError:
            return _refuse(f"{out}: there is no such directory")
        except OSError as error:
            return _refuse(f"{out}: {error.strerror or error}")
        if server:
            sidecar_http.serve(server, log)
            _say(
                sys.stdout, f"tailgate sidecar ready on http://{options.host}:{server.server_port}"
            )
        if sys.stdout.isatty() and not options.watch:
            _say(sys.stdout, f"tailgate sidecar writes {out}: {_seen(found, options.period)}")
        try:
            with seeing(found, options) as see:
                run(found, log, options, wait, see)
        except MetricsPortError as error:
            return _refuse(str(error))
        except OSError as error:
            _say(sys.stderr, f"nvml_sidecar: {out}: cannot be written: {error.strerror}")
            return 1
        finally:
            gpu_sampler.stop(found)
    return 0


class MetricsPortError(Exception):
    """The port for Prometheus cannot be had; one line."""


@contextmanager
def seeing(found: Found, options: argparse.Namespace) -> Iterator[See]:
    """What else is done with each beat's records: Prometheus metrics, a live view.

    Raises:
        MetricsPortError: its address cannot be bound.
    """
    latest = Latest(found)
    if options.metrics_port is not None:
        place = f"{options.host}:{options.metrics_port}"
        try:
            port = gpu_metrics.serve(latest, options.host, options.metrics_port)
        except OSError as error:
            raise MetricsPortError(f"{place}: {error.strerror}") from None
        except ModuleNotFoundError:
            raise MetricsPortError("--metrics-port needs pip install 'tailgate[gpu]'") from None
        _say(sys.stdout, f"tailgate metrics on http://{options.host}:{port}/metrics")
    if not options.watch:
        yield lambda records: _see(latest, records)
        return
    if found.unavailable:
        _say(sys.stdout, f"nothing to watch: {found.unavailable}")
    with sidecar_watch.watching(latest) as draw:

        def see(records: list[Values]) -> None:
            _see(latest, records)
            draw()

        yield see


def _see(latest: Latest, records: list[Values]) -> None:
    for record in records:
        latest.see(record)


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
