"""`slo nightly` and `slo trend`: measure each night, and say when something got worse."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slo import edge, rundir
from slo import options as o
from slo.ending import UsageError
from slo.verdict import EXIT_CODE, Result

if TYPE_CHECKING:
    from slo.history import Night

TREND = "trend.html"


def nightly_(config: Annotated[Path, o.file("nightly.yaml.")]) -> int:
    """Measure every target of nightly.yaml once, and put the night on record.

    Exits with 1 where something got worse lately, 4 where a target could not be measured (the night
    is on record as such), 0 else. Start it from a timer: docs/nightly/ has files for four of them.
    """
    from slo import nightly
    from slo.history import opened
    from slo.nightly_config import read_nightly

    asked = read_nightly(config)
    console = edge.stderr()
    try:
        with nightly.locked(asked.out), opened(asked.history) as history:
            nights = nightly.night_of(asked, history, console)
            names = {target.name for target in asked.targets}
            mine = [night for night in history.nights() if night.target in names]
            worse = _told(mine, asked.floor, None, asked.out / TREND, None)
    except nightly.OverlapError as error:
        typer.echo(f"slo nightly: {error}", err=True)
        return EXIT_CODE[Result.INVALID]
    if worse:
        return EXIT_CODE[Result.FAIL]
    missed = any(night.status != "measured" for night in nights)
    return EXIT_CODE[Result.INVALID] if missed else 0


def trend_(
    history: Annotated[
        str, typer.Option(metavar="URL", help="A file, or postgresql+psycopg://...")
    ] = "nightly.db",
    target: Annotated[str | None, typer.Option(help="Only this one.")] = None,
    floor: Annotated[
        float, o.option("X%", o.a_thousandth_or_more, "Smaller changes of level are not told.")
    ] = "3%",  # type: ignore[assignment]  # typer parses it
    recent: Annotated[int, o.count("Nights that decide the exit code.")] = 14,
    html: Annotated[Path | None, o.file("Also a page here.")] = None,
    json: Annotated[Path | None, o.file("Also JSON here.")] = None,
) -> int:
    """Say which metric changed its level in which night, and what else changed that night.

    Exits with 1 where one got worse within the last --recent nights.
    """
    from slo.history import opened

    if "://" not in history and not Path(history).exists():
        raise UsageError(f"{history}: no such history; `slo nightly` makes it")
    with opened(history) as found:
        nights = found.nights(target)
        if target is not None and not nights:
            known = ", ".join(found.targets()) or "none"
            raise UsageError(
                f"--target: {target!r} has no night on record; those that have: {known}"
            )
    return EXIT_CODE[Result.FAIL] if _told(nights, floor, recent, html, json) else 0


def _told(
    nights: "list[Night]", floor: float, recent: int | None, html: Path | None, json: Path | None
) -> bool:
    """Print changes and write what was asked for; whether something got worse lately."""
    from slo.trend import RECENT, changes, regressed, series_of

    series = series_of(nights, floor=floor)
    found = changes(series, recent=RECENT if recent is None else recent)
    for change in found:
        typer.echo(change.sentence)
    if not found:
        typer.echo(f"no change of level of {100 * floor:g} % or more in {len(nights)} nights")
    if html is not None:
        import reports.trend  # loads matplotlib

        with edge.writing(html):
            rundir.write_atomic(html, reports.trend.render(series, found, nights))
    if json is not None:
        with edge.writing(json):
            rundir.write_json(json, {"schema": "1.0", "changes": [asdict(one) for one in found]})
    return regressed(found)
