"""Two tensors entry by entry: counted in cells where there are many pairs, a dot each where there are few."""

import numpy as np
import plotly.graph_objects as go

from viz.figures.colours import Colour, peak
from viz.figures.distribution import edges_for
from viz.figures.series import finite
from viz.theme import Theme, axis, figure, see_through

CELLS = (96, 64)  # across, up

Curve = tuple[str, np.ndarray, np.ndarray]


def density(
    x: np.ndarray, y: np.ndarray, curve: Curve, theme: Theme, *, revision: str, names: tuple[str, str], height: int = 380
) -> go.Figure:
    """Finite pairs (x, y) counted in cells, log colour, empty cells empty; `curve` = (name, x, y) drawn over them."""
    across, up = edges_for(x, bins=CELLS[0]), edges_for(y, bins=CELLS[1])
    cells = _counted(y, up, x, across)
    z = np.where(cells > 0, np.log10(np.maximum(cells, 1)), np.nan).astype(np.float32)
    counts = {
        "type": "heatmap", "x": _middle(across), "y": _middle(up), "z": z, "customdata": cells.astype(np.int32),
        "coloraxis": "coloraxis", "hoverongaps": False,
        "hovertemplate": f"{names[0]} %{{x:.3g}} · {names[1]} %{{y:.3g}}<br>%{{customdata}} pairs<extra></extra>",
    }  # fmt: skip
    name, curve_x, curve_y = curve
    over = {
        "type": "scatter", "mode": "lines", "x": curve_x.astype(np.float32), "y": curve_y.astype(np.float32),
        "line": {"color": theme.b, "width": 2}, "hoverinfo": "skip",
    }  # fmt: skip
    label = {
        "text": f"— {name}", "xref": "paper", "x": 0.01, "yref": "paper", "y": 0.99, "xanchor": "left", "yanchor": "top",
        "showarrow": False, "font": {"size": 12, "color": theme.b}, "bgcolor": see_through(theme.background, 0.7),
    }  # fmt: skip
    bar = {"orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "len": 0.6, "ypad": 4, "tickangle": 0}
    zero = {"zeroline": True, "zerolinecolor": theme.line}
    layout = {
        "coloraxis": _counting(z, theme).axis(theme, bar | {"xpad": 0}),
        "xaxis": axis(theme, names[0], range=[float(across[0]), float(across[-1])], nticks=8, **zero),
        "yaxis": axis(theme, names[1], range=[float(up[0]), float(up[-1])], nticks=7, **zero),
        "annotations": [label],
    }
    return figure([counts, over], theme, height=height, revision=revision, **layout)


def _counted(y: np.ndarray, up: np.ndarray, x: np.ndarray, across: np.ndarray) -> np.ndarray:
    """Pairs in each cell of equal size [up, across]; numpy's histogram2d looks every entry up among the edges."""

    def cell(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
        n = len(edges) - 1
        return np.clip((values - edges[0]) * (n / (edges[-1] - edges[0])), 0, n - 1).astype(np.int64)

    n = len(across) - 1
    return np.bincount(cell(y, up) * n + cell(x, across), minlength=(len(up) - 1) * n).reshape(-1, n)


def _counting(z: np.ndarray, theme: Theme) -> Colour:
    """Counts over their decades, without the palest stop: one pair must be seen against an empty cell."""
    top = max(float(np.ceil(peak(z))), 1.0)
    first = theme.log[1][0]
    stops = tuple(((at - first) / (1 - first), colour) for at, colour in theme.log[1:])
    powers = range(int(top) + 1)
    return Colour(stops, 0.0, top, tickvals=tuple(map(float, powers)), ticktext=tuple(f"{10**k:,}" for k in powers))


def _middle(edges: np.ndarray) -> np.ndarray:
    return ((edges[1:] + edges[:-1]) / 2).astype(np.float32)


def against(
    x: np.ndarray, y: np.ndarray, theme: Theme, *, revision: str, names: tuple[str, str], indices: np.ndarray, entry: str
) -> go.Figure:
    """Two versions of one vector, a dot per entry (`indices` [n] say which), beside the line on which they are equal."""
    x, y = finite(x), finite(y)
    reach = (peak(x, y) or 1.0) * 1.05
    ends = np.array([-reach, reach], np.float32)
    equal = {
        "type": "scatter", "mode": "lines", "x": ends, "y": ends, "line": {"color": theme.secondary, "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }  # fmt: skip
    dots = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "customdata": indices.astype(np.int32),
        "marker": {"size": 5, "color": theme.b, "opacity": 0.55},
        "hovertemplate": f"{entry} %{{customdata}}<br>{names[0]} %{{x:.4g}}<br>{names[1]} %{{y:.4g}}<extra></extra>",
    }  # fmt: skip
    sides = {
        f"{side}axis": axis(theme, name, grid=True, range=[-reach, reach], nticks=6)
        for side, name in zip("xy", names, strict=True)
    }
    return figure([equal, dots], theme, height=280, revision=revision, **sides)
