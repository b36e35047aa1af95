"""`slo soak`: many hours at one rate, ended early where memory or latency grows."""

import json as json_module
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from slo import capacity_options as c
from slo import drive, rundir
from slo import options as o
from slo.progress import Tail
from slo.verdict import EXIT_CODE, Result

if TYPE_CHECKING:
    from slo.soak import Pair, Window

FILE = "soak.json"

Hours = Annotated[float, c.time("--duration", "How long at most: 8h.")]
Width = Annotated[float, c.time("--window", "One point of each trend.")]
Before = Annotated[float, c.time("--warmup", "Load before the first window.")]


def soak_(
    target: o.Target,
    rate: Annotated[float, c.level("--rate", "Arrivals: 3/s, 90/m.")],
    duration: Hours = "8h",  # type: ignore[assignment]
    window: Width = "10m",  # type: ignore[assignment]
    warmup: Before = "60s",  # type: ignore[assignment]
    model: o.Model = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    max_tokens: o.MaxTokens = None,
    ignore_eos: o.IgnoreEos = False,
    seed: o.Seed = None,
    workers: o.Workers = 1,
    api_key_env: o.ApiKeyEnv = None,
    ready_timeout: o.ReadyTimeout = "60s",  # type: ignore[assignment]
    sidecar: o.Sidecar = "local",
    out: o.Out = None,
    force: o.Force = False,
) -> int:
    """Load a target for hours, and say whether its memory or its latency grows.

    The run ends early once that is sure. Exits with 1 where something grows, 3 where the windows
    were too few to say, 0 else. The run's folder is the last line; soak.json in it has all windows.
    """
    load = drive.Load(
        target=target, rate_per_s=rate, duration_s=duration, warmup_s=warmup, model=model, mix=mix,
        input_class=input_class, max_tokens=max_tokens, ignore_eos=ignore_eos, seed=seed,
        workers=workers, api_key_env=api_key_env, label="soak",
    )  # fmt: skip
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-soak"

    def until(directory: Path) -> Callable[[], str | None]:
        return Watch(directory, warmup, window).why_stop

    directory, code = drive.run(
        load, folder, force=force, ready_timeout_s=ready_timeout, gpu=sidecar,
        console=Console(stderr=True), until=until,
    )  # fmt: skip
    code = report(directory, warmup, window) if code != drive.EXIT_INTERRUPTED else code
    typer.echo(directory)
    return code


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
    from slo.soak import FEWEST, growths

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
    if not grown:
        typer.echo(f"{len(found)} windows are too few to say; needed are {FEWEST}")
        return EXIT_CODE[Result.INCONCLUSIVE]
    return 0
