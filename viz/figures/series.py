"""One curve or row of bars, the panel it stands in, and the scale of that panel."""

from dataclasses import dataclass, field

import numpy as np

from viz.theme import Theme, axis, see_through

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
DOTTED = 40  # points up to which a line also shows its points


@dataclass(frozen=True)
class Series:
    """Values along the shared axis. `style`: bar, line, dash, dots or area. `name` is ours: plotly reads it as HTML."""

    name: str
    values: np.ndarray
    colour: str
    style: str = "line"
    at: np.ndarray | None = None  # where along the axis, default the axis's own cells
    opacity: float = 1.0
    keyed: bool = True  # named in the legend


@dataclass(frozen=True)
class Panel:
    """One row: its series, its own scale, and horizontal lines with a label (a bound, a context length)."""

    title: str
    series: list[Series]
    log: bool = False
    span: tuple[float, float] | None = None  # fixed range of the values
    lines: list[tuple[float, str]] = field(default_factory=list)
    zero: bool = True  # positive data start at 0
    share: float = 1.0  # height relative to the other panels
    notes: list[tuple[float, float, str]] = field(default_factory=list)  # (along, value, text) beside a point


def finite(values: np.ndarray, log: bool = False) -> np.ndarray:
    """float32 with gaps where nothing can be drawn; a raw infinity would break the trace."""
    values = np.asarray(values, np.float32)
    drawable = np.isfinite(values) & (values > 0) if log else np.isfinite(values)
    return np.where(drawable, values, np.float32(np.nan))


def traces(series: Series, along: np.ndarray, theme: Theme, *, log: bool, selected: float | None, **where) -> list[dict]:
    """The plotly traces of a series; of bars the selected one is drawn again in the accent."""
    at = np.asarray(along if series.at is None else series.at, np.float32)
    values = finite(series.values, log)
    base = {"x": at, "y": values, "name": series.name, "legendgroup": series.name, "opacity": series.opacity, **where}
    if series.style == "bar":
        bars = base | {"type": "bar", "marker": {"color": series.colour, "line": {"width": 0}}}
        if selected is None:
            return [bars]
        chosen = np.abs(at - selected) < 0.5
        accent = {"color": theme.accent, "line": {"width": 0}}
        return [bars, bars | {"x": at[chosen], "y": values[chosen], "marker": accent, "showlegend": False}]
    dash = "dot" if series.style == "dash" else "solid"
    line = {"color": series.colour, "width": 1 if series.style == "area" else 1.75, "dash": dash}
    marker = {"size": 10 if series.style == "dots" else 5, "color": series.colour}
    fill = {"fill": "tozeroy", "fillcolor": see_through(series.colour, 0.25)} if series.style == "area" else {}
    return [base | {"type": "scatter", "mode": _mode(series, values), "line": line, "marker": marker, **fill}]


def _mode(series: Series, values: np.ndarray) -> str:
    if series.style == "dots" or np.isfinite(values).sum() == 1:  # a line through one point would not be seen
        return "markers"
    return "lines+markers" if series.style == "line" and len(values) <= DOTTED else "lines"


def value_axis(panel: Panel, domain: tuple[float, float], theme: Theme, title: str, **more) -> dict:
    """The vertical axis of a panel that takes `domain` of the height."""
    more |= {"domain": list(domain), "ticks": "", "tickfont": {"color": theme.secondary, "size": 11}}
    if panel.log:
        more |= {"type": "log", **_decades(panel)}
    else:
        more |= {"nticks": 6 if domain[1] - domain[0] > 0.5 else 4, "zeroline": True, "zerolinecolor": theme.line}
        if panel.zero and all((s.values[np.isfinite(s.values)] >= 0).all() for s in panel.series):
            more["rangemode"] = "tozero"
    if panel.span is not None:
        more["range"] = list(panel.span)
    return axis(theme, title, grid=True, **more)


def _decades(panel: Panel) -> dict:
    """Ticks at powers of ten, which plotly would write in a larger type, and a range that includes the panel's lines."""
    values = np.concatenate([*(np.ravel(s.values) for s in panel.series), np.array([value for value, _ in panel.lines])])
    values = values[np.isfinite(values) & (values > 0)]
    if not values.size:
        return {}
    low, high = float(np.log10(values.min())), float(np.log10(values.max()))
    pad = 0.08 * max(high - low, 0.5)
    scale = {"range": [low - pad, high + pad]} if panel.lines else {}
    powers = list(range(int(np.floor(low)), int(np.ceil(high)) + 1))
    if high - low < 1.5:
        marks = [m * 10.0**k for k in powers for m in (1, 2, 5)]
        return scale | {"tickmode": "array", "tickvals": marks, "ticktext": [f"{mark:,g}" for mark in marks]}
    powers = powers[:: -(-len(powers) // 6)]
    text = [f"{10.0**k:,g}" if -3 <= k <= 4 else "10" + str(k).translate(SUPERSCRIPT) for k in powers]
    return scale | {"tickmode": "array", "tickvals": [10.0**k for k in powers], "ticktext": text}
