"""The commands that look at a run's evidence: `slo diagnose` and `slo lint`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slo import edge, rundir
from slo import options as o
from slo.ending import UsageError
from slo.verdict import EXIT_CODE, Result

if TYPE_CHECKING:  # each command loads what it needs: scipy and its like are slow to start
    from slo.causes import Causes
    from slo.claim_rules import Finding

SCHEMA = "1.0"

JsonFile = Annotated[Path | None, o.file("Also write it as JSON here.")]


def diagnose_(
    run: o.RunDirectory,
    json: JsonFile = None,
) -> int:
    """Name what bounds the server in a run, with the numbers that led to it.

    The word is one of no-load, throttled, kv-pressure, compute-bound, bandwidth-bound,
    wasted-traffic, host-bound, small-kernels, queueing, memory-growth, mixed, not-measured.
    """
    import reports.why_terminal
    from slo.causes import causes

    found = causes(edge.existing(run))
    if json is not None:
        _write(json, document(run, found))
    reports.why_terminal.render(found, edge.stdout())
    return 0


def lint_(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A run directory, or a JSON table of claims.")
    ],
    json: JsonFile = None,
) -> int:
    """Name numbers that cannot be true: beyond the roofline, against Little's law, out of order.

    Exits with 4 where any is broken; what is only doubtful, or a note, does not change it.
    """
    from slo.claim_rules import lint
    from slo.claims import read_claims
    from slo.run_lint import lint_run

    if not path.exists():
        raise UsageError(f"{path}: no such file or directory")
    found = lint_run(path) if path.is_dir() else lint(read_claims(path))
    if json is not None:
        findings = [asdict(one) for one in found]
        _write(json, {"schema": SCHEMA, "path": str(path), "findings": findings})
    _print(found)
    broken = any(one.level == "broken" for one in found)
    return EXIT_CODE[Result.INVALID] if broken else 0


def document(run: Path, found: "Causes") -> dict[str, Any]:
    """A diagnosis as JSON: the word first, then all that it rests on."""
    diagnosis = asdict(found.diagnosis)
    return {
        "schema": SCHEMA,
        "run": run.resolve().name,
        "word": diagnosis.pop("word"),
        **diagnosis,
        "signals": asdict(found.signals),
        "stages": [asdict(one) for one in found.stages],
        "by_input_length": [asdict(one) for one in found.lengths],
        "correlations": [asdict(one) for one in found.correlations],
        "slowest": [asdict(one) for one in found.contrasts],
        "absent": {"gpu": found.gpu_absent, "server": found.server_absent},
    }


def _print(found: Sequence["Finding"]) -> None:
    for one in found:
        typer.echo(f"{one.level:8}  {one.where}: {one.what}")
    count = {level: sum(one.level == level for one in found) for level in ("broken", "doubtful")}
    typer.echo(f"{count['broken']} broken, {count['doubtful']} doubtful")


def _write(path: Path, value: object) -> None:
    with edge.writing(path):
        rundir.write_json(path, value)
