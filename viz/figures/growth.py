"""Curves of training runs over steps: every layer of every arm in one panel, so that all share their axes."""

from dataclasses import dataclass, field

import numpy as np

from viz.figures.labels import escape
from viz.figures.triptych import LATER
from viz.picture import Picture
from viz.theme import Theme, axis, figure, see_through

FAINTEST = 0.35  # opacity of the first layer; the last is opaque
WORD, AROUND = 14, 56  # px that a label needs, and that axis and margins take of a panel's height
FURTHEST = 1.05  # words that a label may stand from its line's end, where several end close together
POWERS = range(-8, 40)
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Line:
    """One curve: `side` 0 to 3 gives its colour, `strength` 0..1 its opacity, `label` stands at its right end.

    `name` says in words what it is ("off, layer 2, head 1"). `dash` "dot" tells a second kind of curve in the same colour.
    """

    name: str
    steps: np.ndarray
    values: np.ndarray
    side: int = 0
    strength: float = 1.0
    label: str = ""
    dash: str = "solid"
    width: float = 1.75


@dataclass(frozen=True)
class Level:
    """A horizontal line over the whole width: what an n-gram model reaches."""

    value: float
    label: str


@dataclass(frozen=True)
class Panel:
    """`unit` names the number in a hover; `span` fixes the axis of values that have natural ends."""

    lines: list[Line]
    log: bool = False
    span: tuple[float, float] | None = None
    unit: str = ""
    levels: list[Level] = field(default_factory=list)
    total: int = 0  # steps of the axis, 0: as far as the lines go
    across: str = "step"
    growing: bool = False  # values are still to come: the axis follows them


def shade(layer: int, layers: int) -> float:
    """Opacity of a layer: the first is the faintest."""
    return 1.0 if layers < 2 else FAINTEST + (1 - FAINTEST) * layer / (layers - 1)


def power(k: int) -> str:
    return f"{10.0**k:,g}" if -3 <= k <= 4 else "10" + str(k).translate(RAISED)


def sides(theme: Theme) -> tuple[str, ...]:
    """The colours of the arms: off and on are A and B of the other pages."""
    return (theme.a, theme.b, *LATER[theme.name])


