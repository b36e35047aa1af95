"""The command `slo run`: from its options to a load, and from the load to a run directory."""

from pathlib import Path

import typer

from slo import check_cli, drive, slofile
from slo import options as o
from slo.check_cli import stderr
from slo.objectives import Load, Slo
from slo.sending import Sending, with_its_options


@with_its_options
def run_(
    target: o.Target,
    rate: o.Rate = None,
    duration: o.Duration = None,
    warmup: o.Warmup = None,
    arrival: o.Arrival = None,
    mix: o.Mix = None,
    input_class: o.InputClass = None,
    max_tokens: o.MaxTokens = None,
    *,
    sending: Sending,
    slo: o.SloFile = None,
) -> int:
    """Load a target; the run's directory is the last line.

    Options that are not given come from the load: of --slo, then from the defaults named here.
    Ctrl-C ends the run early: open requests get a short time, and what was measured is kept.
    """
    objectives = slofile.load_slo(slo) if slo else None
    asked = Load(rate, arrival, duration, warmup, mix, input_class, max_tokens)
    load = sending.load(target, o.filled_in(asked, objectives.load if objectives else Load()))
    check_cli.say_what_cannot_pass(objectives, load.rate_per_s, load.duration_s)
    directory, code = sending.send(load, stderr())
    return finished(directory, code, objectives)


def finished(directory: Path, code: int, objectives: Slo | None) -> int:
    """Judge the run if that was asked for; its directory is the last line in any case."""
    try:
        if objectives is None or code == drive.EXIT_INTERRUPTED:
            return code
        return check_cli.judged(directory, objectives).exit_code
    finally:
        typer.echo(directory)
