"""Histograms laid over each other on common bins."""

import numpy as np
import plotly.graph_objects as go

from viz.theme import Theme, axis, figure, number, see_through

BINS = 80
NEAR = 3  # times the largest |x|: a bound farther out is named at the edge instead of drawn

Group = tuple[str, np.ndarray, str]  # name, values, colour


def edges_for(*arrays: np.ndarray, bins: int = BINS) -> np.ndarray:
    """Common bin edges over the finite entries of all arrays."""
    kept = np.concatenate([np.ravel(a[np.isfinite(a)]) for a in arrays])
    low, high = (float(kept.min()), float(kept.max())) if kept.size else (-1.0, 1.0)
    return np.linspace(low, high, bins + 1) if low < high else np.linspace(low - 0.5, low + 0.5, bins + 1)


def overlay(
    groups: list[Group],
    theme: Theme,
    *,
    revision: str,
    title: str,
    bound: float | None = None,
    band: tuple[float, float, str] | None = None,
    ticks: tuple[list[float], list[str]] | None = None,
    height: int = 260,
) -> go.Figure:
    """The groups as outlines, each with marks at its two ends; lines at +-`bound`; `band` = (from, to, text) shaded."""
    edges = edges_for(*(values for _, values, _ in groups))
    data = [trace for group in groups for trace in (_outline(group, edges), _ends(group))]
    low, high, shapes, words = float(edges[0]), float(edges[-1]), [], []
    if bound is not None and np.isfinite(bound):
        if bound <= NEAR * max(abs(low), abs(high)) or not any(np.isfinite(values).any() for _, values, _ in groups):
            low, high = min(low, -bound), max(high, bound)
            shapes += [_upright(x, theme) for x in (-bound, bound)]
            words.append(_note(bound, f"bound {number(bound)}", "right", theme))
        else:
            words.append(_note(high, f"bound {number(bound)}, far outside →", "right", theme))
    if band is not None:
        start, end, text = band
        shade = {
            "type": "rect",
            "yref": "paper",
            "x0": start,
            "x1": end,
            "y0": 0,
            "y1": 1,
            "line": {"width": 0},
            "layer": "below",
        }
        shapes.append(shade | {"fillcolor": see_through(theme.faint, 0.35)})
        words.append(_note((start + end) / 2, text, "center", theme))
    pad = 0.03 * (high - low)
    marks = {"nticks": 8} if ticks is None else {"tickmode": "array", "tickvals": ticks[0], "ticktext": ticks[1]}
    layout = {
        "xaxis": axis(theme, title, range=[low - pad, high + pad], **marks),
        "yaxis": axis(theme, "share of entries", grid=True, tickformat=".0%", ticks="", nticks=5, rangemode="tozero"),
        "shapes": shapes,
        "annotations": words,
        "margin": {"l": 4, "r": 6, "t": 26 if len(groups) > 1 else 10, "b": 4},
    }
    return figure(data, theme, height=height, revision=revision, showlegend=len(groups) > 1, **layout)


def shares(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Share of the finite entries in each bin, float32 [bins]."""
    kept = values[np.isfinite(values)]
    return (np.histogram(kept, edges)[0] / max(kept.size, 1)).astype(np.float32)


def _outline(group: Group, edges: np.ndarray) -> dict:
    name, values, colour = group
    share = shares(values, edges)
    return {
        "type": "scatter", "mode": "lines", "x": edges.astype(np.float32), "y": np.append(share, share[-1]), "name": name,
        "line": {"color": colour, "width": 1.75, "shape": "hv"}, "fill": "tozeroy", "fillcolor": see_through(colour, 0.25),
        "hovertemplate": f"{name}<br>from %{{x:.3g}}: %{{y:.2%}}<extra></extra>",
    }  # fmt: skip


def _ends(group: Group) -> dict:
    """Smallest and largest entry, which the bars of many entries would not show."""
    name, values, colour = group
    kept = values[np.isfinite(values)]
    x = np.array([kept.min(), kept.max()] if kept.size else [], np.float32)
    return {
        "type": "scatter", "mode": "markers", "x": x, "y": np.zeros(len(x), np.float32), "showlegend": False,
        "marker": {"symbol": "triangle-up", "size": 8, "color": colour}, "cliponaxis": False,
        "hovertemplate": f"{name}, an end: %{{x:.4g}}<extra></extra>",
    }  # fmt: skip


def _upright(x: float, theme: Theme) -> dict:
    dashed = {"color": theme.ink, "width": 1.25, "dash": "dash"}
    return {"type": "line", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1, "line": dashed}


def _note(x: float, text: str, anchor: str, theme: Theme) -> dict:
    shift, font = {"right": -4, "center": 0}[anchor], {"size": 11, "color": theme.ink}
    where = {"x": x, "y": 1, "yref": "paper", "xanchor": anchor, "yanchor": "top", "xshift": shift}
    return where | {"text": text, "showarrow": False, "font": font}
