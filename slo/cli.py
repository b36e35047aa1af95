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
    capacity_cli,
    check_cli,
    children,
    cli_evidence,
    demo,
    drive,
    ending,
    import_cli,
    nightly_cli,
    restate,
    run_cli,
    rundir,
    slofile,
    soak_cli,
    sweep_cli,
    verdict_file,
)
from slo import options as o
from slo.compare_cli import add_to
from slo.edge import existing, stderr
from slo.ending import EXIT_CODES
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


app.command(name="run")(run_cli.run_)
app.command(name="check")(check_cli.check_)
app.add_typer(baseline_cli.app, name="baseline")
app.command(name="import")(import_cli.import_)
app.command(name="import-openslo")(import_cli.import_openslo_)


@app.command()
def report(run: o.RunDirectory, inconclusive: check_cli.Inconclusive = None) -> int:
    """Draw the reports of a judged run again; --inconclusive is for junit.xml, as in slo check."""
    directory = existing(run)
    verdict = verdict_file.read_verdict(directory)
    check_cli.draw(directory, verdict, inconclusive=inconclusive)
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


app.command(name="capacity")(capacity_cli.capacity_)
app.command(name="sweep")(sweep_cli.sweep_)
app.command(name="nightly")(nightly_cli.nightly_)
app.command(name="trend")(nightly_cli.trend_)
app.command(name="soak")(soak_cli.soak_)
app.command(name="diagnose")(cli_evidence.diagnose_)
app.command(name="lint")(cli_evidence.lint_)
add_to(app)


@app.command(name="demo")
def demo_(
    engine: Annotated[
        str,
        o.option("hf|sim", o.one_of(*demo.NEEDS), "hf: a tiny real model; sim: no torch needed."),
    ] = "hf",
    out: o.Out = None,
    duration: o.Duration = None,
) -> int:
    """Serve a tiny model here, load it and judge it."""
    demo.require_extras(engine)
    objectives = demo.objectives(duration)
    console = stderr()
    directory = drive.made(out or rundir.default_directory(f"demo-{engine}", datetime.now(UTC)))
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
    except (
        SystemExit
    ) as end:  # rich's, where nobody reads on: its 1 would say that an SLO is missed
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return ending.EXIT_BROKEN_PIPE
    except (Exception, KeyboardInterrupt) as error:
        return ending.exit_code(error, name, debug=switches.debug)
