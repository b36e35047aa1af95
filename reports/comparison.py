"""A comparison on a terminal and as Markdown."""

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from reports import words
from reports.markdown import escape, table
from slo.compare import Comparison, Gate, Result
from slo.compare_answers import Answers, Share
from slo.compare_contract import Term
from slo.compare_like import LikeTable
from slo.compare_lines import METHODS, Line
from slo.quantities import show

COLOUR = {
    Result.NOT_WORSE: "green",
    Result.WORSE: "red",
    Result.CANNOT_SAY: "yellow",
    Result.NOT_COMPARABLE: "magenta",
}
_OUTCOME = {"worse": "red", "better": "green", "changed": "blue", "~": "yellow", "-": "dim"}
SIDES = ("before", "after")
SHOWN = 40  # lines on a terminal, the worst first
HEAD = ("Metric", "Scenario", "Before", "After", "Change", "Interval", "", "To tell")
GATE_HEAD = ("Gate", "Change", "Interval", "Allowed", "Outcome")


def cells(line: Line) -> tuple[str, ...]:
    """A line's cells, under HEAD."""
    before, after = (number(value, line.unit) for value in (line.before, line.after))
    more = "" if line.more is None else f"{line.more:.2g}x as much load"
    named = words.clean(line.metric), words.clean(line.scenario)
    return (*named, before, after, change(line), interval(line), line.outcome, more)


def gate_cells(gate: Gate) -> tuple[str, ...]:
    """A gate's cells, under GATE_HEAD."""
    allowed = f"{100 * gate.allowed:.3g} {'%' if gate.line.relative else 'points'}"
    return gate.metric, change(gate.line), interval(gate.line), allowed, gate.outcome.lower()


def number(value: float | None, unit: str) -> str:
    """A value with its unit; None lies among the failures."""
    return "> timeout" if value is None else show(value, unit)


def change(line: Line) -> str:
    """By how much it changed; "~" where that may be chance."""
    if line.outcome == "~":
        return "~"
    if line.change is None:
        return "-"
    return percent(line.change, line)


def interval(line: Line) -> str:
    """Between what the change lies."""
    if line.low is None and line.high is None:
        return "-"
    low, high = ("..." if end is None else percent(end, line) for end in (line.low, line.high))
    return f"{low} to {high}"


def percent(value: float, line: Line) -> str:
    """+12 %, or +0.3 pt of a share."""
    return f"{100 * value:+,.1f} {'%' if line.relative else 'pt'}"


def share(part: Share | None) -> str:
    """A share with its interval and its n."""
    if part is None or not part.n:
        return "-"
    ends = f"{100 * part.low:.1f} to {100 * part.high:.1f}"
    return f"{100 * part.value:.1f} % ({ends}; {part.part} of {part.n})"


def answer_rows(answers: Answers) -> Iterator[tuple[str, ...]]:
    """Scenario, what, before, after, under ANSWER_HEAD."""
    for left, right in zip(answers.before, answers.after, strict=True):
        name = left.scenario
        yield name, "right", share(left.right), share(right.right)
        yield name, "truncated", share(left.truncated), share(right.truncated)
        yield name, "wrong / no answer", *(f"{s.wrong} / {s.no_answer}" for s in (left, right))
        goodput = [f"{s.good_per_s:.3g} of {s.offered_per_s:.3g}/s" for s in (left, right)]
        yield name, "right and in time", *goodput


ANSWER_HEAD = ("Scenario", "Answers", "Before", "After")
LOAD_HEAD = ("Open when sent", "Right before", "Right after")


def load_rows(answers: Answers) -> Iterator[tuple[str, ...]]:
    """Accuracy by how many requests were open."""
    for each in answers.by_load:
        where = f"{each.open_from} - {each.open_to}"
        yield where, share(each.before), share(each.after)


def pair_words(answers: Answers) -> Iterator[str]:
    """The same prompts on both sides, in a sentence a scenario."""
    for name, pairs in answers.pairs.items():
        yield (
            f"{name}: of {pairs.n} prompts answered by both, {pairs.lost} were right before and "
            f"not after, {pairs.won} the other way (McNemar, exact: p = {pairs.p:.3g}); "
            f"accuracy changed by {100 * pairs.change:+.1f} points ({100 * pairs.low:+.1f} to "
            f"{100 * pairs.high:+.1f}). A change of {100 * pairs.smallest:.1f} points would have "
            "been found with 80 % power."
        )


