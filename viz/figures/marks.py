"""What is laid over a large picture: a column beside it, the edge of a mask, dots on cells."""

import numpy as np
import plotly.graph_objects as go

from viz.figures.colours import Colour
from viz.figures.labels import Axis
from viz.theme import Theme


def beside(figure: go.Figure, values: np.ndarray, rows: Axis, name: str, colour: Colour, theme: Theme) -> go.Figure:
    """values [rows] as a column of its own at the left, set apart, in the colours of the picture."""
    first, last = figure.layout.xaxis.range
    wide = max(1.0, 0.035 * (last - first))
    edges = np.array([first - 1.6 * wide, first - 0.6 * wide], np.float32)
    trace = {
        "type": "heatmap", "x": edges, "y": rows.centres, "z": colour.forward(values[:, None]), "coloraxis": "coloraxis",
        "customdata": np.asarray(values[:, None], np.float32), "xgap": figure.data[0].xgap, "ygap": figure.data[0].ygap,
        "hovertemplate": f"{rows.name} %{{y}} · {name}<br>share %{{customdata:.4g}}<extra></extra>",
    }  # fmt: skip
    figure.add_trace(trace)
    figure.layout.xaxis.range = [float(edges[0]) - 0.2 * wide, last]
    font = {"size": 11, "color": theme.secondary}
    figure.add_annotation(x=float(edges.mean()), y=1, yref="paper", yanchor="bottom", text=name, showarrow=False, font=font)
    figure.layout.margin.t = 20
    return figure


def along(figure: go.Figure, x: np.ndarray, y: np.ndarray, theme: Theme) -> go.Figure:
    """A dotted line through the points; NaN lifts the pen."""
    line = {"color": theme.ink, "width": 1.25, "dash": "dot"}
    figure.add_trace(_at(x, y) | {"mode": "lines", "line": line})
    return figure


def dots(figure: go.Figure, x: np.ndarray, y: np.ndarray, theme: Theme, size: float = 6) -> go.Figure:
    """A small dot on each of these cells, dark with a light rim, so that it shows on any colour."""
    marker = {"size": size, "color": theme.ink, "line": {"color": theme.background, "width": 1.2}}
    figure.add_trace(_at(x, y) | {"mode": "markers", "marker": marker})
    return figure


def _at(x: np.ndarray, y: np.ndarray) -> dict:
    return {"type": "scatter", "x": x.astype(np.float32), "y": y.astype(np.float32), "hoverinfo": "skip"}
