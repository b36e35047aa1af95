"""The commands that set two servers side by side: `slo compare`, `slo ab` and `slo grade`."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from slo import ab, drive, quantities, rundir
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load

if TYPE_CHECKING:  # each command loads what it needs: scipy and its like are slow to start
    from slo.compare import Ask, Comparison

EXIT_CODES = """\b
Exit codes of a comparison:
  0    no gate got worse than allowed
  1    a gate got worse than allowed
  2    usage
  3    cannot say; it tells about how much more load would
  4    not comparable: what must match does not; or a run cannot be read
"""
HTML, MARKDOWN, JSON = "comparison.html", "comparison.md", "comparison.json"
LOG_WIDTH = 200
IN_TIME = ("ttft", "ttfat", "e2e")


def _in_time(text: str) -> dict[str, float]:
    limits = {}
    for part in text.split(","):
        name, _, limit = part.partition("=")
        if name not in IN_TIME:
            raise typer.BadParameter(f"{name!r} is no latency; allowed: {', '.join(IN_TIME)}")
        try:
            limits[name] = quantities.duration_s(limit)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    return limits


def _share(text: str) -> float:
    try:
        return quantities.share(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


Allow = Annotated[
    float,
    typer.Option(metavar="X%", parser=_share, help="By which a latency or rate may get worse."),
]
AllowPoints = Annotated[
    float,
    typer.Option(
        metavar="X%", parser=_share, help="By which a share (errors, accuracy) may, in points."
    ),
]
Gates = Annotated[
    list[str] | None,
    typer.Option(
        "--gate", help="What decides: e2e.p99, tpot.mean, error_rate. Several times for several."
    ),
]
Drift = Annotated[
    float,
    typer.Option(metavar="X%", parser=_share, help="Assumed between runs where few show it."),
]
Accept = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TERM", help="A term of the contract that may differ: client, prompts, seed."
    ),
]
InTime = Annotated[
    dict[str, float] | None,
    typer.Option(
        metavar="LIMITS", parser=_in_time, help="When a right answer is in time: e2e=5s,ttft=1s."
    ),
]
Like = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Also in an article's columns: 001_72f2d11827e83c58, 001-t3."),
]


def _file(flag: str, what: str) -> Any:
    return typer.Option(flag, metavar="FILE", help=f"Also write {what} here.")


def add_to(app: typer.Typer) -> None:
    """Add the commands to `slo`."""
    app.command(name="compare", epilog=EXIT_CODES)(compare_)
    app.command(name="ab", epilog=EXIT_CODES)(ab_)
    app.command(name="grade")(grade_)


def compare_(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A run, or a folder of runs.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The same of the other server.")],
    allow: Allow = "5%",  # type: ignore[assignment]  # typer parses it
    allow_points: AllowPoints = "1%",  # type: ignore[assignment]
    gate: Gates = None,
    drift: Drift = "3%",  # type: ignore[assignment]
    accept: Accept = None,
    in_time: InTime = None,
    like: Like = None,
    json: Annotated[Path | None, _file("--json", "JSON")] = None,
    markdown: Annotated[Path | None, _file("--markdown", "Markdown")] = None,
    html: Annotated[Path | None, _file("--html", "an HTML report")] = None,
) -> int:
    """Say what changed between two servers under the same load, and whether it got worse."""
    ask = _ask(allow, allow_points, gate, drift, accept, in_time)
    for path in (before, after):
        if not path.exists():
            raise UsageError(f"{path}: no such run directory")
    return _compared((before, after), ask, like, {JSON: json, MARKDOWN: markdown, HTML: html})


def ab_(
    before: o.Target,
    after: o.Target,
    rate: o.Rate = None,
    duration: o.Duration = "30s",  # type: ignore[assignment]
    pairs: Annotated[int, typer.Option(metavar="N", help="Blocks of each: 4, 6, 8, ...")] = 8,
    warmup: o.Warmup = None,
    arrival: o.Arrival = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    max_tokens: o.MaxTokens = None,
    temperature: o.Temperature = None,
    top_p: o.TopP = None,
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
    store_answers: o.StoreAnswers = False,
    allow: Allow = "5%",  # type: ignore[assignment]
    allow_points: AllowPoints = "1%",  # type: ignore[assignment]
    gate: Gates = None,
    in_time: InTime = None,
    like: Like = None,
) -> int:
    """Measure two servers in turns, ABBA, and compare them.

    Each pair of blocks has one schedule. The folder of all runs and reports is the last line. With
    --store-answers the answers are graded too, after the last block.
    """
    ask = _ask(allow, allow_points, gate, "3%", None, in_time)
    asked = Load(rate, arrival, duration, warmup, mix, input_class, max_tokens)
    targets = {ab.BEFORE: before, ab.AFTER: after}
    load = drive.Load(
        target=targets[ab.BEFORE],
        **o.filled_in(asked, Load()),
        temperature=temperature,
        top_p=top_p,
        ignore_eos=ignore_eos,
        reasoning=reasoning,
        seed=int.from_bytes(os.urandom(3)) if seed is None else seed,
        workers=workers,
        timeout_s=timeout,
        max_in_flight=max_in_flight,
        api_key_env=api_key_env,
        store_answers=store_answers,
    )
    folder = out or Path("runs") / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-ab"
    drive_one = _driver(ready_timeout, sidecar)
    return _ab(load, targets, pairs, folder, ask, like, drive_one)


def _driver(ready_timeout_s: float, gpu: str) -> Callable[[drive.Load, Path], int]:
    console = Console(stderr=True)

    def drive_one(load: drive.Load, directory: Path) -> int:
        console.print(f"{load.label}, block {directory.name}", markup=False, highlight=False)
        run = drive.run(
            load, directory, force=False, ready_timeout_s=ready_timeout_s, gpu=gpu, console=console
        )
        return run[1]

    return drive_one


def _ab(
    load: drive.Load,
    targets: dict[str, str],
    pairs: int,
    folder: Path,
    ask: "Ask",
    like: str | None,
    drive_one: Callable[[drive.Load, Path], int],
) -> int:
    try:
        code = ab.run(load, targets, pairs, folder, drive_one)
    except ValueError as error:
        raise UsageError(f"--pairs: {error}") from None
    try:
        if code != drive.EXIT_COMPLETE:
            return code
        if load.store_answers:
            for number in range(pairs):
                for side in (ab.BEFORE, ab.AFTER):
                    _grade(ab.directory_of(folder, ab.Block(side, number)))
        return _compared(
            (folder / ab.BEFORE, folder / ab.AFTER),
            ask,
            like,
            {n: folder / n for n in (JSON, MARKDOWN, HTML)},
        )
    finally:
        typer.echo(folder)


def grade_(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with stored answers.")],
) -> int:
    """Grade the answers that a run kept, into its grades.jsonl.

    Maths by value, code by unit tests in a sandbox: no network, no files, bounded memory and time.
    Where the sandbox cannot be set up, nothing is run.
    """
    if not run.exists():
        raise UsageError(f"{run}: no such run directory")
    typer.echo(_grade(run))
    return 0


def _grade(run: Path) -> str:
    from slo.grade import Verdict, grade_run

    counts = grade_run(run)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    return f"{run / rundir.GRADES}: {parts}"


def _ask(allow: Any, points: Any, gate: Any, drift: Any, accept: Any, in_time: Any) -> "Ask":
    from slo.compare import GATES, Ask
    from slo.compare_contract import NAMES

    if unknown := set(accept or ()) - set(NAMES):
        raise UsageError(f"--accept: {min(unknown)!r} is no term; allowed: {', '.join(NAMES)}")
    allowed, in_points, drifts = (
        _share(value) if isinstance(value, str) else value for value in (allow, points, drift)
    )
    return Ask(
        allow=allowed,
        allow_points=in_points,
        gates=tuple(gate or GATES),
        drift=drifts,
        accept=tuple(accept or ()),
        in_time=in_time or {},
    )


def _compared(
    sides: Sequence[Path], ask: "Ask", like: str | None, files: dict[str, Path | None]
) -> int:
    import reports.comparison
    import reports.comparison_html
    from slo.compare import compare, runs_in
    from slo.compare_like import like as like_tables

    try:
        found = compare(runs_in(sides[0]), runs_in(sides[1]), ask)
        tables = like_tables(like, found) if like else ()
    except ValueError as error:
        raise UsageError(str(error)) from None
    texts = {MARKDOWN: reports.comparison.markdown, HTML: reports.comparison_html.render}
    for name, path in files.items():
        if path is not None:
            _write(path, texts[name](found, tables) if name in texts else None, found)
    folds = sys.stdout.isatty() or "COLUMNS" in os.environ
    reports.comparison.terminal(found, tables, Console(width=None if folds else LOG_WIDTH))
    return found.exit_code


def _write(path: Path, text: str | None, found: "Comparison") -> None:
    try:
        if text is None:
            rundir.write_json(path, {"exit_code": found.exit_code, **asdict(found)})
        else:
            rundir.write_atomic(path, text)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from None
