"""A verdict on a terminal: the verdict first, then what it rests on."""

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports import why_terminal, words
from reports.console import labelled, safe
from slo.quantities import show_s
from slo.summary import PERCENTILES, Summary
from slo.verdict import Check, Result, Verdict

COLOUR = {
    Result.PASS: "green",
    Result.FAIL: "red",
    Result.INCONCLUSIVE: "yellow",
    Result.INVALID: "magenta",
}
_OVER = ">timeout"
# Counted from due; the same from sent stands in the HTML report, which has the room for it.
_METRICS = ("ttft", "ttfat", "e2e", "tpot", "itl")


def render(verdict: Verdict, summary: Summary, console: Console) -> None:
    """Print a verdict; plain text where the console has no colour."""
    head = Text(verdict.result, style=f"bold reverse {COLOUR[verdict.result]}")
    if console.color_system is not None:
        head = Text.assemble((f" {verdict.result} ", head.style))
    console.print(Text.assemble(head, "  ", (safe(words.sentence(verdict), console), "bold")))
    console.print(
        Text(safe(f"service {verdict.service}, run {verdict.run_id}", console), style="dim")
    )
    console.print()
    if verdict.rows:
        console.print(_objectives(verdict, console))
        console.print()
        _reasons(verdict, console)
    else:
        console.print("No objective was judged.\n")
    _validity(verdict, console)
    for note in verdict.notes:
        console.print(Text(f"Note: {safe(note, console)}"))
    console.print()
    _what_was_seen(summary, console)
    if summary.causes is not None:
        console.print()
        why_terminal.brief(summary.causes, console)


def _objectives(verdict: Verdict, console: Console) -> Table:
    table = _table(gap=0 if console.width < 90 else 1)
    longest = max(len(row.objective) for row in verdict.rows)
    table.add_column("Objective", overflow="fold", min_width=min(longest, 18))
    table.add_column("Scenario", overflow="fold", min_width=8)
    table.add_column("Measured", justify="right", overflow="fold", min_width=8)
    interval = f"{words.confidence(verdict)} interval".strip()
    table.add_column(interval, justify="right", overflow="fold", min_width=14)
    table.add_column("Limit", justify="right", overflow="fold")
    table.add_column("n", justify="right", overflow="fold", min_width=3)
    table.add_column("Outcome", overflow="fold", min_width=len(Result.INCONCLUSIVE))
    for row in verdict.rows:
        line = words.line(row)
        table.add_row(
            Text(safe(line.objective, console)),
            Text(safe(line.scenario, console)),
            Text(safe(line.measured, console)),
            Text(line.interval),
            Text(safe(line.limit, console)),
            Text(line.n),
            Text(f"{line.outcome}{' (warn)' if line.warn and line.missed else ''}",
                 style=COLOUR[line.outcome]),
        )  # fmt: skip
    return table


def _table(gap: int) -> Table:
    """A table without a frame; where there is no room it folds text, and never cuts a number."""
    return Table(box=box.SIMPLE_HEAD, padding=(0, gap, 0, 0), pad_edge=False, show_edge=False)


def _reasons(verdict: Verdict, console: Console) -> None:
    """Under the table: why a line did not pass, and what to do next."""
    for names, line in words.reasons(verdict):
        title = f"{names}: {line.outcome}"
        console.print(Text(safe(title, console), style=COLOUR[line.outcome]))
        labelled("why", line.why, console, 4)
        labelled("next", line.next_step, console, 4)
        console.print()


def _validity(verdict: Verdict, console: Console) -> None:
    console.print(Text(words.validity(verdict)))
    for check in verdict.validity:
        if check.outcome != "ok":
            console.print(Padding(_check(check, console), (0, 0, 0, 2)))


def _check(check: Check, console: Console) -> Text:
    if check.outcome == "not checked":
        return Text(safe(f"not checked  {check.check}: {check.why}", console), style="dim")
    said = f"{check.check}: {check.measured}, allowed {check.limit}. {check.why}"
    if check.outcome == "noted":
        return Text(safe(f"noted  {said}", console))
    return Text.assemble(
        ("VOID", COLOUR[Result.INVALID]),
        safe(f"  {said} It voids {words.voids(check)}.", console),
    )


def _what_was_seen(summary: Summary, console: Console) -> None:
    seen = ", ".join(f"{value} {what}" for what, value in words.figures(summary))
    console.print(Text(safe(seen, console)))
    absent = words.gpu_absent(summary.gpu)
    console.print(Text(safe(absent or f"GPU: {', '.join(summary.gpu.names)}", console)))
    shown = [a for a in words.ordered(summary.latencies) if a.metric in _METRICS]
    if not shown:
        console.print("Latency: not measured")
        return
    console.print()
    table = _table(gap=0 if console.width < 80 else 1)
    table.add_column("Latency", overflow="fold", min_width=5)
    table.add_column("Scenario", overflow="fold", min_width=8)
    for name in ("n", "failed", *(f"P{p:g}" for p in PERCENTILES), "max"):
        table.add_column(name, justify="right", overflow="fold", min_width=len(name))
    over = False
    for a in shown:
        cells = [words.percentile(a, p, _OVER) for p in PERCENTILES]
        over = over or _OVER in cells
        biggest = words.NOT_MEASURED if a.max_s is None else show_s(a.max_s)
        table.add_row(
            a.metric, Text(safe(a.scenario, console)), f"{a.n:,}", f"{a.failed:,}", *cells, biggest
        )
    console.print(table)
    if over:
        console.print(f"{_OVER}: the percentile falls among the failures, over every target")