def in_time_words(answers: Answers) -> str:
    """What counts as in time."""
    limits = ", ".join(f"{name} <= {show(s, 's')}" for name, s in answers.in_time.items())
    return f"In time: {limits or 'ended before the timeout (--in-time sets limits)'}."


def contract_rows(terms: Sequence[Term]) -> Iterator[tuple[str, str, str, str]]:
    """The contract: term, before, after, whether it holds."""
    for term in terms:
        told = "same" if term.before == term.after else "differs"
        state = {True: "same", False: "DIFFERS", None: told}[term.holds]
        if term.accepted:
            state = "accepted"
        yield term.name, term.before, term.after, state


CONTRACT_HEAD = ("Term", "Before", "After", "")


def terminal(found: Comparison, tables: Sequence[LikeTable], console: Console) -> None:
    """Print a comparison: the result, its gates, the numbers, what they rest on."""

    def say(text: str, style: str = "") -> None:
        encoding = console.encoding or "utf-8"
        safe = words.clean(text).encode(encoding, "backslashreplace").decode(encoding)
        console.print(Text(safe, style=style))

    def grid(head: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> None:
        if not rows:
            return
        shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        for index, name in enumerate(head):
            shown.add_column(name, justify="right" if index >= right else "left", overflow="fold")
        for row in rows:
            shown.add_row(*(Text(words.clean(c), style=_OUTCOME.get(c, "")) for c in row))
        console.print(shown)
        console.print()

    say(f"{found.result}  {found.sentence}", f"bold {COLOUR[found.result]}")
    for name, label, runs in zip(SIDES, found.labels, (found.before, found.after), strict=True):
        say(
            f"{name}: {label} ({', '.join(runs)})"
            if label != name
            else f"{name}: {', '.join(runs)}",
            "dim",
        )
    console.print()
    grid(GATE_HEAD, [gate_cells(gate) for gate in found.gates], 1)
    grid(HEAD, [cells(line) for line in found.lines[:SHOWN]], 2)
    if len(found.lines) > SHOWN:
        say(f"{len(found.lines) - SHOWN} more lines stand in the reports (--html, --markdown).")
    if found.lines:
        say(f"{100 * found.confidence:g} % intervals: {METHODS[found.method]}.", "dim")
        console.print()
    if found.answers is not None:
        grid(ANSWER_HEAD, list(answer_rows(found.answers)), 2)
        grid(LOAD_HEAD, list(load_rows(found.answers)), 1)
        for text in (*pair_words(found.answers), in_time_words(found.answers)):
            say(text)
        console.print()
    grid(CONTRACT_HEAD, list(contract_rows(found.contract)), 9)
    for note in found.notes:
        say(f"Note: {note}")
    for like in tables:
        console.print()
        say(f"{like.id}: {like.title}", "bold")
        grid(like.head, like.rows, 1)
        for note in like.notes:
            say(f"Note of the table: {note}", "dim")


def markdown(found: Comparison, tables: Sequence[LikeTable]) -> str:
    """A comparison as one Markdown document."""

    def block(head: Sequence[str], rows: Sequence[Sequence[str]], right: int) -> str:
        escaped = [[escape(cell) for cell in row] for row in rows]
        return table(list(head), escaped, frozenset(range(right, len(head)))) if rows else ""

    parts = [
        f"## {found.result}: {escape(found.labels[0])} against {escape(found.labels[1])}",
        escape(found.sentence),
        block(GATE_HEAD, [gate_cells(gate) for gate in found.gates], 1),
        block(HEAD, [cells(line) for line in found.lines], 2),
    ]
    if found.lines:
        parts.append(f"{100 * found.confidence:g} % intervals: {METHODS[found.method]}.")
    if found.answers is not None:
        parts += [
            "### Answers",
            block(ANSWER_HEAD, list(answer_rows(found.answers)), 2),
            block(LOAD_HEAD, list(load_rows(found.answers)), 1),
            *map(escape, pair_words(found.answers)),
            escape(in_time_words(found.answers)),
        ]
    parts += ["### Contract", block(CONTRACT_HEAD, list(contract_rows(found.contract)), 9)]
    parts += [f"> {escape(note)}" for note in found.notes]
    for like in tables:
        parts += [f"### {like.id}: {escape(like.title)}", block(like.head, like.rows, 1)]
        parts += [f"> {escape(note)}" for note in like.notes]
    return "\n\n".join(part for part in parts if part) + "\n"
