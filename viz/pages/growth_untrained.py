"""Growth without training as cards: scaled weights, deep stacks, long contexts, wide heads. A label says what each is."""

from collections.abc import Sequence

import numpy as np

from model.growth.sweeps import Row, Sweep
from viz.figures.growth import Line, Panel, Points, against, panel
from viz.nodes.card import Card, card
from viz.pages.growth_recorded import DASHES
from viz.theme import Theme, number

ARMS = ("QK-norm off", "QK-norm on")
KINDS = {  # what is varied -> its title on the page
    "scale": "Scale of W_q and W_k",
    "depth": "Depth of a random stack",
    "context": "Context length",
    "width": "Width of a head",
}


SHORT = {"pre-norm, residual scaled by 1/√(2·layers)": "", "pre-norm, init std 0.02": "init 0.02"}
CEILING = 6.0  # decades: a stack without norms leaves every picture within ten layers


def side_of(series: str) -> int:
    return int(series.endswith("on"))


def scale_cards(sweeps: Sequence[Sweep], theme: Theme) -> tuple[list[Card], dict]:
    """One sweep a model, the left one without QK-norm: s^2 against flat, and what it costs; numbers for every factor."""
    factors = np.array([row.x for row in sweeps[0].rows])
    lines = {"logit": [], "entropy": [], "loss": []}
    for i, (sweep, arm) in enumerate(zip(sweeps, ARMS, strict=False)):
        word, rows = arm.split()[-1], sweep.rows
        for name, of, label, dash in (
            ("logit", _first, word, "solid"), ("logit", lambda row: _top(row.max_logit), f"{word}, worst", "dot"),
            ("entropy", lambda row: _least(row.entropy), word, "solid"), ("loss", lambda row: row.loss, word, "solid"),
        ):  # fmt: skip
            what = {"solid": f"{arm}, layer 0" if name == "logit" else arm, "dot": f"{arm}, worst layer"}[dash]
            lines[name].append(Points(what, factors, np.array([of(row) for row in rows]), i, label, dash))
    cards, said = [], {
        "logit": ("Largest |logit|", True, "solid: layer 0, dotted: the worst layer; axes logarithmic, so that s² is a line"),
        "entropy": ("Entropy / log n", False, "mean over heads, of the layer where it is lowest"),
        "loss": ("Loss", False, "next-token cross-entropy on the same text, nats per byte"),
    }  # fmt: skip
    for name, (title, log, words) in said.items():
        figure = against(lines[name], theme, x="s", y=title, log_y=log, revision=f"scale:{name}", at=1.0)
        cards.append(card(f"untrained-{name}", title, words, figure))
    told = []
    for i, s in enumerate(factors):
        rows = [(arm, sweep.rows[i]) for arm, sweep in zip(ARMS, sweeps, strict=False)]
        told.append([f"s = {s:g}", *(f"{arm}: {_told(row)}" for arm, row in rows)])
    return cards, {"law": _square_law(sweeps), "factors": [float(s) for s in factors], "told": told}


def _square_law(sweeps: Sequence[Sweep]) -> str:
    """Why layer 0 is drawn, how exactly it follows s^2, and why the worst layer need not: in numbers of these sweeps."""
    off, on = (list(sweep.rows) for sweep in sweeps[:2])
    one = next(row for row in off if row.x == 1)
    last = off[-1]
    first = np.array([_first(row) / _first(one) / row.x**2 for row in off])
    flat = max(np.ptp([_first(row) for row in on]), np.ptp([_top(row.max_logit) for row in on]))
    worst = _top(last.max_logit) / _top(one.max_logit)
    squared, near = number(_first(last) / _first(one)), _percent(float(np.abs(first - 1).max()))
    where = _where(one) if _where(one) == _where(last) else f"{_where(one)} at s = 1, {_where(last)} at s = {last.x:g}"
    return (
        "In layer 0, whose input no W_q or W_k has touched, the largest logit without QK-norm is s² exactly: "
        f"{squared} times at s = {last.x:g}, within {near} at every s; with QK-norm it is flat in every layer, "
        f"within {number(float(flat))}. The worst layer without it ({where}) goes {number(worst)} times instead of "
        f"{number(last.x**2)}: later layers read what the changed attention wrote."
    )


def _told(row: Row) -> str:
    largest = f"largest |logit| {number(_first(row))} in layer 0, {number(_top(row.max_logit))} in the worst ({_where(row)})"
    return f"{largest}, loss {row.loss:.3f}"


