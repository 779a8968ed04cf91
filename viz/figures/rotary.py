"""The rotation itself: coordinate pairs as arrows in the plane, before and after."""

import numpy as np
import plotly.graph_objects as go

from viz.theme import Theme, figure

COLUMNS = 4
TALL = 1.22  # height of a tile for a width of 1: the circle and two lines of text
RADIUS = 0.44  # of the longest arrow

Vectors = dict[str, np.ndarray]  # name -> [pair, 2]


def arrows(before: Vectors, after: Vectors, titles: list[str], theme: Theme, *, revision: str) -> go.Figure:
    """Real coordinates of each named vector, one tile a pair; circles show that the rotation keeps lengths.

    One scale for all tiles, of the square root of the length: directions are exact and weak pairs stay visible.
    """
    before, after = ({name: _root(v) for name, v in side.items()} for side in (before, after))
    n, across = len(titles), min(len(titles), COLUMNS)
    down = -(-n // across)
    reach = max(float(np.hypot(*v.T).max(initial=0.0)) for v in (*before.values(), *after.values())) or 1.0
    middle = np.stack([np.arange(n) % across + 0.5, -(np.arange(n) // across * TALL) - TALL + 0.48], axis=1)
    data = []
    for (name, start), colour in zip(before.items(), (theme.a, theme.b), strict=False):
        start, end = start * RADIUS / reach, after[name] * RADIUS / reach
        data += [_line(_circles(start, middle), theme.line), _line(_arcs(start, end, middle), colour, dash="dot")]
        for tips, when, width, opacity in ((start, "before", 1.5, 0.45), (end, "after", 2.5, 1.0)):
            data += _arrows(tips, middle, f"{name} {when}", colour, width, opacity)
    still = {"visible": False, "fixedrange": True}
    layout = {
        "xaxis": {"range": [0, across], "constrain": "domain"} | still,
        "yaxis": {"range": [-TALL * down, 0], "scaleanchor": "x", "constraintoward": "top"} | still,
        "annotations": [_title(text, *at, theme) for text, at in zip(titles, middle, strict=True)],
        "margin": {"l": 2, "r": 2, "t": 26, "b": 2},
    }
    height = round(34 + down * TALL * 520 / across)
    return figure(data, theme, height=height, revision=revision, showlegend=True, **layout)


def _root(vectors: np.ndarray) -> np.ndarray:
    """Same directions, square root of the length."""
    length = np.hypot(*vectors.T)[:, None]
    return vectors / np.sqrt(np.maximum(length, 1e-30))


def _circles(tips: np.ndarray, middle: np.ndarray) -> list[np.ndarray]:
    """Around the middle of each tile, through the tip."""
    turn = np.linspace(0, 2 * np.pi, 49)
    ring = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    return [m + np.hypot(*tip) * ring for m, tip in zip(middle, tips, strict=True)]


def _arcs(start: np.ndarray, end: np.ndarray, middle: np.ndarray) -> list[np.ndarray]:
    """From tip to tip, counter-clockwise: the angle modulo 2 pi."""
    arcs = []
    for m, a, b in zip(middle, start, end, strict=True):
        first = np.arctan2(a[1], a[0])
        turn = first + np.linspace(0, np.mod(np.arctan2(b[1], b[0]) - first, 2 * np.pi), 25)
        arcs.append(m + np.hypot(*a) * np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return arcs


def _arrows(tips: np.ndarray, middle: np.ndarray, name: str, colour: str, width: float, opacity: float) -> list[dict]:
    """The arrows as one trace, and a plain stroke that stands for them in the legend."""
    shafts = _line([np.stack([m, m + tip]) for m, tip in zip(middle, tips, strict=True)], colour, width)
    heads = {
        "symbol": "arrow",
        "angleref": "previous",
        "size": np.tile(np.array([0, 9, 0], np.uint8), len(tips)),
        "color": colour,
    }
    marker = heads | {"opacity": 1, "line": {"width": 0}}
    look = {"name": name, "legendgroup": name, "opacity": opacity}
    key = _line([np.full((1, 2), np.nan)], colour, width) | look | {"showlegend": True}
    return [shafts | look | {"mode": "lines+markers", "marker": marker}, key]


def _line(paths: list[np.ndarray], colour: str, width: float = 1, dash: str = "solid") -> dict:
    """Polylines [m, 2] as one trace, with gaps between them."""
    gap = np.full((1, 2), np.nan)
    points = np.concatenate([part for path in paths for part in (path, gap)]).astype(np.float32)
    style = {"mode": "lines", "line": {"color": colour, "width": width, "dash": dash}, "hoverinfo": "skip", "showlegend": False}
    return {"type": "scatter", "x": points[:, 0].copy(), "y": points[:, 1].copy(), **style}


def _title(text: str, x: float, y: float, theme: Theme) -> dict:
    font = {"size": 11, "color": theme.secondary}
    return {"x": x, "y": y + RADIUS + 0.01, "text": text, "showarrow": False, "yanchor": "bottom", "font": font}
