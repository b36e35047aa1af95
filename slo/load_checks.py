"""Was the load the one that was planned and asked for? Checks of arrivals, rate and lateness."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
from scipy.stats import chi2, gamma, kstest

from slo import arrival
from slo.evidence import Schedule
from slo.histograms import percentile_rank
from slo.input_lengths import fits
from slo.latencies import Floats, latenesses
from slo.measurements import Measurements
from slo.objectives import Load, Slo
from slo.quantities import show_s
from slo.record import Failure
from slo.rundir import Run
from slo.validity import noted, passed, unchecked, voided
from slo.verdict import Check

# So rarely does a true Poisson stream look wrong to us, at each end.
_CHANCE = 1e-5
_PER_BIN = 5
_FEWEST_BINS = 8


def lateness_p99_s(measured: Measurements) -> float | None:
    """Due to sent of the judged requests, P99; None where none was sent."""
    late = latenesses(measured.columns)[measured.judged()]
    late = np.sort(late[np.isfinite(late)])
    return float(late[percentile_rank(len(late), 99) - 1]) if len(late) else None


def lateness(p99_s: float | None, limit_s: float | None, turned: Sequence[str]) -> Check:
    """Whether requests were sent when they were due.

    Latencies count from due, so lateness can only make them worse: a PASS stands. `turned` names
    the objectives that are missed from due but not from sent: these cannot be judged.
    """
    if p99_s is None or limit_s is None:
        return unchecked("lateness", "-", "No latency is judged, or no request was sent.")
    shown, limit = f"P99 {show_s(p99_s)}", f"<= {show_s(limit_s)}"
    if p99_s <= limit_s:
        return passed("lateness", shown, limit, "Requests were sent when they were due.")
    if turned:
        why = (
            f"{', '.join(turned)}: missed counted from due, but not from sent: the generator was "
            "late, not the server. Give it more workers or cores."
        )
        return voided("lateness", shown, limit, why, tuple(turned))
    why = "The generator was late; latencies count from due, so that it can only make them worse."
    return noted("lateness", shown, limit, why)


def achieved_rate(measured: Measurements, limit: float) -> Check:
    """Whether the generator started the judged requests at the offered rate.

    What --max-in-flight or a failed earlier turn held back is the server's doing and counts as
    started. A generator that falls behind sends its last request after the window's end.
    """
    columns = measured.columns
    due = columns.where("phase", "measured")
    start, end = measured.window_s
    allowed, offered = f">= {limit:.4g}", int(due.sum())
    if not offered or end <= start:
        return unchecked("achieved rate", allowed, "No request was due in the measured window.")
    sent = columns.numbers["sent_s"][due]
    held = columns.where("error", Failure.IN_FLIGHT_CAP) | columns.where("error", Failure.SKIPPED)
    started = int(np.isfinite(sent).sum() + (due & held).sum())
    last = float(np.nanmax(sent)) if np.isfinite(sent).any() else end
    # A session's later turns may be due after the window's end; that is no lateness.
    last_due = float(columns.numbers["due_s"][due].max())
    took = max(last, last_due, end) - start
    share = started / offered * (max(last_due, end) - start) / took
    shown = f"{share:.4f}"
    if share < limit:
        why = f"{started} of {offered} arrivals were started, the last at {show_s(last)}: "
        why += "the generator could not keep up; give it more workers or cores."
        return voided("achieved rate", shown, allowed, why)
    return passed("achieved rate", shown, allowed, "The target was sent the load that was planned.")


def arrivals(
    run: Run,
    planned: Schedule,
    window_s: tuple[float, float],
    measured: Measurements | None = None,
) -> Check:
    """Whether sessions began as the process does that run.json names: as planned, and as sent."""
    start, end = window_s
    limit = f"{run.arrival} at {run.rate_per_s:g}/s"
    try:
        process = arrival.parse(run.arrival)
    except ValueError:
        return unchecked("arrivals", limit, f"The process {run.arrival!r} is not known here.")
    if process.closed:
        why = "A closed loop: a request waits for the end of another, so that a server that is slow"
        return unchecked("arrivals", limit, f"{why} is asked less. No rate is promised by it.")
    if process.trace:
        return unchecked("arrivals", limit, "Arrivals are those of a trace.")
    at = planned.measured & (planned.due_s < end)  # nan, of a later turn, is never below
    segments = process.segments(run.rate_per_s, run.warmup_s, run.duration_s)
    before, expected = _expected(segments, np.array([start, end]))
    expected -= before
    # Where the rate changes, time is stretched so that one arrival is expected in each unit.
    due = _expected(segments, np.sort(planned.due_s[at])) - before
    shown = f"{len(due)} of {expected:.0f} expected"
    spread = 0.01 * expected
    if np.isfinite(process.shape):
        spread = 4.5 * math.sqrt(expected / process.shape)
    if abs(len(due) - expected) > spread + 1:
        return voided("arrivals", shown, limit, f"{shown} arrivals were planned.")
    if not np.isfinite(process.shape):
        return _spacing(due / run.rate_per_s, run.rate_per_s, shown, limit)
    if process.shape != 1:
        return _gaps(due, process.shape, shown, limit)
    said = _dispersion(due, expected, "planned", shown, limit)
    if said.outcome != "ok" or measured is None:
        return said
    sent = np.sort(_expected(segments, _started(planned.seq[at], measured)) - before)
    return _dispersion(sent, expected, "sent", shown, limit)


def _started(seq: Floats, measured: Measurements) -> Floats:
    """When the requests with these numbers were sent, or were due where they never were."""
    numbers = measured.columns.numbers
    mine = np.isin(numbers["seq"], seq)
    sent, due = numbers["sent_s"][mine], numbers["due_s"][mine]
    return np.where(np.isfinite(sent), sent, due)


def _expected(segments: tuple[arrival.Segment, ...], at_s: Floats) -> Floats:
    """How many arrivals are expected until each of these moments; the last rate goes on."""
    total = np.zeros(len(at_s))
    for part in segments:
        length_s = part.end_s - part.start_s
        taken_s = np.maximum(at_s - part.start_s, 0.0)
        if part is not segments[-1]:
            taken_s = np.minimum(taken_s, length_s)
        slope = (part.last - part.first) / length_s if length_s else 0.0
        total += taken_s * (part.first + slope * taken_s / 2)
    return total


def _spacing(due: Floats, rate_per_s: float, shown: str, limit: str) -> Check:
    off = float(np.abs(np.diff(due) - 1 / rate_per_s).max()) if len(due) > 1 else 0.0
    if off > 0.001 + 0.01 / rate_per_s:
        return voided("arrivals", shown, limit, f"Constant arrivals are {show_s(off)} off beat.")
    return passed("arrivals", shown, limit, "Arrivals are evenly spaced.")


def _gaps(due: Floats, shape: float, shown: str, limit: str) -> Check:
    if len(due) < _PER_BIN * _FEWEST_BINS:
        return unchecked("arrivals", limit, f"{len(due)} arrivals are too few to tell a process.")
    chance = float(kstest(np.diff(due), gamma(shape, scale=1 / shape).cdf).pvalue)
    if chance < _CHANCE:
        return voided("arrivals", shown, limit, "Gaps are not those of a gamma distribution.")
    return passed("arrivals", shown, limit, "Gaps are those of a gamma distribution.")


def _dispersion(at: Floats, expected: float, whose: str, shown: str, limit: str) -> Check:
    bins = min(60, len(at) // _PER_BIN)
    if bins < _FEWEST_BINS:
        return unchecked("arrivals", limit, f"{len(at)} arrivals are too few to tell a process.")
    counts = np.histogram(at, bins, (0.0, expected))[0]
    index = float(counts.var(ddof=1) / counts.mean())  # 1 for a Poisson stream
    chance = float(chi2.cdf(index * (bins - 1), bins - 1))
    shown = f"{shown}, dispersion {index:.2f}"
    if not _CHANCE <= chance <= 1 - _CHANCE:
        how = "more evenly" if index < 1 else "in more bursts"
        why = f"Arrivals were {whose} {how} than Poisson ones come."
        return voided("arrivals", shown, limit, why)
    return passed("arrivals", shown, limit, "Arrivals look like a Poisson stream.")


def load(run: Run, measured: Measurements, slo: Slo) -> Check:
    """Whether the load was the one that slo.yaml asks for."""
    limit = "as slo.yaml asks"
    if slo.load == Load():
        return unchecked("load", limit, "slo.yaml does not say at which load it holds.")
    differences = list(_differences(run, measured, slo.load))
    if differences:
        why = "; ".join(differences) + ": run it under the load of slo.yaml."
        return voided("load", f"{len(differences)} differ", limit, why)
    return passed("load", limit, limit, "The run's load is the one that slo.yaml asks for.")


def _differences(run: Run, measured: Measurements, asked: Load) -> Iterator[str]:
    if asked.rate_per_s is not None and not _near(run.rate_per_s, asked.rate_per_s):
        yield f"rate is {run.rate_per_s:g}/s, not {asked.rate_per_s:g}/s"
    if asked.arrival is not None and run.arrival != asked.arrival:
        yield f"arrival is {run.arrival}, not {asked.arrival}"
    if asked.duration_s is not None and run.duration_s < asked.duration_s * 0.999:
        yield f"duration is {show_s(run.duration_s)}, not {show_s(asked.duration_s)} or more"
    if asked.warmup_s is not None and run.warmup_s < asked.warmup_s * 0.999:
        yield f"warmup is {show_s(run.warmup_s)}, not {show_s(asked.warmup_s)} or more"
    if asked.mix is not None:
        names = {name for mix in (asked.mix, run.mix) for name, share in mix.items() if share}
        if any(abs(asked.mix.get(n, 0) - run.mix.get(n, 0)) > 0.005 for n in names):
            yield f"mix is {_mix(run.mix)}, not {_mix(asked.mix)}"
    if asked.input_class is not None:
        codes = np.unique(measured.columns.words["input_class"][measured.judged()])
        found = {measured.columns.names["input_class"][code] for code in codes}
        if found and not fits(found, asked.input_class):
            shown = ", ".join(sorted(found, key=lambda one: (len(one), one))[:5])
            more = f" and {len(found) - 5} more" if len(found) > 5 else ""
            yield f"input_class is {shown}{more}, not {asked.input_class}"
    if asked.max_tokens is not None:
        tokens = np.unique(measured.columns.numbers["max_tokens"][measured.judged()])
        if len(tokens) and tokens.tolist() != [asked.max_tokens]:
            shown = ", ".join(f"{value:g}" for value in tokens[:5])
            yield f"max_tokens is {shown}, not {asked.max_tokens}"


def _near(value: float, asked: float) -> bool:
    return math.isclose(value, asked, rel_tol=0.001)


def _mix(shares: dict[str, float]) -> str:
    return ", ".join(f"{name}={share:.3g}" for name, share in shares.items())
