"""What is said of a verdict in words, the same in every format."""

import re
from collections import Counter
from dataclasses import dataclass

from slo.objectives import EXACT
from slo.quantities import show, show_interval, show_s
from slo.summary import GpuView, LatencyLine, Summary
from slo.verdict import Check, Result, Row, Verdict

NOT_MEASURED = "not measured"

# In the order in which reports list them.
METRICS = {
    "ttft": (
        "Time to first token",
        "From the moment the request was due to the first visible text, reasoning or answer.",
    ),
    "ttfat": (
        "Time to first answer token",
        "The same, to the first visible text of the answer, after any reasoning.",
    ),
    "e2e": ("End to end", "From due to the last token."),
    "tpot": (
        "Time per output token",
        "(last token - first token) / (output tokens - tokens of the first chunk).",
    ),
    "itl": (
        "Inter-token latency",
        "The gap between two chunks that carry text; read it with the tokens per chunk.",
    ),
    "ttft_from_sent": (
        "TTFT from sent",
        "As TTFT, but from the moment the request was sent: the difference is the client's part.",
    ),
    "e2e_from_sent": ("E2E from sent", "As E2E, but from the moment the request was sent."),
}

_LINE_ENDS = re.compile(r"[\t\r\n]+")
# Control characters steer terminals, lone surrogates and noncharacters are no XML, and
# bidirectional overrides make a line read as another.
_UNPRINTABLE = re.compile(
    "[\u0000-\u001f\u007f-\u009f\ud800-\udfff\ufffe\uffff\u202a-\u202e\u2066-\u2069]"
)


def clean(text: str) -> str:
    """Text without control characters: U+FFFD in their place, a blank for a tab or a line's end."""
    return _UNPRINTABLE.sub("\ufffd", _LINE_ENDS.sub(" ", text))


@dataclass(frozen=True, slots=True)
class Line:
    """One objective as a report prints it."""

    objective: str
    scenario: str
    measured: str
    interval: str
    limit: str
    n: str
    outcome: Result
    warn: bool  # a miss is told, but does not decide the verdict
    why: str
    next_step: str

    @property
    def missed(self) -> bool:
        return self.outcome is not Result.PASS


def line(row: Row) -> Line:
    """One objective in words."""
    return Line(
        objective=clean(row.objective),
        scenario=clean(row.scenario),
        measured=measured(row),
        interval=show_interval(row.low, row.high, row.unit) or _no_interval(row),
        limit=clean(row.limit),
        n=f"{row.n:,}",
        outcome=row.outcome,
        warn=row.severity == "warn",
        why=clean(row.why),
        next_step=clean(row.next_step),
    )


def _no_interval(row: Row) -> str:
    return "exact" if row.metric in EXACT and row.measured is not None else "-"


def sentence(verdict: Verdict) -> str:
    """The verdict in a sentence that does not begin with its word, which stands before it."""
    said = clean(verdict.sentence).removeprefix(f"{verdict.result}: ")
    return said[:1].upper() + said[1:]


def reasons(verdict: Verdict) -> list[tuple[str, Line]]:
    """What did not pass, and one of its lines; those with the same reason are named together."""
    together: dict[tuple[str, str, str], list[Line]] = {}
    for found in map(line, verdict.rows):
        if found.missed:
            key = (found.outcome, found.why, found.next_step)
            together.setdefault(key, []).append(found)
    return [("; ".join(f"{a.objective}, {a.scenario}" for a in same), same[0])
            for same in together.values()]  # fmt: skip


def measured(row: Row) -> str:
    """The measured value; where it falls among failures, what it exceeds: ">60 s (failures)"."""
    if row.measured is not None:
        return show(row.measured, row.unit)
    if row.censored is not None:
        return f"{re.sub(r'(?<=[0-9])(?=[a-z])', ' ', clean(row.censored))} (failures)"
    return NOT_MEASURED


def confidence(verdict: Verdict) -> str:
    """The confidence of the verdict's intervals, as "95 %"; "" where they have no common one."""
    found = {row.confidence for row in verdict.rows}
    return f"{100 * found.pop():.4g} %" if len(found) == 1 else ""


def percentile(line: LatencyLine, p: float, over: str) -> str:
    """One percentile of a latency; `over` is printed for one that falls among the failures."""
    value = line.percentiles_s.get(p)
    if value is not None:
        return show_s(value)
    return over if line.n and line.failed else NOT_MEASURED


def ordered(latencies: tuple[LatencyLine, ...]) -> list[LatencyLine]:
    """Latencies by metric, in each "all" before the scenarios; those never measured left out."""
    place = {name: index for index, name in enumerate(METRICS)}
    seen = [found for found in latencies if found.n]
    return sorted(seen, key=lambda a: (place.get(a.metric, 99), a.scenario != "all", a.scenario))


def voids(check: Check) -> str:
    """What a failed check makes unusable."""
    return "the whole run" if "*" in check.voids or not check.voids else ", ".join(check.voids)


def validity(verdict: Verdict) -> str:
    """The validity checks in a sentence."""
    checks = verdict.validity
    if not checks:
        return "No validity check was made."
    count = Counter(check.outcome for check in checks)
    parts = [f"{count['ok']} of {len(checks)} validity checks hold"]
    if count["void"]:
        parts.append(f"{count['void']} void what was measured")
    if count["noted"]:
        parts.append(f"{count['noted']} beyond the limit, without bearing on what is said")
    if count["not checked"]:
        parts.append(f"{count['not checked']} could not be made")
    return "; ".join(parts) + "."


def gpu_absent(gpu: GpuView) -> str | None:
    """Why no GPU is shown; None where one was measured."""
    if gpu.not_measured is None and gpu.samples:
        return None
    return f"GPU: not measured ({clean(gpu.not_measured or 'the sidecar gave no sample')})"


def figures(summary: Summary) -> list[tuple[str, str]]:
    """The run in a few numbers: what is counted, and how many."""
    tokens = summary.tokens_per_chunk
    share = f" ({show(summary.failed / summary.judged, '1')})" if summary.judged else ""
    return [
        ("requests judged", f"{summary.judged:,}"),
        ("completed", f"{summary.completed:,}"),
        (f"failed{share}", f"{summary.failed:,}"),
        ("offered", show(summary.offered_per_s, "1/s")),
        ("sent", show(summary.achieved_per_s, "1/s")),
        ("output tokens", show(summary.output_tokens_per_s, "1/s")),
        ("tokens per chunk", NOT_MEASURED if tokens is None else f"{tokens:.2f}"),
    ]
