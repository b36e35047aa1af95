"""The command `slo check`: judge a run that is there, or load a target and judge that."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from slo import baselines, drive, planning, run_lock, rundir, slofile, verdict_file
from slo import options as o
from slo.edge import existing, stderr, stdout, writing
from slo.ending import UsageError
from slo.objectives import Load, Slo
from slo.sending import Sending, What
from slo.verdict import EXIT_CODE, Result, Verdict

if TYPE_CHECKING:  # what judges loads scipy, which is slow to start
    from slo.beside import Baseline

SPOILT = ("files", "void")
DEFAULT_WARMUP_S = 5.0  # the load engine's own
HTML, MARKDOWN, JUNIT = "report.html", "report.md", "junit.xml"
NO_COPIES: Mapping[str, Path | None] = MappingProxyType({})

# What an INCONCLUSIVE verdict does to a pipeline.
INCONCLUSIVE = {"fail": EXIT_CODE[Result.FAIL], "pass": 0, "warn": 0}
BASELINES = Path(".tailgate") / "baselines.json"


BaselineName = Annotated[
    str | None,
    typer.Option(metavar="NAME|RUN", help="Baseline of max_change; default: slo.yaml's."),
]
Inconclusive = Annotated[
    str | None,
    o.option("WORD", o.one_of(*INCONCLUSIVE), "fail (1), pass (0), warn (0). Default: exit 3."),
]
Store = Annotated[
    Path, typer.Option("--baselines", metavar="FILE", help="Where baselines are kept by name.")
]


@o.with_groups
def check_(
    context: typer.Context,
    run: Annotated[
        Path | None, typer.Argument(metavar="[RUN]", help="A run directory; or give --target.")
    ] = None,
    *,
    slo: Annotated[Path, o.file("The objectives.")],
    target: Annotated[
        str | None, o.option("URL", o.target, "Load this server, and judge that.")
    ] = None,
    budget: Annotated[
        float | None,
        o.time("End the load after so long, and judge what is there."),
    ] = None,
    inconclusive: Inconclusive = None,
    annotations: Annotated[
        str | None, o.option("NAME", o.one_of("github"), "Also print workflow commands: github.")
    ] = None,
    baseline: BaselineName = None,
    store: Store = BASELINES,
    sending: Sending,
    json: Annotated[Path | None, o.file("Also write verdict.json here.")] = None,
    junit: Annotated[Path | None, o.file("Also write JUnit XML here.")] = None,
    markdown: Annotated[Path | None, o.file("Also write Markdown here.")] = None,
    html: Annotated[Path | None, o.file("Also write the HTML report here.")] = None,
) -> int:
    """Judge a run, or load a target and judge that; the exit code is the verdict's.

    With --target the load is the one of the slo.yaml; it ends early once a miss is certain.
    verdict.json, report.html, report.md and junit.xml go into the run's directory.
    """
    objectives = slofile.load_slo(slo)
    asked = Asked(
        slo,
        objectives,
        {rundir.VERDICT: json, JUNIT: junit, MARKDOWN: markdown, HTML: html},
        baselines.find(baseline or objectives.baseline, store),
        annotations,
        inconclusive,
    )
    if (run is None) == (target is None):
        raise UsageError("give a RUN directory, or --target URL to make one")
    if run is not None:
        if ignored := o.typed(context, Sending, "budget"):
            raise UsageError(f"{ignored[0]}: RUN is there already; this goes with --target")
        if pid := run_lock.writer(existing(run)):
            raise UsageError(
                f"{run}: process {pid} still writes this run; judge it when it has ended"
            )
        return _concluded(run, asked)
    load = sending.load(target or "", What().filled_in(objectives.load))
    warmup_s = DEFAULT_WARMUP_S if load.warmup_s is None else load.warmup_s
    if budget is not None and budget <= warmup_s:
        raise UsageError(f"--budget: {budget:g} s are over before the warm-up of {warmup_s:g} s is")
    directory, code = _loaded(load, sending, objectives, budget)
    try:
        return code if code == drive.EXIT_INTERRUPTED else _concluded(directory, asked)
    finally:
        typer.echo(directory)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be done with a run that is there."""

    slo: Path
    objectives: Slo
    copies: Mapping[str, Path | None]
    baseline: "Baseline | None"
    annotations: str | None
    inconclusive: str | None


