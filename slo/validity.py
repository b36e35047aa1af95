"""Can this run be judged at all? One pure function a check; each says what it voids."""

import math
from collections.abc import Sequence

import numpy as np

from slo.evidence import Schedule
from slo.histograms import FAILED, Counts, merged, tag_of, value_at_s
from slo.latencies import Floats, Mask, spans
from slo.measurements import Measurements
from slo.objectives import LATENCIES, Slo
from slo.quantities import show_s
from slo.record import Failure
from slo.rundir import Run
from slo.verdict import Check, Result, Row

ALL = ("*",)
_PER_TOKEN = ("tpot", "output_tokens_per_s")
_MARKS = 3  # tokens of an answer that are no text
# An HDR bucket of 3 digits is at most 0.1 % wide, and a value lies anywhere in it.
_HDR_WIDTH = 0.002


def passed(name: str, measured: str, limit: str, why: str) -> Check:
    """A check that holds."""
    return Check(name, measured, limit, "ok", why)


def noted(name: str, measured: str, limit: str, why: str) -> Check:
    """A check that does not hold, where what is said stands all the same."""
    return Check(name, measured, limit, "noted", f"{why} What is said stands all the same.")


def voided(name: str, measured: str, limit: str, why: str, voids: tuple[str, ...] = ALL) -> Check:
    """A check that does not hold, and what that makes unusable."""
    return Check(name, measured, limit, "void", why, voids)


def unchecked(name: str, limit: str, why: str) -> Check:
    """A check that could not be made."""
    return Check(name, "-", limit, "not checked", why)


def files(unreadable: Sequence[str]) -> Check:
    """Whether all files of the run can be read to their end."""
    if unreadable:
        return voided("files", f"{len(unreadable)} spoilt", "0", "; ".join(unreadable))
    return passed("files", "0 spoilt", "0", "Every file of the run could be read to its end.")


def imported(run: Run) -> Check:
    """What another tool's file does not hold cannot be judged."""
    limit = "made by Tailgate"
    if run.imported is None:
        return passed("origin", limit, limit, "The run was made by Tailgate's own load engine.")
    found = run.imported
    unknown = ", ".join(found.unknown)
    why = f"Imported from {found.tool}: {found.why}. Cannot be judged of it: {unknown}."
    return voided("origin", found.tool, limit, why, found.unknown)


def finished(run: Run) -> Check:
    """Whether the run came to its end, or was stopped for a stated reason."""
    limit = "finished, or a stated reason"
    if run.finished:
        return passed("finished", "finished", limit, "The run came to its end.")
    if run.stopped is not None:
        at = show_s(run.stopped.at_s)
        why = f"Stopped at {at}: {run.stopped.why}. What was due before then is judged."
        return passed("finished", f"stopped at {at}", limit, why)
    return voided(
        "finished", "neither", limit, "run.json says neither finished nor why it was stopped."
    )


def counts(run: Run, measured: Measurements) -> Check:
    """Whether every scheduled arrival ended as one of the four, in run.json and in the records."""
    said = run.counts
    total = said.completed + said.failed + said.dropped + said.not_started
    limit = f"{said.scheduled} scheduled"
    if total != said.scheduled:
        why = (
            f"{said.completed} completed + {said.failed} failed + {said.dropped} dropped + "
            f"{said.not_started} not started are {total}, not {said.scheduled}."
        )
        return voided("counts", str(total), limit, why)
    columns = measured.columns
    found = {
        "completed": int(columns.completed.sum()),
        "failed": int(columns.failed.sum()),
        "dropped": int(columns.where("error", Failure.DROPPED).sum()),
    }
    wrong = [
        f"{count} {kind} in requests.jsonl, {getattr(said, kind)} in run.json"
        for kind, count in found.items()
        if count != getattr(said, kind)
    ]
    if wrong:
        return voided("counts", f"{len(columns)} records", limit, "; ".join(wrong) + ".")
    return passed("counts", str(total), limit, "Every scheduled arrival ended and has one record.")


def schedule(run: Run, planned: Schedule, measured: Measurements) -> Check:
    """Whether the records are those of schedule.csv: every seq once, due when it was planned."""
    rows, seq = len(planned.seq), measured.columns.numbers["seq"]
    limit = f"{run.counts.scheduled} rows, each seq once, due as planned"
    wrong = ""
    if rows != run.counts.scheduled:
        wrong = f"schedule.csv has {rows} rows, run.json says {run.counts.scheduled}."
    elif len(np.unique(planned.seq)) != rows:
        wrong = "A seq stands twice in schedule.csv."
    elif len(np.unique(seq)) != len(seq):
        wrong = "A seq stands twice in requests.jsonl."
    elif strange := seq[~np.isin(seq, planned.seq)].tolist():
        wrong = f"requests.jsonl has seq {strange[0]:.0f}, schedule.csv has not."
    elif rows:
        order = np.argsort(planned.seq)
        due = planned.due_s[order][np.searchsorted(planned.seq[order], seq)]
        moved = np.abs(measured.columns.numbers["due_s"] - due) > 1e-3  # nan: a later turn
        if moved.any():
            wrong = f"seq {seq[moved][0]:.0f} was not due when schedule.csv says."
    if wrong:
        return voided("schedule", f"{rows} rows", limit, wrong)
    return passed("schedule", f"{rows} rows", limit, "The records are those of the schedule.")


