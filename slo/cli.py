"""The command `slo`: from its arguments to an exit code."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from slo import (
    baseline_cli,
    check_cli,
    children,
    cli_evidence,
    demo,
    drive,
    ending,
    import_cli,
    restate,
    slofile,
    verdict_file,
)
from slo import options as o
from slo.check_cli import stderr
from slo.compare_cli import add_to
from slo.ending import EXIT_CODES, UsageError
from slo.objectives import Load, Slo
from slo.verdict import EXIT_USAGE

app = typer.Typer(
    rich_markup_mode=None,
    add_completion=False,
    no_args_is_help=True,
    help="Does this LLM server meet its latency targets at this request rate, and if not, why?",
    epilog=EXIT_CODES,
)


@dataclass(slots=True)
class Switches:
    """What stands before the command's name."""

    debug: bool = False


RunDirectory = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"slo {version('tailgate')}")
        raise typer.Exit


@app.callback()
def top(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Say it, and end."),
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of a fault of our own.")
    ] = False,
) -> None:
    context.obj.debug = debug


@app.command()
def run(
    target: o.Target,
    model: o.Model = None,
    rate: o.Rate = None,
    duration: o.Duration = None,
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
    max_requests: o.MaxRequests = None,
    max_total_tokens: o.MaxTotalTokens = None,
    api_key_env: o.ApiKeyEnv = None,
    ready_timeout: o.ReadyTimeout = "60s",  # type: ignore[assignment]  # typer parses it
    sidecar: o.Sidecar = "local",
    slo: o.SloFile = None,
    label: o.Label = None,
    out: o.Out = None,
    store_answers: o.StoreAnswers = False,
    force: o.Force = False,
) -> int:
    """Load a target; the run's directory is the last line.

    Options that are not given come from the load: of --slo, then from the defaults named here.
    Ctrl-C ends the run early: open requests get a short time, and what was measured is kept.
    """
    objectives = slofile.load_slo(slo) if slo else None
    asked = Load(rate, arrival, duration, warmup, mix, input_class, max_tokens)
    load = drive.Load(
        target=target,
        **o.filled_in(asked, objectives.load if objectives else Load()),
        model=model,
        temperature=temperature,
        top_p=top_p,
        ignore_eos=ignore_eos,
        reasoning=reasoning,
        seed=seed,
        workers=workers,
        timeout_s=timeout,
        max_in_flight=max_in_flight,
        max_requests=max_requests,
        max_total_tokens=max_total_tokens,
        api_key_env=api_key_env,
        label=label,
        store_answers=store_answers,
    )
    check_cli.say_what_cannot_pass(objectives, load.rate_per_s, load.duration_s)
    directory, code = drive.run(
        load, out, force=force, ready_timeout_s=ready_timeout, gpu=sidecar, console=stderr()
    )
    return _finished(directory, code, objectives)


app.command(name="check")(check_cli.check_)
app.add_typer(baseline_cli.app, name="baseline")
app.command(name="import")(import_cli.import_)
app.command(name="import-openslo")(import_cli.import_openslo_)


@app.command()
def report(run: RunDirectory) -> int:
    """Draw the reports of a judged run again."""
    directory = check_cli.existing(run)
    verdict = verdict_file.read_verdict(directory)
    check_cli.draw(directory, verdict)
    typer.echo(directory / check_cli.HTML)
    return 0


@app.command()
def validate(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="slo.yaml files.")],
) -> int:
    """Name all mistakes in slo.yaml files, or what they ask."""
    code = 0
    for path in files:
        try:
            objectives = slofile.load_slo(path)
            typer.echo(f"{path}: {restate.in_words(objectives)}")
            check_cli.say_what_cannot_pass(objectives)
        except slofile.SloFileError as error:
            typer.echo(str(error), err=True)
            code = EXIT_USAGE
    return code


app.command(name="diagnose")(cli_evidence.diagnose_)
app.command(name="lint")(cli_evidence.lint_)
add_to(app)


@app.command(name="demo")
def demo_(
    engine: Annotated[
        str, typer.Option(metavar="hf|sim", help="hf: a tiny real model; sim: no torch needed.")
    ] = "hf",
    out: o.Out = None,
    duration: o.Duration = None,
) -> int:
    """Serve a tiny model here, load it and judge it."""
    if engine not in demo.NEEDS:
        raise UsageError(f"--engine: {engine!r} is not known; allowed: {', '.join(demo.NEEDS)}")
    demo.require_extras(engine)
    objectives = demo.objectives(duration)
    console = stderr()
    directory = drive.made(out or demo.default_directory(engine, datetime.now(UTC)))
    with demo.serving(engine, directory, console) as url:
        _, code = drive.run(
            demo.load(url, objectives),
            directory,
            force=False,
            ready_timeout_s=demo.READY_S,
            gpu="local",
            console=console,
        )
    if code != drive.EXIT_INTERRUPTED:
        code = check_cli.judged(directory, objectives).exit_code
        typer.echo(f"report: {directory / check_cli.HTML}")
    return code


def _finished(directory: Path, code: int, objectives: Slo | None) -> int:
    """Judge the run if that was asked for; its directory is the last line in any case."""
    try:
        if objectives is None or code == drive.EXIT_INTERRUPTED:
            return code
        return check_cli.judged(directory, objectives).exit_code
    finally:
        typer.echo(directory)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code, which is 1 for a missed SLO only."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join(["slo", *[word for word in argv[:1] if not word.startswith("-")]])
    switches = Switches()
    children.on_signals_stop()
    try:
        command = typer.main.get_command(app)
        with command.make_context("slo", argv, obj=switches) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as end:
        return end.exit_code
    except (Exception, KeyboardInterrupt) as error:
        return ending.exit_code(error, name, debug=switches.debug)


if __name__ == "__main__":
    sys.exit(main())
