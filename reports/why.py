"""Why a run was as fast as it was, in words and small tables that every format shows alike."""

from dataclasses import dataclass

from reports.words import NOT_MEASURED, clean
from slo.causes import Causes
from slo.conditions import number
from slo.quantities import show_s
from slo.signals import Signals

CORRELATIONS = 5


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose first column is words and whose others are numbers."""

    title: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def headline(causes: Causes) -> str:
    """The diagnosis in a line."""
    found = causes.diagnosis
    if found.word == "not-measured":
        return f"{found.word}: {found.sentence}"
    return f"{found.word} ({found.confidence} confidence): {found.sentence}"


def reasons(causes: Causes) -> list[tuple[str, str]]:
    """What it rests on and what to do, each with its label."""
    found = causes.diagnosis
    told = [
        ("because", found.numbers),
        ("not surer", "; ".join(found.doubts)),
        ("also holds", ", ".join(found.also)),
        ("next", found.next_step),
    ]
    return [(label, clean(text)) for label, text in told if text]


def tables(causes: Causes) -> list[Table]:
    """All tables that this run has numbers for; the rules always."""
    every = (_rules(causes), _stages(causes), _lengths(causes), _slowest(causes), _together(causes))
    return [table for table in every if table.rows]


def estimates(signals: Signals) -> str:
    """MBU and MFU, which are estimates by the roofline, with batch and context."""
    if signals.mbu is None:
        return f"MBU and MFU: {NOT_MEASURED} ({clean(signals.estimate)})"
    mfu = NOT_MEASURED if signals.mfu is None else f"{number(100 * signals.mfu)} %"
    load = signals.load
    return (
        f"Estimated by the roofline: MBU {number(100 * signals.mbu)} %, MFU {mfu}, at a batch of "
        f"{number(load.decoding)} and a context of {number(load.context)} tokens "
        f"({clean(signals.estimate)})"
    )


def absent(causes: Causes) -> list[str]:
    """Which evidence there is not, and why."""
    told = (("GPU", causes.gpu_absent), ("server metrics", causes.server_absent))
    return [f"{name}: {NOT_MEASURED} ({clean(why)})" for name, why in told if why]


def _rules(causes: Causes) -> Table:
    rows = tuple((rule.word, rule.outcome, clean(rule.numbers)) for rule in causes.diagnosis.rules)
    caption = "In this order; the first that holds is the diagnosis."
    return Table("Rules", caption, ("Rule", "Outcome", "Numbers"), rows)


def _stages(causes: Causes) -> Table:
    total = sum(stage.mean_s for stage in causes.stages) or 1.0
    rows = tuple(
        (
            stage.name,
            show_s(stage.mean_s),
            f"{100 * stage.mean_s / total:.0f} %",
            show_s(stage.p95_s),
            show_s(stage.slowest_s),
        )
        for stage in causes.stages
    )
    caption = "By the server's own timings; elsewhere: network, client, and what it does not count."
    head = ("Stage", "Mean", "Share of E2E", "P95", "Mean of the slowest 5 %")
    return Table("Where the time of a request went", caption, head, rows)


def _lengths(causes: Causes) -> Table:
    def seconds(value: float | None) -> str:
        return ">timeout" if value is None else show_s(value)

    rows = tuple(
        (
            clean(line.label),
            f"{line.n:,}",
            NOT_MEASURED if line.prompt_tokens is None else f"{line.prompt_tokens:,.0f}",
            seconds(line.ttft_p95_s),
            seconds(line.e2e_p95_s),
        )
        for line in causes.lengths
    )
    caption = ">timeout: the percentile falls among the failures."
    head = ("Input", "n", "Prompt tokens, mean", "TTFT P95", "E2E P95")
    return Table("P95 against input length", caption, head, rows)


def _slowest(causes: Causes) -> Table:
    rows = tuple(
        (f"{one.series}, {one.unit}", number(one.slowest), number(one.rest))
        for one in causes.contrasts
    )
    caption = "Means over the seconds in which the requests were open; slowest by E2E."
    head = ("Series", "Slowest 5 %", "Rest")
    return Table("During the slowest requests", caption, head, rows)


def _together(causes: Causes) -> Table:
    rows = tuple(
        (f"{one.latency.upper()} and {one.series}", f"{one.rho:+.2f}", f"{one.n}")
        for one in causes.correlations[:CORRELATIONS]
    )
    caption = (
        "Rank correlation by second with the median latency of requests due then; "
        "seconds are not independent, and going together is no cause."
    )
    return Table("What went with latency", caption, ("Series", "Correlation", "Seconds"), rows)