def panel(drawn: Panel, theme: Theme, *, revision: str, height: int = 250) -> Picture:
    """Shape 0 of the figure is a vertical line that the page moves to the chosen step."""
    colours = sides(theme)
    data = [_trace(line, colours[line.side], drawn) for line in drawn.lines]
    last = drawn.total or max((float(line.steps[-1]) for line in drawn.lines if len(line.steps)), default=1.0)
    shapes = [_marker(theme), *(_level(level, theme) for level in drawn.levels)]
    whole = {"tick0": 0, "dtick": max(1, -(-int(last) // 12))} if drawn.across == "layer" else {"nticks": 7}
    across = axis(theme, drawn.across, range=[0, last], **whole)
    return figure(
        data, theme, height=height, revision=revision, hovermode="closest", shapes=shapes,
        annotations=_ends(drawn, colours, theme, height), xaxis=across, yaxis=_upright(drawn, theme),
        margin={"l": 4, "r": 58, "t": 8, "b": 4},
    )  # fmt: skip


def _trace(line: Line, colour: str, drawn: Panel) -> dict:
    values = np.asarray(line.values, np.float32)
    keep = np.isfinite(values) & ((values > 0) if drawn.log else True)
    looks = {"color": see_through(colour, line.strength), "width": line.width, "dash": line.dash}
    return {
        "type": "scatter", "mode": "lines", "x": np.asarray(line.steps, np.float32)[keep], "y": values[keep], "line": looks,
        "name": escape(line.name),
        "hovertemplate": f"{drawn.across} %{{x}}<br>{drawn.unit} %{{y:.4g}}<extra>%{{fullData.name}}</extra>",
    }  # fmt: skip


def _marker(theme: Theme) -> dict:
    line = {"color": theme.accent, "width": 1.25}
    return {"type": "line", "xref": "x", "yref": "paper", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "line": line, "visible": False}


def _level(level: Level, theme: Theme) -> dict:
    across = {"xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": level.value, "y1": level.value}
    return across | {"type": "line", "line": {"color": theme.secondary, "width": 1, "dash": "dot"}}


def _ends(drawn: Panel, colours: tuple[str, ...], theme: Theme, height: int) -> list[dict]:
    """Words at the right: of the levels, and of the lines where they end, the strongest first. Those that end close together
    are moved apart; one that would have to stand too far from its line is left out."""
    low, high = _range(drawn)
    place = np.log10 if drawn.log else float
    wide, room = height - AROUND, WORD / (height - AROUND)
    share = lambda value: (value - low) / max(high - low, 1e-9)  # noqa: E731
    base = {"showarrow": False, "xanchor": "left", "yanchor": "middle"}
    wanted = [
        (share(level.value), base | {"xref": "paper", "x": 1, "y": level.value, **_word(level.label, theme.secondary)})
        for level in drawn.levels
    ]
    for line in sorted(drawn.lines, key=lambda line: -line.strength * (1.5 if line.dash == "dash" else line.width)):
        values = np.asarray(line.values, float)
        good = np.flatnonzero(np.isfinite(values) & (values > 0 if drawn.log else True))
        if line.label and len(good):
            at = float(place(values[good[-1]]))
            wanted.append(
                (share(at), base | {"x": float(line.steps[good[-1]]), "y": at, **_word(line.label, colours[line.side])})
            )
    kept: list[tuple[float, dict]] = []
    for word in wanted:
        shares = [share for share, _ in (*kept, word)]
        if all(abs(a - b) <= FURTHEST * room for a, b in zip(shares, apart(shares, room), strict=True)):
            kept.append(word)
    moved = within(apart([share for share, _ in kept], room), room)
    return [word | {"xshift": 4, "yshift": round((b - a) * wide, 1)} for (a, word), b in zip(kept, moved, strict=True)]


def _word(text: str, colour: str) -> dict:
    return {"text": escape(text), "font": {"size": 11, "color": colour}}


def apart(places: list[float], room: float) -> list[float]:
    """The nearest places, in the same order, of which no two are nearer than `room`: groups that collide share their middle."""
    order = sorted(range(len(places)), key=lambda i: places[i])
    groups: list[list[float]] = []  # [middle, members]
    for i in order:
        groups.append([places[i], 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < room * (groups[-1][1] + groups[-2][1]) / 2 - 1e-12:
            (a, m), (b, n) = groups.pop(-2), groups.pop()
            start = (a * m + b * n) / (m + n)
            groups.append([start, m + n])
    found, ranks = [0.0] * len(places), iter(order)
    for middle, members in groups:
        for k in range(int(members)):
            found[next(ranks)] = middle + room * (k - (members - 1) / 2)
    return found


def within(places: list[float], room: float) -> list[float]:
    """The same inside 0 to 1, where that many fit: what stands outside pushes its neighbours inwards."""
    order, found, n = sorted(range(len(places)), key=lambda i: places[i]), list(places), len(places)
    for rank, i in enumerate(order):
        found[i] = max(min(found[i], 1 - room * (n - 1 - rank)), room * rank)
    return found


def _values(drawn: Panel) -> np.ndarray:
    rows = [np.ravel(line.values).astype(float) for line in drawn.lines] + [np.array([level.value]) for level in drawn.levels]
    values = np.concatenate(rows) if rows else np.zeros(0)
    return values[np.isfinite(values) & (values > 0 if drawn.log else True)]


def _range(drawn: Panel) -> tuple[float, float]:
    """The ends of the value axis, in decades where it is logarithmic."""
    if drawn.span is not None:
        return drawn.span
    values = _values(drawn)
    if not values.size:
        return (0.0, 1.0)
    ends = (values.min(), values.max()) if not drawn.log else (np.log10(values.min()), np.log10(values.max()))
    pad = 0.06 * max(float(ends[1] - ends[0]), 0.2 if drawn.log else 1e-6)
    return float(ends[0]) - pad, float(ends[1]) + pad


def _upright(drawn: Panel, theme: Theme) -> dict:
    quiet = {"ticks": "", "tickfont": {"color": theme.secondary, "size": 11}, "range": list(_range(drawn))}
    if drawn.growing and drawn.span is None:
        quiet |= {"range": None, "autorange": True}
        if drawn.log:
            return axis(theme, "", grid=True, type="log", **quiet, **decades(-2, 3))  # one tick a decade, however far
    if not drawn.log:
        return axis(theme, "", grid=True, nticks=6, **quiet)
    return axis(theme, "", grid=True, type="log", **quiet, **decades(*_range(drawn)))


def decades(low: float, high: float) -> dict:
    """Ticks of a logarithmic axis from 10^low to 10^high: powers of ten, with 2 and 5 where there are few."""
    if high - low < 1.3:
        within_one = (1, 1.5, 2, 3, 4, 5, 7) if high - low < 0.7 else (1, 2, 5)
        marks = [m * 10.0**k for k in range(int(np.floor(low)), int(np.ceil(high)) + 1) for m in within_one]
        return {"tickmode": "array", "tickvals": marks, "ticktext": [f"{mark:,g}" for mark in marks]}
    step = max(1, int(np.ceil((high - low) / 6)))
    powers = [k for k in POWERS if k % step == 0]
    return {"tickmode": "array", "tickvals": [10.0**k for k in powers], "ticktext": [power(k) for k in powers]}


@dataclass(frozen=True)
class Points:
    """One value for each run of one side, against what the runs differ in."""

    name: str
    x: np.ndarray
    y: np.ndarray
    side: int
    label: str = ""
    dash: str = "solid"


def against(
    groups: list[Points], theme: Theme, *, x: str, y: str, log_y: bool, revision: str, at: float | None = None,
    height: int = 250, log_x: bool = True, ticks: np.ndarray | None = None, click: tuple[str, str] | None = None,
) -> Picture:  # fmt: skip
    """Real runs as points, joined by thin lines that only guide the eye; `at` marks the chosen one."""
    colours, data = sides(theme), []
    flat = Panel([Line(g.name, g.x, g.y, g.side, label=g.label, dash=g.dash) for g in groups], log=log_y)
    xs = np.unique(np.concatenate([g.x for g in groups])) if groups else np.array([1.0])
    for g in groups:
        shown = np.where(np.isfinite(g.y) & ((g.y > 0) if log_y else True), g.y, np.nan).astype(np.float32)
        data.append(
            {
                "type": "scatter", "mode": "lines+markers", "x": g.x.astype(np.float32), "y": shown, "name": escape(g.name),
                "line": {"color": see_through(colours[g.side], 0.55), "width": 1.25, "dash": g.dash},
                "marker": {
                    "size": 8 if g.dash == "solid" else 6, "color": colours[g.side],
                    "symbol": "circle" if g.dash == "solid" else "circle-open",
                },
                "customdata": np.arange(len(g.x), dtype=np.int32),
                "hovertemplate": f"{x} %{{x:.4g}}<br>{y} %{{y:.4g}}<extra>%{{fullData.name}}</extra>",
            }
        )  # fmt: skip
    words = [
        word | {"x": float(np.log10(word["x"])) if log_x else word["x"], "xshift": 8}
        for word in _ends(flat, colours, theme, height)
    ]
    shapes = []
    if at is not None:
        line = {"color": theme.accent, "width": 1.25}
        shapes = [{"type": "line", "xref": "x", "yref": "paper", "x0": at, "x1": at, "y0": 0, "y1": 1, "line": line}]
    ticks = xs if ticks is None else ticks
    marks = {"tickmode": "array", "tickvals": [float(t) for t in ticks], "ticktext": [f"{t:g}" for t in ticks]}
    ends = [float(np.log10(xs[0])), float(np.log10(xs[-1]))] if log_x else [float(xs[0]), float(xs[-1])]
    pad = 0.05 * max(ends[1] - ends[0], 0.1)
    across = axis(theme, x, type="log" if log_x else "linear", range=[ends[0] - pad, ends[1] + pad], **marks)
    return figure(
        data, theme, height=height, revision=revision, shapes=shapes, annotations=words, xaxis=across,
        yaxis=_upright(flat, theme), margin={"l": 4, "r": 58, "t": 8, "b": 4}, click=click,
    )  # fmt: skip
