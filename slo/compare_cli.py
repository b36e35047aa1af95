"""The commands that set two servers side by side: `slo compare`, `slo ab` and `slo grade`."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slo import ab, drive, edge, quantities, rundir
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Load
from slo.sending import Sending, What

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
DRIFT = "3%"  # between runs, where too few of them show it
IN_TIME = ("ttft", "ttfat", "e2e")


def _in_time(text: str) -> dict[str, float]:
    limits = {}
    for part in text.split(","):
        name, _, limit = part.partition("=")
        if name not in IN_TIME:
            raise ValueError(f"{name!r} is no latency; allowed: {', '.join(IN_TIME)}")
        limits[name] = quantities.duration_s(limit)
    return limits


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may get worse by how much, and what is said of it besides."""

    allow: Annotated[
        float, o.option("X%", o.growth, "By which a latency or rate may get worse.")
    ] = "5%"  # type: ignore[assignment]  # typer parses it
    allow_points: Annotated[
        float,
        o.option("X%", quantities.part, "By which a share (errors, accuracy) may, in points."),
    ] = "1%"  # type: ignore[assignment]
    gate: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC",
            help="What decides: e2e.p99, tpot.mean, error_rate. Several times for several.",
        ),
    ] = None
    in_time: Annotated[
        dict[str, float] | None,
        o.option("LIMITS", _in_time, "When a right answer is in time: e2e=5s,ttft=1s."),
    ] = None
    like: Annotated[
        str | None,
        typer.Option(
            metavar="ID", help="Also in an article's columns: 001_72f2d11827e83c58, 001-t3."
        ),
    ] = None

    def ask(self, drift: float = quantities.share(DRIFT), accept: Sequence[str] = ()) -> "Ask":
        """What is wanted of the comparison.

        Raises:
            UsageError: a term to accept is none of the contract's, or a gate no metric.
        """
        from slo.compare import GATES, Ask
        from slo.compare_contract import NAMES
        from slo.compare_values import METRICS

        for gate in self.gate or ():
            if gate not in METRICS:
                near = get_close_matches(gate, METRICS, 3, 0.4) or GATES
                raise UsageError(
                    f"--gate: {gate!r} is no metric; allowed are {', '.join(near)} and so on"
                )

        if unknown := set(accept) - set(NAMES):
            raise UsageError(f"--accept: {min(unknown)!r} is no term; allowed: {', '.join(NAMES)}")
        return Ask(
            allow=self.allow,
            allow_points=self.allow_points,
            gates=tuple(self.gate or GATES),
            drift=drift,
            accept=tuple(accept),
            in_time=self.in_time or {},
        )


def add_to(app: typer.Typer) -> None:
    """Add the commands to `slo`."""
    app.command(name="compare", epilog=EXIT_CODES)(compare_)
    app.command(name="ab", epilog=EXIT_CODES)(ab_)
    app.command(name="grade")(grade_)


@o.with_groups
def compare_(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A run, or a folder of runs.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The same of the other server.")],
    allowed: Allowed,
    drift: Annotated[
        float, o.option("X%", quantities.part, "Assumed between runs where few show it.")
    ] = DRIFT,  # type: ignore[assignment]  # typer parses it
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TERM", help="A term of the contract that may differ: client, prompts, seed."
        ),
    ] = None,
    json: Annotated[Path | None, o.file("Also write JSON here.")] = None,
    markdown: Annotated[Path | None, o.file("Also write Markdown here.")] = None,
    html: Annotated[Path | None, o.file("Also write an HTML report here.")] = None,
) -> int:
    """Say what changed between two servers under the same load, and whether it got worse."""
    ask = allowed.ask(drift, accept or ())
    sides = edge.existing(before), edge.existing(after)
    return _compared(sides, ask, allowed.like, {JSON: json, MARKDOWN: markdown, HTML: html})


@o.with_groups
def ab_(
    before: o.Target,
    after: o.Target,
    what: Annotated[What, o.but(duration_s="30s")],
    sending: Annotated[
        Sending,
        o.only(
            "temperature", "top_p", "ignore_eos", "reasoning", "seed", "workers", "timeout_s",
            "max_in_flight", "api_key_env", "ready_timeout_s", "gpu", "out", "store_answers",
        ),
    ],
    allowed: Allowed,
    pairs: Annotated[int, typer.Option(metavar="N", help="Blocks of each: 4, 6, 8, ...")] = 8,
) -> int:  # fmt: skip
    """Measure two servers in turns, ABBA, and compare them.

    Each pair of blocks has one schedule. The folder of all runs and reports is the last line. With
    --store-answers the answers are graded too, after the last block.
    """
    ask = allowed.ask()
    targets = {ab.BEFORE: before, ab.AFTER: after}
    load = sending.load(before, what.filled_in(Load()))
    if load.seed is None:
        load = replace(load, seed=int.from_bytes(os.urandom(3)))
    folder = sending.folder("ab")
    if any(folder.glob(f"*/*/{rundir.RUN}")):
        raise UsageError(f"{folder}: holds a comparison already; name another --out")
    try:
        code = ab.run(load, targets, pairs, folder, _driver(sending))
    except ValueError as error:
        raise UsageError(f"--pairs: {error}") from None
    try:
        if code != drive.EXIT_COMPLETE:
            return code
        if load.store_answers:
            for number in range(pairs):
                for side in targets:
                    _grade(ab.directory_of(folder, ab.Block(side, number)))
        sides = folder / ab.BEFORE, folder / ab.AFTER
        reports = {name: folder / name for name in (JSON, MARKDOWN, HTML)}
        return _compared(sides, ask, allowed.like, reports)
    finally:
        typer.echo(folder)


def _driver(sending: Sending) -> Callable[[drive.Load, Path], int]:
    console = edge.stderr()

    def drive_one(load: drive.Load, directory: Path) -> int:
        console.print(f"{load.label}, block {directory.name}", markup=False, highlight=False)
        return replace(sending, out=directory).send(load, console)[1]

    return drive_one


def grade_(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run with stored answers.")],
) -> int:
    """Grade the answers that a run kept, into its grades.jsonl.

    Maths by value, code by unit tests in a sandbox: no network, no files, bounded memory and time.
    Where the sandbox cannot be set up, nothing is run.
    """
    typer.echo(_grade(edge.existing(run)))
    return 0


def _grade(run: Path) -> str:
    from slo.grade import Verdict, grade_run

    counts = grade_run(run)
    parts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict)
    return f"{run / rundir.GRADES}: {parts}"


def _compared(
    sides: Sequence[Path], ask: "Ask", like: str | None, files: Mapping[str, Path | None]
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
    reports.comparison.terminal(found, tables, edge.stdout())
    return found.exit_code


def _write(path: Path, text: str | None, found: "Comparison") -> None:
    with edge.writing(path):
        if text is None:
            rundir.write_json(path, {"exit_code": found.exit_code, **asdict(found)})
        else:
            rundir.write_atomic(path, text)
