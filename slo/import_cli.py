"""The commands that take in what other tools wrote: `slo import` and `slo import-openslo`."""

from pathlib import Path
from typing import Annotated

import typer

from slo import options as o
from slo.import_formats import READERS, read


def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A result file.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The run directory to make.")],
    tool: Annotated[
        str | None,
        o.option(
            "TOOL",
            o.one_of(*READERS),
            f"{', '.join(READERS)}. Default: told by what is in it.",
            "--from",
        ),
    ] = None,
    index: Annotated[
        int | None, typer.Option(metavar="N", help="Which of several benchmarks, from 0.")
    ] = None,
    timeout: o.Timeout = None,
) -> int:
    """Make a run directory of another tool's result; slo check says what it cannot judge.

    vllm bench serve with --save-result --save-detailed, GuideLLM's JSON, AIPerf's
    profile_export.jsonl, Locust's --csv with --csv-full-history.
    """
    from slo.import_run import write

    found = read(file, tool, index)
    run = write(found, out, timeout or 600.0)
    unknown = ", ".join(found.imported.unknown)
    typer.echo(
        f"{run.counts.scheduled} requests of {found.imported.tool}, {run.counts.failed} failed; "
        f"cannot be judged: {unknown}",
        err=True,
    )
    typer.echo(out)
    return 0


def import_openslo_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="OpenSLO v1, as YAML.")],
) -> int:
    """Print a slo.yaml that asks for what an OpenSLO file does, or say why none can."""
    from slo.openslo import to_slo_yaml

    typer.echo(to_slo_yaml(file), nl=False)
    return 0
