"""Charts along one axis (tokens, dims, heads, layers): panels one above the other that share it."""

import re

import numpy as np
import plotly.graph_objects as go

from viz.figures.labels import Axis
from viz.figures.series import Panel, Series, traces, value_axis
from viz.theme import Theme, axis, figure, see_through

__all__ = ["Panel", "Series", "slant", "stack"]


def stack(
    panels: list[Panel],
    side: Axis,
    theme: Theme,
    *,
    revision: str,
    height: int,
    selected: float | None = None,
    click: tuple[str, str] | None = None,
    legend: bool | None = None,
) -> go.Figure:
    """Panels from top to bottom over the shared axis `side`; `selected` is the marked entry of that axis."""
    data, layout, seen = [], {"annotations": [], "shapes": []}, set()
    names = {series.name for panel in panels for series in panel.series if series.keyed}
    shown = len(names) > len(panels) if legend is None else legend
    beside = shown and len(panels) == 1  # the legend stands where the panel's title would: it goes to the axis
    for i, (panel, domain) in enumerate(zip(panels, _domains(panels), strict=True)):
        tail, last = str(i + 1) if i else "", i == len(panels) - 1
        for series in panel.series:
            data += traces(
                series, side.centres, theme, log=panel.log, selected=selected, xaxis=f"x{tail}", yaxis=f"y{tail}",
                showlegend=series.keyed and series.name not in seen,
                hovertemplate=f"{side.name} %{{x}}<br>{series.name} %{{y:.4g}}<extra></extra>",
            )  # fmt: skip
            seen.add(series.name)
        layout[f"yaxis{tail}"] = value_axis(panel, domain, theme, panel.title if beside else "", anchor=f"x{tail}")
        layout[f"xaxis{tail}"] = _shared_axis(side, theme, tail, last)
        layout["annotations"] += _words(panel, side, theme, tail, "" if beside else panel.title)
        layout["shapes"] += [_level(value, theme, tail) for value, _ in panel.lines if np.isfinite(value)]
    margin = {"l": 4, "r": 6, "t": 26 if shown else 18 if panels[0].title else 8, "b": 4}
    looks = {"showlegend": shown, "barmode": "overlay", "bargap": 0.25, "margin": margin}
    return figure(data, theme, height=height, revision=revision, click=click, **looks, **layout)


def slant(side: Axis) -> int:
    """Words along the bottom stand askew, numbers and single characters upright."""
    shown = [re.sub(r"&\w+;", "x", text) for text in side.ticktext or ()]
    return -45 if any(len(text) > 2 and not text.isdigit() for text in shown) else 0


def _domains(panels: list[Panel]) -> list[tuple[float, float]]:
    """Vertical shares from top to bottom, with room for each panel's title."""
    gap = 0.10 if len(panels) > 2 else 0.14
    room = 1 - gap * (len(panels) - 1)
    total, top, domains = sum(p.share for p in panels), 1.0, []
    for panel in panels:
        size = room * panel.share / total
        domains.append((max(top - size, 0.0), top))
        top -= size + gap
    return domains


def _shared_axis(side: Axis, theme: Theme, tail: str, last: bool) -> dict:
    """The horizontal axis of one panel; only the last one is labelled, all zoom together."""
    looks = {"anchor": f"y{tail}", "showticklabels": last, "ticks": "outside" if last else "", "range": list(side.ends)}
    looks |= {"matches": "x"} if tail else {}
    if side.ticktext:
        looks |= {"tickmode": "array", "tickvals": side.tickvals, "ticktext": side.ticktext if last else []}
    else:
        looks |= {"nticks": 9}
    return axis(theme, side.title if last else "", tickangle=slant(side), **looks)


def _level(value: float, theme: Theme, tail: str) -> dict:
    across = {"xref": f"x{tail} domain", "x0": 0, "x1": 1, "yref": f"y{tail}", "y0": value, "y1": value}
    return across | {"type": "line", "line": {"color": theme.ink, "width": 1.25, "dash": "dash"}}


def _words(panel: Panel, side: Axis, theme: Theme, tail: str, title: str) -> list[dict]:
    """The panel's title above its left end, its lines' labels at their right end, its notes beside their points."""
    base = {"showarrow": False, "yanchor": "bottom", "yref": f"y{tail}", "font": {"size": 11, "color": theme.ink}}
    out = []
    if title:
        above = {"text": title, "xref": f"x{tail} domain", "x": 0, "yref": f"y{tail} domain", "y": 1, "xanchor": "left"}
        out.append(base | above | {"font": {"size": 11, "color": theme.secondary}})
    place = np.log10 if panel.log else float
    for value, text in panel.lines:
        if np.isfinite(value):
            out.append(base | {"text": text, "xref": f"x{tail} domain", "x": 1, "y": place(value), "xanchor": "right"})
    for x, y, text in panel.notes:
        right = x > sum(side.ends) / 2
        beside = {"xanchor": "right", "xshift": -6} if right else {"xanchor": "left", "xshift": 6}
        paper = {"yshift": 5, "bgcolor": see_through(theme.background, 0.75)}
        out.append(base | beside | paper | {"text": text, "xref": f"x{tail}", "x": x, "y": place(y)})
    return out
