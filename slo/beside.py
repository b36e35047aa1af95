"""What lies beside the requests of a run: grades, GPU and server samples, and a baseline run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from slo.gpu_log import GpuLog, read_gpu_log
from slo.measurements import Measurements
from slo.rundir import GPU, GRADES, SERVER, Run, RunDirError
from slo.server_log import ServerLog, read_server_log

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Baseline:
    """A run that passed, to compare with; without one, `why` says why."""

    name: str
    measured: Measurements | None
    why: str = ""


NO_BASELINE = Baseline("", None, "no baseline is named: write baseline: NAME, or give --baseline")


@dataclass(frozen=True, slots=True)
class Beside:
    """Evidence that an objective may ask for. `grades` is None where answers were not graded;
    else it says by seq whether an answer was right.
    """

    grades: dict[int, bool] | None
    gpu: GpuLog
    server: ServerLog
    baseline: Baseline = NO_BASELINE


NOTHING = Beside(
    None, GpuLog("no sidecar ran"), ServerLog("the target's /metrics were not sampled")
)


def read_beside(
    directory: Path, run: Run, unreadable: list[str], baseline: Baseline = NO_BASELINE
) -> Beside:
    """Read what there is; of a file that is spoilt, where and what is added to `unreadable`."""

    def read(name: str, reader: Callable[[Path], T], otherwise: T) -> T:
        try:
            return reader(directory / name)
        except RunDirError as error:
            unreadable.append(str(error))
        return otherwise

    return Beside(
        grades=read(GRADES, read_grades, None),
        gpu=read(
            GPU,
            lambda path: read_gpu_log(path, t0_mono_ns=run.t0_mono_ns, t0_wall_ns=run.t0_wall_ns),
            GpuLog(f"{GPU} is spoilt"),
        ),
        server=read(
            SERVER,
            lambda path: read_server_log(path, t0_mono_ns=run.t0_mono_ns),
            ServerLog(f"{SERVER} is spoilt"),
        ),
        baseline=baseline,
    )


def read_grades(path: Path) -> dict[int, bool] | None:
    """Which answers were right, by seq; None where there is no such file.

    An answer that was cut off, or that none could be read from, is not right.

    Raises:
        RunDirError: a line that is no grade; names file and line.
    """
    from slo import grade  # only a graded run needs what it loads

    if not path.exists():
        return None
    return {one.seq: one.grade is grade.Verdict.RIGHT for one in grade.read_grades(path.parent)}
