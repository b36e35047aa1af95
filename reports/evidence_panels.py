"""Panels of the time figure for what the GPU's counters and the server itself say."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from reports import charts
from slo.causes import Causes
from slo.latencies import Floats

Panel = tuple[str, tuple[tuple[str, str], ...], float]

# Title, series of the axis with their labels, scale.
_PANELS: tuple[Panel, ...] = (
    ("GPU activity, %", (("DRAM", "DRAM"), ("tensor", "tensor cores")), 1.0),
    ("Requests in the server", (("running", "running"), ("waiting", "waiting")), 1.0),
    ("KV cache in use, %", (("KV cache", "KV cache"),), 100.0),
)


def shown(causes: Causes | None) -> list[Panel]:
    """The panels that this run has numbers for."""
    series = causes.axis.series if causes else {}
    return [panel for panel in _PANELS if any(name in series for name, _ in panel[1])]


def draw(axes: Sequence[Axes], panels: Sequence[Panel], causes: Causes, step: int) -> None:
    """Draw each panel on its axes, a point for each `step` seconds."""
    for ax, (title, lines, scale) in zip(axes, panels, strict=True):
        known = [(name, label) for name, label in lines if name in causes.axis.series]
        for place, (name, label) in enumerate(known):
            values = _thinned(causes.axis.series[name], step) * scale
            x = (np.arange(len(values)) + 0.5) * step
            colour = charts.SERIES[place]
            told = label if len(lines) > 1 else None
            charts.line(ax, x.tolist(), values.tolist(), color=colour, label=told, markersize=1.5)
        charts.title(ax, title)
        charts.from_zero(ax, lambda value: f"{value:g}")


def _thinned(values: Floats, step: int) -> Floats:
    """The mean of each group of seconds; nan where none is known."""
    padded = np.append(values, np.full(-len(values) % step, np.nan)).reshape(-1, step)
    known = np.isfinite(padded)
    count = known.sum(axis=1)
    total = np.where(known, padded, 0.0).sum(axis=1)
    means: Floats = np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0)
    return means