def dropped(run: Run, limit: int) -> Check:
    """Whether the generator could start every arrival."""
    found = run.counts.dropped
    if found > limit:
        why = f"The generator could not start {found} arrivals; give it more workers or cores."
        return voided("dropped", str(found), str(limit), why)
    return passed("dropped", str(found), str(limit), "The generator started what was planned.")


def workers(run: Run, measured: Measurements) -> Check:
    """Whether every load worker reported its end, and as many records as the file has of it."""
    limit = "each reported, as many records as in the file"
    if not run.workers:
        return unchecked("workers", limit, "run.json names no worker.")
    lost = [worker.name for worker in run.workers if worker.records is None]
    if lost:
        why = f"{', '.join(lost)} never reported an end; arrivals of it may be missing."
        return voided("workers", f"{len(lost)} lost", limit, why)
    of = measured.columns.numbers["worker"]
    known = {worker.index: worker.records for worker in run.workers}
    for index in sorted({*known, *(int(i) for i in np.unique(of))}):
        found, said = int((of == index).sum()), known.get(index) or 0
        if found != said:
            why = f"Worker {index} reported {said} records, requests.jsonl has {found}."
            return voided("workers", f"{found} of {said}", limit, why)
    return passed("workers", f"{len(known)} reported", limit, "Every worker reported its end.")


def clocks(run: Run, limit_s: float | None) -> Check:
    """Whether the workers' clocks are known well enough to join their times."""
    if limit_s is None or not run.workers:
        return unchecked("clocks", "-", "No latency is judged, or run.json names no worker.")
    bound = max(worker.clock_bound_ns for worker in run.workers) / 1e9
    limit = f"<= {show_s(limit_s)}"
    if bound > limit_s:
        why = f"A worker's clock is known to within {show_s(bound)} only."
        return voided("clocks", show_s(bound), limit, why, (*LATENCIES, "goodput"))
    return passed("clocks", show_s(bound), limit, "The workers' clocks agree well enough.")


def length(measured: Measurements, slo: Slo, rows: Sequence[Row]) -> Check:
    """Whether the measured window was long enough for what is asked; a proven miss stands.

    A window planned shorter than a latency limit cannot show what happens to a request that takes
    so long.
    """
    start, end = measured.window_s
    least, planned_s = slo.validity.duration_s, measured.run.duration_s * 1.001
    shown = show_s(end - start)
    short = (end - start) * 1.001 < least
    said = f"The measured window was {shown}, asked are {show_s(least)} at least."
    undecided = tuple(
        o.line
        for o, row in zip(slo.objectives, rows, strict=True)
        if row.outcome is not Result.FAIL
    )
    if short and undecided:
        return voided("length", shown, f">= {show_s(least)}", said, undecided)
    longer = [o for o in slo.objectives if max(o.limits_s, default=0.0) > planned_s]
    if longer:
        longest = show_s(max(longer[0].limits_s))
        why = f"The measured window of {shown} is shorter than a limit of {longest}."
        return voided("length", shown, f">= {longest}", why, tuple(o.line for o in longer))
    if short:
        return noted("length", shown, f">= {show_s(least)}", f"{said} A miss is proven.")
    limit = f">= {show_s(least)}" if least else "longer than every limit"
    return passed("length", shown, limit, "The measured window was long enough.")


def tokens(measured: Measurements, limit: float = 0.01) -> Check:
    """Whether output tokens were counted by the server or a tokenizer, not guessed from chunks."""
    columns = measured.columns
    done = measured.judged() & columns.completed
    total, allowed = int(done.sum()), f"<= {limit:.0%} of requests in doubt"
    if not total:
        return unchecked("token counts", allowed, "No judged request completed.")
    output = columns.numbers["output_tokens"]
    guessed = done & (np.isnan(output) | columns.where("tokens_from", "chunks"))
    fewer = done & (output < columns.numbers["chunks"])
    most = columns.numbers["max_tokens"]  # 0: another tool's, which does not say
    more = done & (most > 0) & (output > most)
    doubt = int((guessed | fewer | more).sum())
    shown = f"{doubt} of {total}"
    if doubt > limit * total:
        why = f"{int(guessed.sum())} requests have no token count of the server's, "
        why += f"{int(fewer.sum())} one below their chunks of text, {int(more.sum())} one above "
        why += "max_tokens; latencies stay valid."
        return voided("token counts", shown, allowed, why, _PER_TOKEN)
    return _text_tokens(columns.numbers, done, shown, allowed)


