"""`slo capacity`: the highest load that keeps the promise."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from slo import capacity_options as c
from slo import drive, slofile
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load, Slo

if TYPE_CHECKING:
    from slo.capacity_search import Answer

OVER = ("rate", "concurrency")
HTML = "capacity.html"


def capacity_(
    target: o.Target,
    slo: c.SloFile,
    over: c.Over = "rate",
    low: c.Low = None,
    high: c.High = None,
    resolution: c.Resolution = "5%",  # type: ignore[assignment]  # typer parses it
    budget: c.Budget = "60m",  # type: ignore[assignment]
    shortest: c.Shortest = "10s",  # type: ignore[assignment]
    cooldown: c.Cooldown = "60s",  # type: ignore[assignment]
    current: c.Current = None,
    model: o.Model = None,
    arrival: o.Arrival = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    max_tokens: o.MaxTokens = None,
    temperature: o.Temperature = None,
    ignore_eos: o.IgnoreEos = False,
    reasoning: o.Reasoning = None,
    seed: o.Seed = None,
    workers: o.Workers = 1,
    timeout: o.Timeout = None,
    max_in_flight: o.MaxInFlight = None,
    api_key_env: o.ApiKeyEnv = None,
    ready_timeout: o.ReadyTimeout = "60s",  # type: ignore[assignment]
    sidecar: o.Sidecar = "local",
    out: o.Out = None,
    force: o.Force = False,
) -> int:
    """Find the highest load that keeps the promise, and the lowest that breaks it.

    The answer is an interval: a rate that passes, a rate that fails, each with the confidence that
    slo.yaml asks for. The same command goes on with a search that was interrupted. Its folder is
    the last line; capacity.json in it holds all probes. Exits with 0 where a rate passes, 1 where
    even the lowest fails, 3 where nothing is proven, 4 where nothing could be measured.
    """
    objectives = slofile.load_slo(slo)
    asked = Load(arrival=arrival, mix=mix, input_class=input_class, max_tokens=max_tokens)
    load = drive.Load(
        target=target, rate_per_s=1.0, duration_s=1.0, **kept(asked, objectives.load, over),
        model=model, temperature=temperature, ignore_eos=ignore_eos, reasoning=reasoning,
        seed=seed, workers=workers, timeout_s=timeout, max_in_flight=max_in_flight,
        api_key_env=api_key_env, label="capacity",
    )  # fmt: skip
    effort = Effort(over, low, high, resolution, budget, shortest, cooldown, ready_timeout, sidecar)
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-capacity"
    found = searched(load, objectives, effort, current, folder, force=force)
    typer.echo(folder)
    return found.exit_code


@dataclass(frozen=True, slots=True)
class Effort:
    """Where a search looks, and what it may cost."""

    over: str = "rate"
    low: float | None = None
    high: float | None = None
    resolution: float = 0.05
    budget_s: float = 3600.0
    shortest_s: float = 10.0
    cooldown_s: float = 60.0
    ready_timeout_s: float = 60.0
    gpu: str = "local"


def kept(asked: Load, wanted: Load, over: str) -> dict[str, Any]:
    """What every probe keeps of a load: as asked, else as slo.yaml says.

    Raises:
        UsageError: `over` is not known.
    """
    if over not in OVER:
        raise UsageError(f"--over: {over!r} is not known; allowed: {', '.join(OVER)}")
    names = ("arrival", "mix", "input_class", "max_tokens")
    return {name: getattr(asked, name) or getattr(wanted, name) for name in names}


def searched(
    load: drive.Load, slo: Slo, effort: Effort, current: float | None, folder: Path, *, force: bool
) -> "Answer":
    """Search, draw the page, and print the answer."""
    from slo.capacity_probe import Setting, judged_by  # scipy is slow to start
    from slo.capacity_run import limits_for, search, sentence

    whole = effort.over == "concurrency"
    setting = Setting(
        load, judged_by(slo), folder, effort.over, effort.gpu, effort.ready_timeout_s,
        effort.cooldown_s, Console(stderr=True),
    )  # fmt: skip
    limits = limits_for(
        slo, low=effort.low, high=effort.high, resolution=effort.resolution,
        budget_s=effort.budget_s, shortest_s=effort.shortest_s, whole=whole,
    )  # fmt: skip
    found = search(
        setting, limits, current or (None if whole else slo.load.rate_per_s), force=force
    ).answer
    assert found is not None
    draw(folder)
    typer.echo(sentence(found, whole=whole))
    if found.knee is not None:
        knee = found.knee
        typer.echo(f"At {knee.rate:.4g}: {knee.word}: {knee.sentence} {knee.next_step}")
    return found


def draw(folder: Path) -> None:
    """Write capacity.html beside capacity.json."""
    import reports.capacity  # loads matplotlib
    from slo.capacity_search import read_search
    from slo.rundir import write_atomic

    write_atomic(folder / HTML, reports.capacity.render(read_search(folder)))
