"""`slo soak`: many hours at one rate, ended early where memory or latency grows."""

import json as json_module
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slo import drive, edge, quantities, rundir
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load
from slo.progress import Tail
from slo.sending import Sending, What
from slo.verdict import EXIT_CODE, Result

if TYPE_CHECKING:
    from slo.soak import Pair, Window

FILE = "soak.json"


@o.with_groups
def soak_(
    target: o.Target,
    rate: o.Rate,
    duration: Annotated[
        float, o.time("How long at most: 8h.")
    ] = "8h",  # type: ignore[assignment]  # typer parses it
    window: Annotated[
        float, o.time("One point of each trend.")
    ] = "10m",  # type: ignore[assignment]
    warmup: Annotated[
        float, o.option("TIME", quantities.duration_s, "Load before the first window.")
    ] = "60s",  # type: ignore[assignment]
    *,
    what: Annotated[What, o.only("mix", "input_class", "max_tokens")],
    sending: Annotated[
        Sending,
        o.only(
            "model", "ignore_eos", "seed", "workers", "api_key_env", "ready_timeout_s", "gpu",
            "out", "force",
        ),
    ],
) -> int:  # fmt: skip
    """Load a target for hours, and say whether its memory or its latency grows.

    The run ends early once that is sure. Exits with 1 where something grows, 3 where the windows
    cannot say of all, 0 where all is steady. The run's folder is the last line; soak.json in it has
    all windows.
    """
    from slo.soak import FEWEST  # loads scipy

    if duration <= FEWEST * window:
        least = quantities.show_s(FEWEST * window)
        raise UsageError(
            f"--duration: {FEWEST} windows are needed to see a trend; say more than {least}"
        )
    whole = replace(what, rate_per_s=rate, duration_s=duration, warmup_s=warmup)
    load = sending.load(target, whole.filled_in(Load()), label="soak")

    def until(directory: Path) -> Callable[[], str | None]:
        return Watch(directory, warmup, window).why_stop

    there = replace(sending, out=sending.folder("soak"))
    directory, code = there.send(load, edge.stderr(), until)
    found = report(directory, warmup, window)
    typer.echo(directory)
    # Of a run that broke off, only what grew is proven.
    broke_off = code == drive.EXIT_INCOMPLETE and found != EXIT_CODE[Result.FAIL]
    return code if broke_off or code == drive.EXIT_INTERRUPTED else found


class Watch:
    """A soak that runs: new windows are looked at as they end."""

    def __init__(self, directory: Path, warmup_s: float, window_s: float) -> None:
        self._directory, self._warmup_s, self._window_s = directory, warmup_s, window_s
        self._tail = Tail(directory / rundir.REQUESTS)
        self._e2e: list[Pair] = []
        self._next_s = time.monotonic() + warmup_s + window_s

    def why_stop(self) -> str | None:
        """What grows, once that is sure."""
        if time.monotonic() < self._next_s:
            return None
        self._next_s += self._window_s
        from slo.soak import growths

        self._e2e += e2e_of(self._tail.lines())
        try:
            found = growths(windows(self._directory, self._e2e, self._warmup_s, self._window_s))
        except rundir.RunDirError:
            return None
        sure = [growth.sentence for growth in found if growth.grows]
        return sure[0] if sure else None


def e2e_of(lines: list[bytes]) -> "Iterator[Pair]":
    """When each request was due, and how long it took; a failed one took for ever."""
    for line in lines:
        record = json_module.loads(line)
        due_s, last_s = record["due_s"], record.get("last_token_s")
        failed = record.get("error") is not None or last_s is None
        yield due_s, float("inf") if failed else last_s - due_s


def windows(directory: Path, e2e: "list[Pair]", warmup_s: float, window_s: float) -> "list[Window]":
    """All whole windows so far: those in which a later request has ended already."""
    from slo.gpu_log import read_gpu_log
    from slo.server_log import read_server_log
    from slo.soak import memory_of, windows_of

    run = rundir.read_run(directory)
    server = read_server_log(directory / rundir.SERVER, t0_mono_ns=run.t0_mono_ns)
    gpu = read_gpu_log(directory / rundir.GPU, t0_wall_ns=run.t0_wall_ns, t0_mono_ns=run.t0_mono_ns)
    end_s = max((due_s for due_s, _ in e2e), default=0.0)
    return windows_of(e2e, memory_of(server, gpu), start_s=warmup_s, end_s=end_s, window_s=window_s)


def report(directory: Path, warmup_s: float, window_s: float) -> int:
    """Write soak.json, say what grew, and return the exit code."""
    from slo.soak import FEWEST, FLOORS, growths

    e2e = list(e2e_of(Tail(directory / rundir.REQUESTS).lines()))
    found = windows(directory, e2e, warmup_s, window_s)
    grown = growths(found)
    document = {
        "schema": "1.0",
        "windows": [asdict(one) for one in found],
        "growths": [asdict(one) for one in grown],
    }
    rundir.write_json(directory / FILE, document)
    for growth in grown:
        typer.echo(growth.sentence)
    if any(growth.grows for growth in grown):
        return EXIT_CODE[Result.FAIL]
    whole = True
    for what in FLOORS:
        known = sum(one.values[what] is not None for one in found)
        whole &= known == len(found)
        if known < FEWEST:
            typer.echo(f"{what}: measured in {known} windows; needed are {FEWEST} to say more")
        elif known < len(found):
            typer.echo(f"{what}: in {len(found) - known} of {len(found)} windows {_why_none(what)}")
    sure = whole and len(grown) == len(FLOORS) and all(growth.steady for growth in grown)
    return EXIT_CODE[Result.PASS if sure else Result.INCONCLUSIVE]


def _why_none(what: str) -> str:
    return "not measured" if what == "memory" else "it lies among failures, or nothing was due"
