"""Curves of counts over lengths: bytes of a cache, shares of work, work per byte; lengths on a logarithmic axis."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from viz.figures.labels import escape
from viz.theme import Theme, axis, figure, see_through

HUES = {"light": ("#7b5aa6", "#3c8a5a", "#9a7b1f", "#6a6f78"), "dark": ("#c3a1f0", "#7fd0a0", "#dcbf5e", "#9aa0a9")}
UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B"))


@dataclass(frozen=True)
class Curve:
    """`values` at the shared lengths; `texts` are what a hover says of each; `colour` an index into `colours`."""

    name: str
    values: np.ndarray
    texts: tuple[str, ...]
    colour: int = 0
    dash: str = "solid"
    bold: bool = False


def colours(theme: Theme) -> tuple[str, ...]:
    return (theme.accent, theme.a, theme.b, *HUES[theme.name])


def curves(lengths: np.ndarray, lines: list[Curve], theme: Theme, *, x: str, y: str, bytes_: bool, at: float, height: int):
    """Lines on two logarithmic axes, each named at its right end; `at` is the length that is marked."""
    palette = colours(theme)
    data = [
        {
            "type": "scatter", "mode": "lines", "x": lengths.astype(np.float32), "y": line.values.astype(np.float32),
            "name": escape(line.name), "text": [escape(text) for text in line.texts],
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            "line": {"color": palette[line.colour % len(palette)], "width": 3 if line.bold else 1.75, "dash": line.dash},
        }
        for line in lines
    ]  # fmt: skip
    low, high = (f(f(line.values) for line in lines) for f in (min, max))
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom"}
    return figure(
        data, theme, height=height, revision=f"{x}{y}", showlegend=len(lines) > 1, hovermode="x unified",
        legend=legend | {"font": {"color": theme.ink, "size": 12}, "bgcolor": "rgba(0,0,0,0)"},
        xaxis=_lengths(lengths, theme, x), yaxis=_amounts(low, high, theme, y, bytes_), shapes=[_mark(at, theme)],
        margin={"l": 4, "r": 10, "t": 40, "b": 4},
    )  # fmt: skip


def shares(lengths: np.ndarray, parts: list[Curve], theme: Theme, *, x: str, at: float, height: int) -> go.Figure:
    """Areas that fill the height: what one token's work is spent on."""
    palette = colours(theme)
    data = [
        {
            "type": "scatter", "mode": "lines", "x": lengths.astype(np.float32), "y": part.values.astype(np.float32),
            "name": escape(part.name), "stackgroup": "one", "text": [escape(text) for text in part.texts],
            "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
            "line": {"width": 0.8, "color": palette[part.colour]},
            "fillcolor": see_through(palette[part.colour], 0.32 if part.bold else 0.6),
        }
        for part in parts
    ]  # fmt: skip
    legend = {"orientation": "h", "x": 0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "traceorder": "normal"}
    return figure(
        data, theme, height=height, revision="shares", showlegend=True, hovermode="x unified", shapes=[_mark(at, theme)],
        legend=legend | {"font": {"color": theme.ink, "size": 12}, "bgcolor": "rgba(0,0,0,0)"},
        xaxis=_lengths(lengths, theme, x), margin={"l": 4, "r": 10, "t": 40, "b": 4},
        yaxis=axis(theme, "share of a token's FLOPs", grid=True, range=[0, 1], tickformat=".0%", ticks=""),
    )  # fmt: skip


def short(n: float) -> str:
    """1024 -> "1k", 1048576 -> "1M"."""
    for size, unit in ((1 << 20, "M"), (1 << 10, "k")):
        if n >= size:
            return f"{n / size:g}{unit}"
    return f"{n:g}"


def _lengths(lengths: np.ndarray, theme: Theme, title: str) -> dict:
    ticks = lengths[:: max(1, -(-len(lengths) // 7))]
    span = [float(np.log10(lengths[0])), float(np.log10(lengths[-1]))]
    words = {"tickmode": "array", "tickvals": ticks.astype(np.float32), "ticktext": [short(n) for n in ticks]}
    return axis(theme, title, type="log", range=span, hoverformat=",.0f", **words)


def _amounts(low: float, high: float, theme: Theme, title: str, bytes_: bool) -> dict:
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    powers = range(first, last + 1, max(1, -(-(last - first) // 6)))
    ticks = [10.0**k for k in powers]
    text = [_bytes(tick) if bytes_ else f"{tick:,g}" for tick in ticks]
    span = [float(np.log10(low)) - 0.1, float(np.log10(high)) + 0.1]
    return axis(theme, title, grid=True, type="log", range=span, tickmode="array", tickvals=ticks, ticktext=text, ticks="")


def _bytes(n: float) -> str:
    size, unit = next((size, unit) for size, unit in UNITS if n >= size or size == 1)
    return f"{n / size:g} {unit}"


def _mark(at: float, theme: Theme) -> dict:
    line = {"color": theme.secondary, "width": 1, "dash": "dot"}
    return {"type": "line", "xref": "x", "x0": at, "x1": at, "yref": "paper", "y0": 0, "y1": 1, "line": line}
