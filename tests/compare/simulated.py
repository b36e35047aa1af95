"""Runs of the simulator in virtual time, as run directories: the true change is known."""

import random
from pathlib import Path

from slo.rundir import SCHEDULE
from target.physics import GPUS, Setup
from target.scheduler import Arrival, simulate
from tests.slo.make_run import make_run

START_NS = 1_800_000_000_000_000_000
SETUP = Setup(GPUS["a10"], max_num_seqs=32)


def run(
    path: Path, schedule: int, pace: float, noise: int, at: int = 0, seconds: float = 12
) -> Path:
    """A run whose steps take `pace` times as long; noise of 2 % a step is drawn anew."""
    plan = random.Random(schedule)
    trace = [
        Arrival(i / 10.0, plan.randrange(100, 900), plan.randrange(10, 60))
        for i in range(int(10 * seconds))
    ]
    own = random.Random(f"{schedule} {noise}")
    times = simulate(
        trace, SETUP, lambda start, work: start + work * pace * own.lognormvariate(0, 0.02)
    )
    make_run(
        path,
        [t.first_s - t.at_s for t in times],
        [t.last_s - t.at_s for t in times],
        seed=schedule,
        t0_wall_ns=START_NS + at * 60_000_000_000,
    )
    planned = path / SCHEDULE
    planned.write_text(planned.read_text().replace(",math-", f",math-{schedule}-"))
    return path


def abba(
    folder: Path, change: float, pairs: int = 8, drift: float = 0.03
) -> tuple[list[Path], list[Path]]:
    """Runs in turns on a machine that gets slower from run to run."""
    sides: tuple[list[Path], list[Path]] = [], []
    for pair in range(pairs):
        for turn in range(2):
            after, at = turn != pair % 2, 2 * pair + turn
            pace = (1 + drift * at) * (1 + change * after)
            path = folder / ("after" if after else "before") / f"{pair}"
            sides[after].append(run(path, pair, pace, at, at))
    return sides
