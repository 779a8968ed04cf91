"""The divergence strip: layers across, tensors down, how far each moved as log colour. Nothing moved is empty."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from viz.figures.heat import outline
from viz.theme import Theme, axis, figure, scale

LOW, HIGH = -3.0, 0.3  # log10 of the relative change that the colours span: 0.001 to 2
ROW, LOW_ROW, FEW = 23, 17, 48  # px a row, of several strips; columns up to which cells are set apart
MANY = 2000  # cells up to which a hover also tells the rms of what has no relative change
WIDE = 1000  # a click gives row * WIDE + layer
EMPTY, MOVED, ONLY_A, ONLY_B, SHAPE, PLACE = range(6)
WORDS = ("the same, bit for bit", "", "only in A", "only in {}", "other shape", "another place in the block")


@dataclass(frozen=True)
class Strip:
    """`relative` [row, layer], `kind` uint8 [row, layer] one of EMPTY..PLACE, `names` of the rows; `sizes` [row, layer, 2]:
    the rms of A's tensor and of the other's, which is all there is to say where shapes differ."""

    relative: np.ndarray
    kind: np.ndarray
    names: list[str]
    sizes: np.ndarray | None = None


def strip(
    part: Strip, theme: Theme, *, letter: str, revision: str, selected: tuple[int, int] | None = None, low: bool = False
) -> go.Figure:
    """One side against A. A relative change of 0 is left empty; a tensor that only one side has is hatched."""
    rows, layers = part.relative.shape
    moved = part.kind == MOVED
    shown = np.where(moved & (part.relative > 0), part.relative, np.nan)
    broken = moved & np.isnan(part.relative)
    z = np.clip(np.log10(np.where(np.isposinf(shown), 1e9, shown)), LOW, HIGH).astype(np.float32)
    x, y = np.arange(layers, dtype=np.int32), np.arange(rows, dtype=np.int32)
    code = (y[:, None] * WIDE + x[None, :]).astype(np.int32)
    gap = 1 if layers <= FEW else 0
    cells = {
        "type": "heatmap", "x": x, "y": y, "z": z, "coloraxis": "coloraxis", "xgap": gap, "ygap": gap, "customdata": code,
        "text": _words(part, letter), "hoverongaps": True,
        "hovertemplate": f"%{{y}} · layer %{{x}}<br>|{letter} − A| / |A|: %{{text}}<extra></extra>",
    }  # fmt: skip
    data = [cells]
    for kinds, symbol, colour in (
        ((ONLY_A,), "line-ne", theme.a),
        ((ONLY_B,), "line-ne", theme.b),
        ((SHAPE, PLACE), "x-thin", theme.secondary),
    ):
        at = np.argwhere(np.isin(part.kind, kinds))
        data += [_marks(at, symbol, colour, code)] if len(at) else []
    at = np.argwhere(broken)
    data += [_marks(at, "square", theme.nan, code)] if len(at) else []
    ticks = {"tickmode": "array", "tickvals": y, "ticktext": part.names}
    across = {"tickmode": "array", "tickvals": x} if layers <= 12 else {"nticks": 32, "tickformat": "d"}
    marks = [-3.0, -2.0, -1.0, 0.0]
    shade = {"cmin": LOW, "cmax": HIGH, "colorscale": scale(theme.log), "showscale": True}
    shade["colorbar"] = {
        "thickness": 9, "outlinewidth": 0, "tickvals": marks, "ticktext": ["0.001", "0.01", "0.1", "1"], "len": 1.0,
        "tickfont": {"size": 11, "color": theme.secondary}, "ticks": "", "xpad": 6, "ypad": 0,
    }  # fmt: skip
    layout = {
        "coloraxis": shade,
        "xaxis": axis(theme, "", range=[-0.5, layers - 0.5], tickangle=0, **across),
        "yaxis": axis(theme, "", range=[rows - 0.5, -0.5], **ticks),
        "plot_bgcolor": theme.panel,
    }
    if selected is not None:
        row, layer = selected
        box = outline(layer - 0.5, layer + 0.5, row - 0.5, row + 0.5, theme)
        rings = ((5, theme.background), (2.5, theme.ink))  # seen on a pale cell and on a dark one
        layout["shapes"] = [box | {"line": {"width": width, "color": colour}} for width, colour in rings]
    return figure(
        data, theme, height=34 + (LOW_ROW if low else ROW) * rows, revision=revision, click=("cell", "customdata"), **layout
    )


def _words(part: Strip, letter: str) -> list[list[str]]:
    """What a hover says of each cell beside its tensor and layer: short, since there may be thousands."""
    words = [word.format(letter) for word in WORDS]

    def one(row: int, layer: int, kind: int) -> str:
        if kind == MOVED:
            return f"{part.relative[row, layer]:.3g}"
        if kind in (ONLY_A, ONLY_B, SHAPE, PLACE) and part.sizes is not None and part.kind.size <= MANY:
            sizes = [f"{size:.3g}" for size in part.sizes[row, layer] if size == size]
            return f"{words[kind]}, rms {', '.join(sizes)}"
        return words[kind]

    return [[one(row, layer, kind) for layer, kind in enumerate(kinds)] for row, kinds in enumerate(part.kind)]


def _marks(at: np.ndarray, symbol: str, colour: str, code: np.ndarray) -> dict:
    """Cells that have no colour of their own."""
    marker = {"symbol": symbol, "size": 9, "color": colour, "line": {"width": 1.3, "color": colour}}
    y, x = at.T.astype(np.int16)
    base = {"type": "scatter", "mode": "markers", "hoverinfo": "skip", "marker": marker}
    return base | {"x": x, "y": y, "customdata": code[at[:, 0], at[:, 1]]}
