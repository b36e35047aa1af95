"""All nights on record as one HTML page: each metric over time, its changes, the nights missed."""

from collections.abc import Sequence

from markupsafe import Markup

from reports import charts
from reports.html import environment
from slo.history import Night
from slo.trend import Change, Series


def render(series: Sequence[Series], found: Sequence[Change], nights: Sequence[Night]) -> str:
    """The page."""
    worse = any(change.worse and change.recent for change in found)
    return (
        environment()
        .get_template("trend.html.j2")
        .render(
            figures=[(one, Markup(_figure(one))) for one in series if len(one.nights) > 1],
            changes=found,
            missed=[night for night in reversed(nights) if night.status != "measured"],
            nights=len(nights),
            worse=worse,
        )
    )


def _figure(series: Series) -> str:
    with charts.style(f"trend-{series.target}-{series.metric}"):
        figure = charts.new(7.2, 2.2)
        ax = figure.add_subplot()
        days = [night.at.timestamp() / 86_400 for night in series.nights]
        first = days[0]
        x = [day - first for day in days]
        ax.plot(x, series.values, ".", markersize=3, color=charts.BLUE)
        edges = [0, *(point.index for point in series.points), len(x)]
        levels = [series.points[0].before] if series.points else []
        levels += [point.after for point in series.points]
        for start, end, level in zip(edges, edges[1:], levels, strict=False):
            ax.plot([x[start], x[end - 1]], [level, level], color=charts.MUTED, linewidth=1.2)
        for point in series.points:
            ax.axvline(x[point.index], color=charts.RED, linewidth=0.8, linestyle="--")
        ax.set_xlabel(f"days since {series.nights[0].day}")
        charts.title(ax, f"{series.target}: {series.metric}")
        return charts.to_svg(figure, f"{series.metric} of {series.target} by night")
