"""`slo capacity`: the highest load that keeps the promise."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slo import arrival, drive, edge, slofile
from slo import options as o
from slo.ending import UsageError
from slo.objectives import Slo
from slo.sending import Sending, What

if TYPE_CHECKING:
    from slo.capacity_plan import Limits
    from slo.capacity_search import Answer

OVER = ("rate", "concurrency")
HTML = "capacity.html"

Promise = Annotated[Path, o.file("The promise to keep.")]


@dataclass(frozen=True, slots=True)
class Effort:
    """Where a search looks, and what it may cost."""

    over: Annotated[
        str,
        o.option(
            "NAME", o.one_of(*OVER), "rate, or concurrency: users who wait for their answers."
        ),
    ] = "rate"
    low: Annotated[
        float | None, o.rate("Lowest load to ask. Default: far below --slo's rate, or 1.", "--min")
    ] = None
    high: Annotated[float | None, o.rate("Highest load to ask. Default: no end.", "--max")] = None
    resolution: Annotated[
        float, o.option("X%", o.a_thousandth_or_more, "The search ends with its ends so close.")
    ] = "5%"  # type: ignore[assignment]  # typer parses it
    budget_s: Annotated[
        float, o.time("For all probes together, cool-down included.", "--budget")
    ] = "60m"  # type: ignore[assignment]
    shortest_s: Annotated[float, o.time("The shortest probe.", "--shortest")] = "10s"  # type: ignore[assignment]
    cooldown_s: Annotated[
        float, o.time("How long the target's queue may take to empty.", "--cooldown")
    ] = "60s"  # type: ignore[assignment]
    current: Annotated[float | None, o.rate("Today's load, for the headroom.")] = None

    def limits(self, slo: Slo) -> "Limits":
        """Where and how finely to search.

        Raises:
            UsageError: the range or the budget holds nothing to probe.
        """
        from slo.capacity_run import limits_for

        return limits_for(
            slo, low=self.low, high=self.high, resolution=self.resolution,
            budget_s=self.budget_s, shortest_s=self.shortest_s, whole=self.over == "concurrency",
        )  # fmt: skip


@o.with_groups
def capacity_(
    target: o.Target,
    slo: Promise,
    effort: Effort,
    what: Annotated[What, o.only("arrival", "mix", "input_class", "max_tokens")],
    sending: Annotated[
        Sending,
        o.only(
            "model", "temperature", "ignore_eos", "reasoning", "seed", "workers", "timeout_s",
            "max_in_flight", "api_key_env", "ready_timeout_s", "gpu", "out", "force",
        ),
    ],
) -> int:  # fmt: skip
    """Find the highest load that keeps the promise, and the lowest that breaks it.

    The answer is an interval: a rate that passes, a rate that fails, each with the confidence that
    slo.yaml asks for. The same command goes on with a search that was interrupted. Its folder is
    the last line; capacity.json in it holds all probes. Exits with 0 where a rate passes, 1 where
    even the lowest fails, 3 where nothing is proven, 4 where nothing could be measured.
    """
    objectives = slofile.load_slo(slo)
    load = sending.load(target, what.for_probes(objectives.load), label="capacity")
    folder = sending.folder("capacity")
    found = searched(load, objectives, effort, sending, folder)
    typer.echo(folder)
    return found.exit_code


def searched(
    load: drive.Load, slo: Slo, effort: Effort, sending: Sending, folder: Path
) -> "Answer":
    """Search, draw the page, and print the answer."""
    from slo.capacity_probe import Setting, judged_by  # scipy is slow to start
    from slo.capacity_run import search, sentence

    whole = effort.over == "concurrency"
    if not whole and load.arrival and arrival.parse(load.arrival).has_rate:
        raise UsageError(
            f"--arrival {load.arrival}: says how much is sent; a search does that itself"
        )
    setting = Setting(
        load, judged_by(slo), folder, effort.over, sending.gpu, sending.ready_timeout_s,
        effort.cooldown_s, edge.stderr(),
    )  # fmt: skip
    limits = effort.limits(slo)
    current = effort.current or (None if whole else slo.load.rate_per_s)
    found = search(setting, limits, current, force=sending.force).answer
    assert found is not None
    draw(folder)
    typer.echo(sentence(found, whole=whole))
    if found.knee is not None:
        knee = found.knee
        typer.echo(f"At {knee.rate:.4g}: {knee.word}: {knee.sentence} {knee.next_step}")
    return found


def draw(folder: Path) -> None:
    """Write capacity.html beside capacity.json."""
    import reports.capacity  # loads matplotlib
    from slo.capacity_search import read_search
    from slo.rundir import write_atomic

    write_atomic(folder / HTML, reports.capacity.render(read_search(folder)))
