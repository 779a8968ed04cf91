"""Layers x heads of two arms at one step, side by side in one colour range, with the numbers in their cells."""

import numpy as np

from viz.figures import colours
from viz.figures.labels import escape
from viz.picture import Picture
from viz.theme import Theme, axis, figure, number

WORDED = 12  # heads up to which a cell has room for its number
ROW, MOST_ROWS = 26, 16  # px of a row with numbers, and up to how many rows have them


def short(value: float) -> str:
    """A number that fits a cell: 13.9k, 28.4, 0.13."""
    size = abs(value)
    if np.isnan(value):
        return ""
    if np.isinf(value):
        return "inf" if value > 0 else "−inf"
    if size >= 1e12:
        return number(value)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}" if size >= 0.001 or size == 0 else f"{value:.0e}"


def heads(
    sides: list[np.ndarray], names: list[str], every: np.ndarray, theme: Theme, *, revision: str, unit: str,
    share: bool = False, chosen: list[tuple[int, int] | None] = (), first: int = 0,
) -> Picture:  # fmt: skip
    """sides: [layer, head] each -> maps beside each other. `every`: all values that the colours must span, at any step.

    `share`: values lie in 0..1 and get the whole range. A clicked cell brings layer * 1024 + head.
    """
    colour = colours.probability(theme) if share else colours.sequential(every, theme, log=colours.spans_decades(every))
    data, layout, n = [], {}, len(sides)
    layers = max(side.shape[0] for side in sides)
    for i, (side, name) in enumerate(zip(sides, names, strict=True)):
        tail = str(i + 1) if i else ""
        rows, columns = side.shape
        code = (np.arange(rows)[:, None] * 1024 + np.arange(columns)).astype(np.int32)
        wide = {"xaxis": f"x{tail}", "yaxis": f"y{tail}", "coloraxis": "coloraxis", "xgap": 2, "ygap": 2}
        words = {"text": [[short(float(v)) for v in row] for row in side]}
        shown = {"texttemplate": "%{text}", "textfont": {"size": 11}} if columns <= WORDED and layers <= MOST_ROWS else {}
        data.append(
            {
                "type": "heatmap", "z": colour.forward(side), "customdata": code, "hoverongaps": False,
                **wide, **words, **shown,
                "hovertemplate": f"{escape(name)}<br>layer %{{y}} · head %{{x}}<br>{unit} %{{text}}<extra></extra>",
            }
        )  # fmt: skip
        left, right = i / n + (0.02 if i else 0), (i + 1) / n - (0.02 if i + 1 < n else 0)
        spread = list(range(columns)) if columns <= WORDED else list(range(0, columns, max(1, columns // 8)))
        down = list(range(layers)) if layers <= 16 else list(range(0, layers, max(1, layers // 10)))
        layout[f"xaxis{tail}"] = axis(
            theme, "head", domain=[left, right], anchor=f"y{tail}", range=[-0.5, columns - 0.5], tickmode="array",
            tickvals=spread, ticktext=[str(v) for v in spread], ticks="",
        )  # fmt: skip
        layout[f"yaxis{tail}"] = axis(
            theme, "layer" if i == 0 else "", anchor=f"x{tail}", range=[layers - 0.5, -0.5], tickmode="array", tickvals=down,
            ticktext=[str(v + first) for v in down], ticks="", showticklabels=i == 0,
        )  # fmt: skip
    shapes = [
        _frame(cell, str(i + 1) if i else "", theme) for i, cell in enumerate(chosen) if cell is not None and cell[0] >= 0
    ]
    layout["coloraxis"] = colour.axis(theme, None)
    height = int(np.clip(layers * (ROW if layers <= 16 else 11) + 46, 120, 520))
    return figure(data, theme, height=height, revision=revision, click=("cell", "customdata"), shapes=shapes, **layout)


def _frame(cell: tuple[int, int], tail: str, theme: Theme) -> dict:
    layer, head = cell
    line = {"line": {"color": theme.accent, "width": 2}, "fillcolor": "rgba(0,0,0,0)", "type": "rect"}
    where = {"x0": head - 0.5, "x1": head + 0.5, "y0": layer - 0.5, "y1": layer + 0.5}
    return line | where | {"xref": f"x{tail}", "yref": f"y{tail}"}
