"""The command `slo run`: from its options to a load, and from the load to a run directory."""

from pathlib import Path
from typing import Annotated

import typer

from slo import check_cli, drive, slofile
from slo import options as o
from slo.edge import stderr
from slo.objectives import Load, Slo
from slo.sending import Sending, What


@o.with_groups
def run_(
    target: o.Target,
    what: What,
    sending: Sending,
    slo: Annotated[Path | None, o.file("Judge after the run; its load: fills in options.")] = None,
) -> int:
    """Load a target; the run's directory is the last line.

    Options that are not given come from the load: of --slo, then from the defaults named here.
    Ctrl-C ends the run early: open requests get a short time, and what was measured is kept.
    """
    objectives = slofile.load_slo(slo) if slo else None
    load = sending.load(target, what.filled_in(objectives.load if objectives else Load()))
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
