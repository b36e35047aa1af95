"""A comparison as one HTML file: no script, and no request to any other host."""

from collections.abc import Sequence

from markupsafe import Markup

from reports import charts, comparison
from reports.html import environment
from slo.compare import Comparison
from slo.compare_like import LikeTable
from slo.compare_lines import METHODS
from slo.compare_shift import Shift

_WIDE, _NARROW = 10.6, 4.0
_SPAN = 3.0  # how much farther than the curve the axis goes; a band may have no end


def render(found: Comparison, tables: Sequence[LikeTable]) -> str:
    """The whole report as one HTML document."""
    answers = found.answers
    return environment().get_template("comparison.html.j2").render(
        found=found,
        labels=found.labels,
        method=METHODS[found.method],
        confidence=f"{100 * found.confidence:g} %",
        gate_head=comparison.GATE_HEAD,
        gates=[comparison.gate_cells(gate) for gate in found.gates],
        head=comparison.HEAD,
        lines=[comparison.cells(line) for line in found.lines],
        shifts=[_figure(shift) for shift in found.shifts],
        answer_head=comparison.ANSWER_HEAD,
        answers=list(comparison.answer_rows(answers)) if answers else [],
        load_head=comparison.LOAD_HEAD,
        by_load=list(comparison.load_rows(answers)) if answers else [],
        pairs=list(comparison.pair_words(answers)) if answers else [],
        in_time=comparison.in_time_words(answers) if answers else "",
        contract_head=comparison.CONTRACT_HEAD,
        contract=list(comparison.contract_rows(found.contract)),
        tables=tables,
    )  # fmt: skip


def _figure(shift: Shift) -> tuple[str, Markup, Markup]:
    """Its metric, drawn for a page and for a phone."""
    return shift.metric, Markup(draw(shift, _WIDE)), Markup(draw(shift, _NARROW))


def draw(shift: Shift, width: float) -> str:
    """At each percentile of before, how far after lies from it, with the simultaneous band."""
    with charts.style(f"shift-{shift.metric}-{width}"):
        figure = charts.new(width, 2.6)
        ax = figure.subplots()
        middle, low, high = (
            [100 * value for value in charts.numbers(each)]
            for each in (shift.shift, shift.low, shift.high)
        )
        ax.axhline(0, color=charts.INK, lw=1.0)
        ax.fill_between(shift.percentiles, low, high, color=charts.BLUE, alpha=0.18, lw=0)
        charts.line(ax, shift.percentiles, middle, color=charts.BLUE, label="after / before")
        ax.set_xlim(0, 100)
        reach = _SPAN * max((abs(value) for value in middle if value == value), default=1.0)
        bottom, top = ax.get_ylim()
        ax.set_ylim(max(bottom, -max(reach, 5.0)), min(top, max(reach, 5.0)))
        ax.set_xlabel("percentile of before")
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:+g} %" if value else "0")
        charts.title(ax, shift.metric.upper())
        return charts.to_svg(figure, f"Shift of {shift.metric} at each percentile, with its band")
