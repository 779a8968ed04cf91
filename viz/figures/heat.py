"""One large matrix in colour. Row 0 is at the top, masked cells are empty, NaN and infinities have colours of their own."""

import numpy as np
import plotly.graph_objects as go

from viz.figures.colours import Colour
from viz.figures.labels import TICKS_ACROSS, Axis
from viz.figures.stack import slant
from viz.theme import Theme, axis, figure

SEPARATE = 48  # up to so many cells a side, cells are set apart by thin gaps

LOWEST = 300  # px: the page lowers a main figure to what fits beside the rest, never under this
AROUND = 76  # px of a figure's height that are not cells: colour bar, labels at the bottom
PITCH = 14  # px of height that one label needs

CORNER = {"x": 0.995, "xanchor": "right", "y": 1, "yanchor": "top", "len": 0.5, "ypad": 2, "xpad": 0}
ABOVE = {
    "orientation": "h", "x": 1, "xanchor": "right", "y": 1, "yanchor": "bottom", "len": 0.6, "ypad": 4, "xpad": 0,
    "nticks": 5, "tickangle": 0,
}  # fmt: skip


def matrix(
    values: np.ndarray,
    rows: Axis,
    columns: Axis,
    colour: Colour,
    theme: Theme,
    *,
    revision: str,
    unit: str = "value",
    masked: np.ndarray | None = None,
    inset: bool = False,
    row: float | None = None,
    click: tuple[str, str] | None = None,
    height: int = 520,
) -> go.Figure:
    """values [rows, columns] -> one large picture. `inset` puts the colour bar into the corner that a causal mask empties;
    `row` outlines the row of the selected entry; `unit` names the number in a hover."""
    gap = 1 if max(values.shape) <= SEPARATE else 0
    where = {"x": columns.centres, "y": rows.centres, "xgap": gap, "ygap": gap}
    trace = {"type": "heatmap", "z": colour.forward(values), "coloraxis": "coloraxis", "hoverongaps": False, **where}
    shown = "%{z:.4g}"
    if colour.kind != "linear":  # the colour is not the number: the hover needs the number itself
        trace["customdata"] = np.asarray(values, np.float32)
        shown = "%{customdata:.4g}"
    trace["hovertemplate"] = f"{rows.name} %{{y}} · {columns.name} %{{x}}<br>{unit} {shown}<extra></extra>"
    kind = flags(values, masked)
    data = [trace] if kind is None else [trace, flag_layer(kind, theme, **where)]
    across = list(columns.ends)
    if inset and columns.cells < 4:  # so few cells leave no empty corner: the bar stands beside them, in the same place
        across[1] += 0.3 * columns.cells
    layout = {
        "coloraxis": colour.axis(theme, CORNER if inset else ABOVE),
        "xaxis": axis(theme, columns.title, range=across, tickangle=slant(columns), **_ticks(columns, TICKS_ACROSS)),
        "yaxis": axis(theme, rows.title, range=list(reversed(rows.ends)), **_ticks(rows, lines_in(height))),
    }
    if not inset:  # beside a colour bar above, plotly takes the depth of the tick labels for 0
        for side in ("xaxis", "yaxis"):
            del layout[side]["title"]["standoff"]
    if row is not None:
        layout["shapes"] = [outline(*columns.ends, row - 0.5, row + 0.5, theme)]
    return figure(data, theme, height=height, revision=revision, click=click, **layout)


def lines_in(height: int) -> int:
    """Labels that stand one above the other in a figure of this height, wherever the page puts it."""
    return max(1, (min(height, LOWEST) - AROUND) // PITCH)


def _ticks(side: Axis, most: int) -> dict:
    if side.tickvals is None:
        return {"nticks": 8}
    step = max(1, -(-len(side.tickvals) // most))
    return {"tickmode": "array", "tickvals": side.tickvals[::step], "ticktext": side.ticktext[::step]}


def outline(x0: float, x1: float, y0: float, y1: float, theme: Theme) -> dict:
    """The thin accent frame that means "selected"."""
    frame = {"line": {"color": theme.accent, "width": 1.5}, "fillcolor": "rgba(0,0,0,0)"}
    return {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, **frame}


def flags(values: np.ndarray, masked: np.ndarray | None) -> np.ndarray | None:
    """uint8 like values: 1 NaN, 2 +inf, 3 -inf, 0 drawable or masked; None when every visible entry is finite."""
    hidden = np.zeros(values.shape, bool) if masked is None else masked
    kind = np.select([hidden, np.isnan(values), np.isposinf(values), np.isneginf(values)], [0, 1, 2, 3], 0).astype(np.uint8)
    return kind if kind.any() else None


def flag_layer(kind: np.ndarray, theme: Theme, **where) -> dict:
    """The cells that are not numbers, over the picture that leaves them out."""
    colours = ["rgba(0,0,0,0)", theme.nan, theme.posinf, theme.neginf]
    stops = [[edge, colour] for i, colour in enumerate(colours) for edge in (i / 4, (i + 1) / 4)]
    range_of_four = {"zmin": -0.5, "zmax": 3.5, "colorscale": stops, "showscale": False}
    return {"type": "heatmap", "z": kind, "hoverinfo": "skip", **range_of_four, **where}