def _concluded(directory: Path, asked: Asked) -> int:
    """Judge, and say it in all the ways that were asked for."""
    verdict = judged(directory, asked.objectives, asked.copies, asked.baseline, asked.inconclusive)
    if asked.annotations is not None:
        import reports.annotations

        said = reports.annotations.render(verdict, str(asked.slo), asked.inconclusive)
        typer.echo(said, nl=False)
    if verdict.result is not Result.INCONCLUSIVE or asked.inconclusive is None:
        return verdict.exit_code
    if asked.inconclusive == "warn":
        typer.echo("slo check: warning: INCONCLUSIVE, taken for a pass", err=True)
    return INCONCLUSIVE[asked.inconclusive]


def _loaded(
    load: drive.Load, sending: Sending, objectives: Slo, budget_s: float | None
) -> drive.Ended:
    """Load the target until the schedule's end, a certain miss, or the budget's end."""
    say_what_cannot_pass(objectives)

    def until(directory: Path) -> Callable[[], str | None]:
        from slo import early_stop  # loads scipy

        return early_stop.until(directory, objectives, budget_s, time.monotonic)

    return sending.send(load, stderr(), until)


def say_what_cannot_pass(
    objectives: Slo | None, rate_per_s: float | None = None, duration_s: float | None = None
) -> None:
    """Name what the planned run is too small for; what is not given is that of the slo.yaml."""
    if objectives is None:
        return
    load = objectives.load
    planned = Load(rate_per_s or load.rate_per_s, duration_s=duration_s or load.duration_s)
    for sentence in planning.never_met(objectives, planned):
        typer.echo(f"slo: warning: {sentence}", err=True)


def judged(
    directory: Path,
    objectives: Slo,
    copies: Mapping[str, Path | None] = NO_COPIES,
    baseline: "Baseline | None" = None,
    inconclusive: str | None = None,
) -> Verdict:
    """Judge, write what is derived, print.

    Raises:
        RunDirError: a file of the run is spoilt.
        UsageError: it cannot be written there, or a copy elsewhere.
    """
    from slo.beside import NO_BASELINE
    from slo.judge import judge  # loads scipy: most of a second that only this needs

    found = baseline or baselines.find(objectives.baseline, BASELINES)
    try:
        verdict = judge(directory, objectives, found or NO_BASELINE)
    except rundir.RunDirError:
        with writing(directory):  # what an earlier check said stands no more
            for derived in (rundir.VERDICT, HTML, MARKDOWN, JUNIT):
                (directory / derived).unlink(missing_ok=True)
        raise
    with writing(directory):
        verdict_file.write_verdict(directory, verdict)
    spoilt = [check.why for check in verdict.validity if (check.check, check.outcome) == SPOILT]
    draw(directory, verdict, None if spoilt else stdout(), inconclusive)
    for name, copy in copies.items():
        if copy is not None:
            with writing(copy):
                rundir.write_atomic(copy, (directory / name).read_text(encoding="utf-8"))
    if spoilt:  # a table of what is left of such a run would only mislead
        raise rundir.RunDirError(spoilt[0])
    return verdict


def draw(
    directory: Path,
    verdict: Verdict,
    console: Console | None = None,
    inconclusive: str | None = None,
) -> None:
    """Draw the reports of a judged run."""
    import reports.html  # loads matplotlib, as slow to start as scipy
    import reports.junit
    import reports.markdown
    import reports.terminal
    from slo.summarise import summarise

    run, summary = rundir.read_run(directory), summarise(directory)
    for name, text in (
        (JUNIT, reports.junit.render(verdict, inconclusive)),
        (MARKDOWN, reports.markdown.render(verdict, summary, run)),
        (HTML, reports.html.render(verdict, summary, run)),
    ):
        with writing(directory / name):
            rundir.write_atomic(directory / name, text)
    if console is not None:
        reports.terminal.render(verdict, summary, console)
