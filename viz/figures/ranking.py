"""Horizontal bars with a label each, the strongest on top."""

import numpy as np
import plotly.graph_objects as go

from viz.figures.colours import peak
from viz.figures.series import finite
from viz.theme import MONO, Theme, axis, figure, number


def ranking(
    labels: list[str],
    values: np.ndarray,
    theme: Theme,
    *,
    revision: str,
    name: str,
    span: tuple[float, float] | None = None,
    first: bool = False,
) -> go.Figure:
    """values [n] with their (already escaped) labels, in the order given. `first` marks the first bar as the chosen one."""
    words = [number(float(v)) for v in values]
    values = finite(values)
    at = np.arange(len(values), dtype=np.int32)
    signed = bool((values < 0).any())
    colours = [
        theme.b if v < 0 else theme.a if signed else theme.accent if first and not i else theme.faint
        for i, v in enumerate(values)
    ]
    small = {"family": MONO, "size": 11}
    bars = {
        "type": "bar", "orientation": "h", "x": values, "y": at, "marker": {"color": colours, "line": {"width": 0}},
        "text": words, "textposition": "outside", "textfont": small | {"color": theme.secondary}, "cliponaxis": False,
        "hovertemplate": f"%{{y}}<br>{name} %{{x:.4g}}<extra></extra>",
    }  # fmt: skip
    reach = peak(values) or 1.0
    room = (-1.55 * reach, 1.55 * reach) if signed else (0.0, 1.3 * reach)  # for the numbers at the ends of the bars
    rows = {"tickmode": "array", "tickvals": at, "ticktext": labels, "range": [len(values) - 0.5, -0.5]}
    layout = {
        "xaxis": axis(theme, name, grid=True, range=list(span or room), nticks=5, ticks=""),
        "yaxis": axis(theme, tickfont=small | {"color": theme.ink}, ticks="", **rows),
        "bargap": 0.35,
    }
    return figure([bars], theme, height=46 + 22 * max(len(values), 2), revision=revision, **layout)
