"""Colours, type and numbers of every picture, light and dark. Colour scales are explicit stops: a scale that is only
named means ColorBrewer to plotly.py and something else to plotly.js."""

import math
from dataclasses import dataclass

from viz.picture import Picture

SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

Stops = tuple[tuple[float, str], ...]


def _even(*colours: str) -> Stops:
    """Colours at equal distances from 0 to 1."""
    return tuple((i / (len(colours) - 1), colour) for i, colour in enumerate(colours))


@dataclass(frozen=True)
class Theme:
    """One palette. Every scale changes in lightness as well as hue, so it can be read without colour vision."""

    name: str
    background: str
    panel: str
    line: str
    ink: str
    secondary: str
    accent: str
    faint: str  # the accent, thinned: marks that are there but not selected
    a: str
    b: str
    nan: str  # cells that are not numbers: colours that no scale below contains
    posinf: str
    neginf: str
    diverging: Stops  # signed data, centred on 0
    sequential: Stops  # positive data
    probability: Stops  # 0..1
    log: Stops  # positive data over decades
    cyclic: Stops  # angles: 0 and 2 pi look alike


LIGHT = Theme(
    name="light",
    background="#fbfbf9",
    panel="#ffffff",
    line="#e4e4df",
    ink="#1b1e23",
    secondary="#6a6f78",
    accent="#2f5bd7",
    faint="#a9bbec",
    a="#c2542d",
    b="#1f6fb4",
    nan="#c218b8",
    posinf="#101215",
    neginf="#c9a400",
    diverging=_even("#2166ac", "#8bbfdd", "#f5f4f1", "#eb9c7d", "#b2412a"),
    sequential=_even("#f5f2ea", "#edd7a4", "#dba24f", "#b85f2b", "#7a2c14"),
    probability=_even("#f4f4f1", "#c9d6f3", "#85a3e6", "#4169d0", "#1b2f86"),
    log=_even("#f5f2ea", "#edd7a4", "#dba24f", "#b85f2b", "#7a2c14"),
    cyclic=_even("#e2d9e2", "#94b0c4", "#6276ba", "#5b3f95", "#2f1436", "#7a2150", "#b25652", "#c99a80", "#e2d9e2"),
)

DARK = Theme(
    name="dark",
    background="#14161a",
    panel="#1b1e24",
    line="#2d3138",
    ink="#e9eaec",
    secondary="#9aa0a9",
    accent="#86a7ff",
    faint="#4a5f99",
    a="#f08a5d",
    b="#6fb4ee",
    nan="#ff5df1",
    posinf="#ffffff",
    neginf="#ffe14d",
    diverging=_even("#2166ac", "#8bbfdd", "#2a2d33", "#eb9c7d", "#b2412a"),
    sequential=_even("#25282e", "#5f4630", "#a8662f", "#e39d4c", "#fbe3b2"),
    probability=_even("#22252b", "#2f4483", "#4f76d8", "#8fb0ff", "#e6eeff"),
    log=_even("#25282e", "#5f4630", "#a8662f", "#e39d4c", "#fbe3b2"),
    cyclic=_even("#2f1436", "#7a2150", "#b25652", "#c99a80", "#e2d9e2", "#94b0c4", "#6276ba", "#5b3f95", "#2f1436"),
)

THEMES = {"light": LIGHT, "dark": DARK}


def scale(stops: Stops) -> list[list]:
    """Stops as plotly wants them."""
    return [[at, colour] for at, colour in stops]


def see_through(colour: str, opacity: float) -> str:
    """ "#rrggbb" with an opacity."""
    return f"rgba({int(colour[1:3], 16)},{int(colour[3:5], 16)},{int(colour[5:7], 16)},{opacity})"


def axis(theme: Theme, title: str = "", *, grid: bool = False, **more) -> dict:
    """A quiet axis: short ticks, no zero line, labels that never leave the picture."""
    base = {
        "automargin": True,
        "showgrid": grid,
        "gridcolor": theme.line,
        "zeroline": False,
        "showline": False,
        "ticks": "outside",
        "ticklen": 3,
        "tickcolor": theme.line,
        "tickfont": {"color": theme.ink, "size": 11},
        "title": {"text": title, "standoff": 6, "font": {"color": theme.secondary, "size": 12}},
    }
    return base | more


def figure(
    data: list[dict], theme: Theme, *, height: int, revision: str, click: tuple[str, str] | None = None, **layout
) -> Picture:
    """A figure without a title (the page writes title and caption) whose zoom survives as long as `revision` stays.

    `click` = (field of the page's state, where a clicked point carries its value: "x", "y" or "customdata").
    """
    base = {
        "height": height,
        "margin": {"l": 4, "r": 6, "t": 8, "b": 4, "pad": 0},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": SANS, "size": 12, "color": theme.ink},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {
            "bgcolor": theme.panel,
            "bordercolor": theme.secondary,
            "font": {"family": MONO, "size": 12, "color": theme.ink},
        },
        "uirevision": revision,
        "template": {},  # plotly.py's own template would add its colours
        "legend": {
            "orientation": "h",
            "x": 1,
            "xanchor": "right",
            "y": 1.0,
            "yanchor": "bottom",
            "bgcolor": "rgba(0,0,0,0)",
            "font": {"color": theme.secondary, "size": 12},
        },
    }
    if click is not None:
        base["meta"] = {"click": {"field": click[0], "from": click[1]}}
    return Picture(data, base | layout)


def number(x: float) -> str:
    """Three significant digits that a person can read: 15.8, 0.0123, 1,234, 1.2e-7, NaN, +inf."""
    if math.isnan(x):
        return "NaN"
    if math.isinf(x):
        return "+inf" if x > 0 else "−inf"
    size = abs(x)
    if size == 0:
        text = "0"
    elif size >= 1e5 or size < 1e-3:
        mantissa, exponent = f"{size:.1e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        text = (
            f"{size:,.0f}" if size >= 100 else f"{size:.1f}" if size >= 10 else f"{size:.2f}" if size >= 1 else f"{size:#.3g}"
        )
    return f"−{text}" if x < 0 else text


def count(n: int, one: str, many: str | None = None) -> str:
    """`count(1, "key")` -> "1 key", `count(3, "key")` -> "3 keys"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"
