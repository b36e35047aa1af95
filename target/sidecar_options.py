"""The options of the GPU sidecar."""

import argparse
import math
from pathlib import Path

SHORTEST_PERIOD_S = 0.05
LONGEST_PERIOD_S = 60.0

EPILOG = """\
A value that NVML does not give is null, never 0; the header names the error under "unsupported".
Energy and processes come once a second, throttled time each 5 s, GPM (Hopper and newer) at most
each 0.2 s; a sample without those keys did not ask. SIGTERM and SIGINT end it with exit code 0.

exit codes: 0 stopped, or --duration over; 1 the file cannot be written any more; 2 could not start
"""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m target.nvml_sidecar",
        description="Sample every GPU of this host through NVML into a file of JSON lines.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("--out", type=Path, help="the file (default: gpu.jsonl; with --watch none)")
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
    add(
        "--metrics-port",
        type=_port,
        help="answer Prometheus at /metrics here, under dcgm-exporter's names (9400, as it has)",
    )
    add("--host", default="127.0.0.1", help="address for both ports (default: 127.0.0.1)")
    add("--watch", action="store_true", help="show the GPUs here, live")
    add("--parent", type=int, metavar="PID", help="stop when this process is no longer the parent")
    modes = made.add_mutually_exclusive_group()
    for mode, text in (("append", "go on in a file that exists"), ("force", "replace it")):
        modes.add_argument(
            f"--{mode}", dest="mode", action="store_const", const=mode, default="new", help=text
        )
    return made


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