def _text_tokens(
    numbers: dict[str, Floats], done: Mask, shown: str, allowed: str, limit: float = 0.01
) -> Check:
    """Whether the server counted as many tokens as --tokenizer found in the text that came."""
    output, text = numbers["output_tokens"][done], numbers["text_tokens"][done]
    known = np.isfinite(text) & np.isfinite(output)
    # The end of text and the marks of reasoning are tokens without text.
    off = np.maximum(np.abs(output[known] - text[known]) - _MARKS, 0).sum()
    share = float(off / max(output[known].sum(), 1))
    if share > limit:
        shown, allowed = f"{share:.1%} of tokens", f"<= {limit:.0%} of tokens"
        why = "The server's token counts and the text that came differ, by --tokenizer."
        return voided("token counts", shown, allowed, why, _PER_TOKEN)
    return passed("token counts", shown, allowed, "Token counts and the text that came agree.")


def judged(measured: Measurements, slo: Slo) -> Check:
    """Whether there is anything to be judged, in every scenario that an objective names."""
    n = int(measured.judged().sum())
    if not n:
        return voided("judged", "0", ">= 1", "No request was due in the measured window.")
    empty = [o for o in slo.objectives if not measured.judged(o.scenario).any()]
    if empty:
        names = ", ".join(sorted({o.scenario for o in empty}))
        has = ", ".join(measured.scenarios)
        why = f"No request of scenario {names} was judged; the run has {has}."
        voids = tuple(o.line for o in empty)
        return voided("judged", f"0 of {names}", ">= 1 a scenario", why, voids)
    return passed("judged", str(n), ">= 1", "Requests were due in the measured window.")


def timeout(run: Run, slo: Slo) -> Check:
    """Whether every latency limit lies below the timeout, so that a miss can be seen."""
    limit = f"< {show_s(run.timeout_s)}"
    high = [o for o in slo.objectives if max(o.limits_s, default=0) >= run.timeout_s]
    if high:
        name, most = high[0].name, show_s(max(high[0].limits_s))
        why = f"{name}: a limit of {most} is never seen: the timeout ends a request before that."
        names = tuple(o.line for o in high)
        return voided("timeout", most, limit, why, names)
    return passed("timeout", "limits below it", limit, "Every limit lies below the timeout.")


def histograms(measured: Measurements, intervals: dict[tuple[str, int], Counts]) -> Check:
    """Whether latency.hlog holds what requests.jsonl holds: counts, and P95 within a bucket."""
    columns, limit = measured.columns, "equal counts, P95 within a bucket"
    by_tag: dict[str, list[Counts]] = {}
    for (tag, _), part in intervals.items():
        by_tag.setdefault(tag, []).append(part)
    for scenario in (name for name in columns.names["scenario"] if name):
        mask = columns.where("scenario", scenario)
        tag = tag_of(scenario, FAILED)
        found, exact = merged(by_tag.get(tag, ())).total, int((mask & columns.failed).sum())
        if found != exact:
            why = f"{tag} counts {found} in latency.hlog, {exact} in requests.jsonl."
            return voided("histograms", f"{found} of {exact}", limit, why)
        for metric in ("ttft", "e2e"):
            tag, counts = tag_of(scenario, metric), merged(by_tag.get(tag_of(scenario, metric), ()))
            values = spans(columns, metric)[mask]
            values = np.sort(values[np.isfinite(values)])
            if counts.total != len(values):
                why = f"{tag} has {counts.total} values in latency.hlog, {len(values)} in "
                return voided(
                    "histograms", f"{counts.total} of {len(values)}", limit, f"{why}requests.jsonl."
                )
            if len(values) and not _same_p95(counts, values.tolist()):
                why = f"The P95 of {tag} differs between latency.hlog and requests.jsonl."
                return voided("histograms", show_s(value_at_s(counts, 95)), limit, why)
    return passed("histograms", "equal", limit, "latency.hlog and requests.jsonl agree.")


def _same_p95(counts: Counts, ordered: list[float]) -> bool:
    exact = max(ordered[math.ceil(0.95 * len(ordered) - 1e-9) - 1], 0.0)
    return math.isclose(value_at_s(counts, 95), exact, rel_tol=_HDR_WIDTH, abs_tol=2e-6)