def _first(row: Row) -> float:
    return float(row.max_logit[0])


def _where(row: Row) -> str:
    return f"layer {int(np.nanargmax(row.max_logit))}"


def _percent(share: float) -> str:
    return "0.01%" if share < 1e-4 else f"{share:.2%}"


def depth_cards(sweep: Sweep, theme: Theme) -> list[Card]:
    kinds = list(dict.fromkeys(row.series.rpartition(", ")[0] for row in sweep.rows))
    cards, ends = [], []
    for name, title, of, words in (
        ("logit", "Largest |logit|", lambda r: r.max_logit, "of each layer"),
        ("residual", "Residual stream, root mean square", lambda r: r.residual_rms, "entering each layer"),
    ):
        lines = []
        for row in sweep.rows:
            kind, values = row.series.rpartition(", ")[0], of(row)
            dash = DASHES[kinds.index(kind) % len(DASHES)]
            label = SHORT.get(kind, kind) if np.isfinite(values).all() else ""  # it leaves the picture
            lines.append(Line(row.series, np.arange(len(values)), values, side_of(row.series), 0.95, label, dash))
            ends += [_overflow(row, values)] if name == "logit" else []
        drawn = Panel(lines, log=True, span=_span(lines), unit=title, across="layer")
        key = "; ".join(
            f"{kind} {word}" for kind, word in zip(kinds, ("solid", "dashed", "dotted", "dash-dotted"), strict=False)
        )
        colours = f"first colour {ARMS[0]}, second {ARMS[1]}"
        figure = panel(drawn, theme, revision=f"depth:{name}", height=300)
        cards.append(card(f"untrained-{name}", title, f"{words}; {colours}; {key}", figure))
    lost = [f"the axis ends at 10⁶; {'; '.join(end for end in ends if end)}"]
    return [
        Card(cards[0].id, cards[0].title, " · ".join([cards[0].caption, *lost]), cards[0].figure, None, cards[0].height),
        *cards[1:],
    ]


def context_cards(sweep: Sweep, theme: Theme) -> list[Card]:
    return [
        _points(sweep, theme, "logit", "Largest |logit|", lambda r: _top(r.max_logit), False, "worst layer"),
        _points(sweep, theme, "entropy", "Entropy / log n", lambda r: _least(r.entropy), False, "lowest layer; 1 is even"),
    ]  # fmt: skip


def width_cards(sweep: Sweep, theme: Theme) -> list[Card]:
    found = _groups(sweep, lambda r: _top(r.max_logit))
    rows = [row for row in sweep.rows if side_of(row.series)]
    x, bound = np.array([r.x for r in rows]), np.array([_top(r.bound) for r in rows])
    groups = [*found, Points("bound of QK-norm with gain 1, √d_head", x, bound, 1, "bound")]
    figure = against(groups, theme, x=sweep.axis, y="largest |logit|", log_y=False, revision="width:logit", height=280)
    words = "worst layer; the upper line of the second colour is the bound √d_head, which random vectors stay under"
    return [card("untrained-logit", "Largest |logit|", words, figure)]


CARDS = {"depth": depth_cards, "context": context_cards, "width": width_cards}


def _groups(sweep: Sweep, of) -> list[Points]:
    found = []
    for arm in ARMS:
        rows = [row for row in sweep.rows if row.series == arm]
        found.append(Points(arm, np.array([r.x for r in rows]), np.array([of(r) for r in rows]), side_of(arm), arm.split()[-1]))
    return found


def _points(sweep: Sweep, theme: Theme, name: str, title: str, of, log: bool, words: str) -> Card:
    figure = against(_groups(sweep, of), theme, x=sweep.axis, y=title, log_y=log, revision=f"{sweep.axis}:{name}", height=280)
    return card(f"untrained-{name}", title, words, figure)


def _overflow(row: Row, values: np.ndarray) -> str:
    bad = np.flatnonzero(~np.isfinite(values))
    return f"{row.series}: not finite from layer {bad[0]} on" if len(bad) else ""


def _span(lines: Sequence[Line]) -> tuple[float, float]:
    values = np.concatenate([line.values for line in lines])
    values = np.log10(values[np.isfinite(values) & (values > 0)])
    return float(values.min()) - 0.2, min(CEILING, float(values.max()) + 0.2)


def _top(values: np.ndarray) -> float:
    return float(np.fmax.reduce(np.ravel(values)))


def _least(values: np.ndarray) -> float:
    return float(np.fmin.reduce(np.ravel(values)))
