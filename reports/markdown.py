"""A verdict as GitHub-flavoured Markdown, for a step summary."""

import re

from reports import why, words
from slo.quantities import show, show_s
from slo.rundir import Run
from slo.summary import PERCENTILES, FailureKind, Summary
from slo.verdict import Check, Result, Verdict

# A sign beside the word, never instead of it.
SIGN = {
    Result.PASS: "\u2705",
    Result.FAIL: "\u274c",
    Result.INCONCLUSIVE: "\u2753",
    Result.INVALID: "\U0001f6ab",
}


def render(verdict: Verdict, summary: Summary, run: Run) -> str:
    """A verdict as one Markdown document."""
    parts = [
        f"## {SIGN[verdict.result]} {verdict.result}: {escape(verdict.service)}",
        escape(words.sentence(verdict)),
        _objectives(verdict),
        _reasons(verdict),
        _validity(verdict),
        *(f"> {escape(note)}" for note in verdict.notes),
        _latency(summary, run),
        _failures(summary.failures),
        escape(_gpu(summary)),
        _why(summary),
        f"<sub>Run {escape(verdict.run_id)}, started {escape(run.started_at)}, "
        f"{run.rate_per_s:g}/s {escape(run.arrival)} for {show_s(run.duration_s)}, "
        f"seed {run.seed}; {words.figures(summary)[0][1]} requests judged.</sub>",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def escape(text: str) -> str:
    """Text that Markdown shows as it is: no markup, no link, no end of a table cell."""
    text = words.clean(text).strip()
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = text.replace("://", "&#58;//").replace("www.", "www&#46;").replace("@", "&#64;")
    text = re.sub(r"([\\`*_{}\[\]|#~$])", r"\\\1", text)
    # What would begin a list, a rule or a heading at a line's start.
    return re.sub(r"^(\d*)([-+=.)])(?=[-+=\s]|$)", r"\1\\\2", text)


def table(head: list[str], rows: list[list[str]], right: frozenset[int] = frozenset()) -> str:
    """A Markdown table of cells already escaped; the columns in `right` hold numbers."""
    rules = ["---:" if index in right else "---" for index in range(len(head))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rules, *rows))


def _objectives(verdict: Verdict) -> str:
    if not verdict.rows:
        return "No objective was judged."
    rows = []
    for line in map(words.line, verdict.rows):
        outcome = f"{SIGN[line.outcome]} {line.outcome}"
        if line.warn and line.missed:
            outcome = f"\u26a0\ufe0f {line.outcome} (warn)"
        cells = (line.objective, line.scenario, line.measured, line.interval, line.limit, line.n)
        rows.append([outcome, *map(escape, cells)])
    head = ["Outcome", "Objective", "Scenario", "Measured",
            f"{words.confidence(verdict)} interval".strip(), "Limit", "n"]  # fmt: skip
    return table(head, rows, frozenset({3, 4, 5, 6}))


def _reasons(verdict: Verdict) -> str:
    said = []
    for names, line in words.reasons(verdict):
        said.append(f"- **{escape(names)}**: {escape(line.why)}")
        if line.next_step:
            said.append(f"  <br>Next: {escape(line.next_step)}")
    return "\n".join(said)


def _validity(verdict: Verdict) -> str:
    bad = [check for check in verdict.validity if check.outcome != "ok"]
    said = f"**Validity.** {words.validity(verdict)}"
    if not bad:
        return said
    head = ["Check", "Outcome", "Measured", "Allowed", "Why"]
    return said + "\n\n" + table(head, [_check(check) for check in bad])


def _check(check: Check) -> list[str]:
    void = check.outcome == "void"
    why = f"{check.why} Voids {words.voids(check)}." if void else check.why
    cells = (check.measured or "-", check.limit or "-", why or "-")
    return [escape(check.check), "**void**" if void else check.outcome, *map(escape, cells)]


def _latency(summary: Summary, run: Run) -> str:
    shown = words.ordered(summary.latencies)
    if not shown:
        return "Latency: not measured."
    over = f">{run.timeout_s:g} s (failures)"
    head = ["Latency", "Scenario", "n", "Failed", *(f"P{p:g}" for p in PERCENTILES), "Max"]
    rows = []
    for a in shown:
        cells = [words.percentile(a, p, over) for p in PERCENTILES]
        biggest = words.NOT_MEASURED if a.max_s is None else show_s(a.max_s)
        rows.append(
            [escape(cell) for cell in (a.metric, a.scenario, f"{a.n:,}", f"{a.failed:,}")]
            + [escape(cell) for cell in (*cells, biggest)]
        )
    body = table(head, rows, frozenset(range(2, len(head))))
    return f"<details><summary>Latency by percentile</summary>\n\n{body}\n\n</details>"


def _failures(failures: tuple[FailureKind, ...]) -> str:
    if not failures:
        return ""
    rows = [
        [escape(f.kind), f"{f.count:,}", show(f.share, "1"), f"request {f.example_seq}: "
         f"{escape(f.example)}"]
        for f in failures
    ]  # fmt: skip
    return table(["Failure", "Count", "Share", "Example"], rows, frozenset({1, 2}))


def _why(summary: Summary) -> str:
    causes = summary.causes
    if causes is None:
        return ""
    said = [f"**What bounds the server:** {escape(why.headline(causes))}"]
    said += [f"- {label}: {escape(text)}" for label, text in why.reasons(causes)]
    said.append(f"- {escape(why.estimates(causes.signals))}")
    parts = ["\n".join([said[0], "", *said[1:]])]
    for shown in why.tables(causes):
        right = frozenset() if shown.title == "Rules" else frozenset(range(1, len(shown.head)))
        body = table(list(shown.head), [[escape(c) for c in row] for row in shown.rows], right)
        parts.append(
            f"<details><summary>{escape(shown.title)}</summary>\n\n{body}\n\n"
            f"{escape(shown.caption)}\n\n</details>"
        )
    return "\n\n".join(parts)


def _gpu(summary: Summary) -> str:
    return words.gpu_absent(summary.gpu) or f"GPU: {', '.join(summary.gpu.names)}"
