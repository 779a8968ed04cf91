"""Small multiples as one picture: every head a tile on one pair of axes, all in one colour range."""

import numpy as np
import plotly.graph_objects as go

from viz.figures.colours import Colour
from viz.figures.heat import flag_layer, flags, outline
from viz.theme import Theme, figure

WIDE = 300  # px of the column that the tiles stand in
TITLE = 0.2  # share of a tile's height that its title takes
TILE = 0.93  # share of a tile's width that its cells take


def mosaic(
    tiles: np.ndarray,
    titles: list[str],
    colour: Colour,
    theme: Theme,
    *,
    revision: str,
    heads: np.ndarray | None = None,
    selected: int | None = None,
    masked: np.ndarray | None = None,
) -> go.Figure:
    """tiles [tile, rows, columns]; a click anywhere on a tile gives its head (`heads` [tile], default its index).

    One trace instead of one subplot a tile: 32 heads are drawn about as fast as one, and cannot differ in range.
    """
    n, height, width = tiles.shape
    heads = np.arange(n) if heads is None else heads
    across = columns_for(n)
    down = -(-n // across)
    canvas = np.full((down * (height + 1), across * (width + 1)), np.nan, np.float32)
    hidden = np.ones(canvas.shape, bool)
    owner = np.full(canvas.shape, heads[selected or 0], np.uint8 if heads.max() < 256 else np.int16)
    for i, tile in enumerate(tiles):
        top, left = i // across * (height + 1), i % across * (width + 1)
        cells = slice(top + 1, top + 1 + height), slice(left, left + width)  # the title above, a gutter to the right
        canvas[cells], hidden[cells] = tile, False if masked is None else masked[i]
        owner[top : top + 1 + height, left : left + 1 + width] = heads[i]
    x = np.append([i + np.linspace(0, TILE, width + 1) for i in range(across)], across)
    y = np.append(0.0, [i + np.linspace(TITLE, 1, height + 1) for i in range(down)])
    where = {"x": x.astype(np.float32), "y": y.astype(np.float32)}
    trace = {
        "type": "heatmap", "z": colour.forward(canvas), "coloraxis": "coloraxis", "customdata": owner,
        "hoverongaps": True, "hovertemplate": "head %{customdata}<extra></extra>", **where,
    }  # fmt: skip
    kind = flags(canvas, hidden)
    still = {"visible": False, "fixedrange": True}
    layout = {
        "coloraxis": colour.axis(theme),
        "xaxis": {"range": [-0.01, across - 0.06]} | still,
        "yaxis": {"range": [down + 0.01, 0]} | still,
        "annotations": [_title(text, i, across, i == selected, theme) for i, text in enumerate(titles)],
        "margin": {"l": 2, "r": 2, "t": 2, "b": 2},
    }
    if selected is not None:
        row, column = divmod(selected, across)
        layout["shapes"] = [outline(column - 0.01, column + TILE + 0.01, row + TITLE, row + 1, theme)]
    data = [trace] if kind is None else [trace, flag_layer(kind, theme, **where)]
    tall = round(down * WIDE / across * 1.12) + 6
    return figure(data, theme, height=tall, revision=revision, click=("head", "customdata"), **layout)


def columns_for(n: int) -> int:
    """At most four tiles side by side, three while there are few, so that their titles fit."""
    return min(n, 3 if n <= 9 else 4)


def _title(text: str, i: int, across: int, chosen: bool, theme: Theme) -> dict:
    font = {"size": 10.5, "color": theme.accent if chosen else theme.secondary}
    where = {"x": i % across, "y": i // across + TITLE, "xanchor": "left", "yanchor": "bottom", "xshift": -1, "yshift": -2}
    return where | {"text": f"<b>{text}</b>" if chosen else text, "showarrow": False, "font": font}
