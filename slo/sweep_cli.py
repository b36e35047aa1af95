"""`slo sweep`: the capacity of a server under each of several settings."""

import itertools
import shlex
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from slo import drive, edge, rundir, slofile
from slo import options as o
from slo.capacity_cli import Effort, Promise, searched
from slo.children import child
from slo.ending import UsageError
from slo.objectives import Slo
from slo.sending import Sending, What
from slo.target_probe import TargetError, wait_until_ready
from slo.verdict import EXIT_CODE, Result

if TYPE_CHECKING:
    from slo.capacity_search import Answer

FILE = "sweep.json"
LOG = "server.log"
HOST = "127.0.0.1"


@o.with_groups
def sweep_(
    serve: Annotated[
        str, typer.Option(metavar="COMMAND", help="Starts the server; {port} and grid keys in it.")
    ],
    grid: Annotated[
        list[str],
        typer.Option(metavar="KEY=V,V", help="Values of {KEY}. Again: all pairs."),
    ],
    slo: Promise,
    effort: Annotated[
        Effort,
        o.only("over", "low", "high", "resolution", "shortest_s", "cooldown_s", budget_s="20m"),
    ],
    what: Annotated[What, o.only("mix", "input_class", "max_tokens")],
    sending: Annotated[Sending, o.only("ignore_eos", "seed", "gpu", "out", ready_timeout_s="10m")],
) -> int:
    """Start a server under each setting of a grid, and search its capacity.

    E.g. --serve "python -m target serve --engine sim --gpu l4 --max-num-seqs {seqs} --port {port}"
    --grid seqs=16,64. The budget is each setting's. The folder with sweep.json is the last line. It
    exits with 0 where every setting has an answer, else 4.
    """
    settings = list(settings_of(grid))
    unknown = [setting for setting in settings if not _fits(serve, setting)]
    if unknown:
        raise UsageError(f"--serve: has no {{port}}, or a key without --grid: {serve!r}")
    objectives = slofile.load_slo(slo)
    effort.limits(objectives)  # what is wrong with it is said before a server starts
    folder = sending.folder("sweep")
    sent = what.for_probes(objectives.load)
    anew = replace(sending, force=True)
    answers: list[tuple[Mapping[str, str], Answer | None, str]] = []
    for setting in settings:
        place = folder / "-".join(f"{name}={value}" for name, value in setting.items())
        port = drive.free_port()
        load = sending.load(f"http://{HOST}:{port}", sent, label="sweep")
        argv = shlex.split(serve.format(port=port, **setting))
        answers.append((setting, *_answer(argv, load, objectives, effort, anew, place)))
        _write(folder, serve, answers)
    _print(answers)
    typer.echo(folder)
    complete = all(found is not None for _, found, _ in answers)
    return 0 if complete else EXIT_CODE[Result.INVALID]


def _answer(
    argv: Sequence[str],
    load: drive.Load,
    slo: Slo,
    effort: Effort,
    sending: Sending,
    place: Path,
) -> "tuple[Answer | None, str]":
    """Start one server and search; or say why it has no answer."""
    place.mkdir(parents=True, exist_ok=True)
    try:
        with (place / LOG).open("wb") as log, child(argv, stdout=log) as server:
            _ready(server, load.target, sending.ready_timeout_s, place / LOG)
            return searched(load, slo, effort, sending, place), ""
    except (TargetError, drive.DriveError, OSError) as error:
        return None, str(error)


def _ready(server: "subprocess.Popen[bytes]", url: str, timeout_s: float, log: Path) -> None:
    """Wait for it; one that has ended is not waited for."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return wait_until_ready(url, timeout_s=1.0, key=None, say=lambda _: None)
        except TargetError as error:
            if server.poll() is not None:
                raise TargetError(f"the server ended with {server.returncode}; {log}") from None
            if time.monotonic() >= deadline:
                raise error from None


def settings_of(grid: Sequence[str]) -> Iterator[dict[str, str]]:
    """Every combination of the values of a grid.

    Raises:
        UsageError: a part is no KEY=V,V.
    """
    axes: dict[str, list[str]] = {}
    for text in grid:
        name, _, values = text.partition("=")
        if not name.isidentifier() or not values or name == "port":
            raise UsageError(f"--grid: {text!r} is no KEY=VALUE,VALUE (and no port)")
        axes[name] = values.split(",")
    for chosen in itertools.product(*axes.values()):
        yield dict(zip(axes, chosen, strict=True))


def _fits(serve: str, setting: Mapping[str, str]) -> bool:
    try:
        return serve.format(port="PORT", **setting) != serve.format(port="OTHER", **setting)
    except (KeyError, IndexError, ValueError, AttributeError):
        return False


def _write(
    folder: Path, serve: str, answers: "Sequence[tuple[Mapping[str, str], Answer | None, str]]"
) -> None:
    lines = [
        {"setting": dict(setting), "answer": asdict(found) if found else None, "why": why}
        for setting, found, why in answers
    ]
    rundir.write_json(folder / FILE, {"schema": "1.0", "serve": serve, "settings": lines})


def _print(answers: "Sequence[tuple[Mapping[str, str], Answer | None, str]]") -> None:
    table = Table("setting", "highest PASS", "lowest FAIL", "what bounds it")
    for setting, found, why in answers:
        name = ", ".join(f"{key}={value}" for key, value in setting.items())
        if found is None:
            table.add_row(name, "-", "-", why)
            continue
        ends = [f"{rate:.4g}" if rate is not None else "-" for rate in (found.passes, found.fails)]
        table.add_row(name, *ends, found.knee.word if found.knee else "not measured")
    edge.stdout().print(table)
