"""From runs to curves over steps: every layer of both arms, or every seed, in panels that share their axes."""

from dataclasses import dataclass

import numpy as np

from model.growth.quantities import QUANTITIES
from model.growth.record import Record
from viz.figures.growth import Level, Line, Panel, panel, shade
from viz.nodes.card import Card, card, line
from viz.pages.growth_records import over_heads
from viz.pages.growth_words import bound
from viz.theme import Theme, number

TITLES = {
    "max_logit": "Largest |logit|", "max_capped": "Largest |logit| after the soft-cap", "row_range": "Range of a row of logits",
    "entropy": "Entropy / log n", "one_hot": "One-hot rows", "q_norm": "Largest |q|", "k_norm": "Largest |k|",
    "cosine": "Largest |cos(q, k)|", "overflow": "Logits that are not finite",
}  # fmt: skip
LOGS = {"max_logit", "max_capped", "row_range", "q_norm", "k_norm"}
SHARES = {"entropy", "one_hot", "cosine"}
FIRST, SECOND = ("max_logit", "entropy", "one_hot"), ("row_range", "q_norm", "k_norm", "cosine")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


@dataclass(frozen=True)
class Side:
    """One arm as it is drawn: its record, its colour (0 off, 1 the other), what it is called, and which seed."""

    record: Record
    side: int
    name: str
    seed: int = 0


@dataclass(frozen=True)
class Sight:
    """Both arms (of one seed or of several), the chosen head (-1: the worst) and the theme."""

    sides: list[Side]
    layer: int
    head: int
    theme: Theme
    key: str  # tells axes apart, so that a zoom is kept while they stay the same
    quantity: str = "max_logit"
    place: str = "growth"  # begins the names of its cards: the same pictures may stand in several places of the page

    @property
    def several(self) -> bool:
        """Whether several seeds are shown: then each line is a whole run."""
        return len({side.seed for side in self.sides}) > 1

    def shown(self) -> list[Side]:
        """One run of each arm, for pictures of one run: the first seed's."""
        first = self.sides[0].seed
        return [side for side in self.sides if side.seed == first]


def panels(s: Sight) -> list[Card]:
    """The first level: how large, how even, how one-hot, and what it costs. What no run recorded is said in its place."""
    return [*(_panel(s, quantity) for quantity in FIRST), _losses(s)]


def details(s: Sight) -> list[Card]:
    """The second level; raw against capped where a run has a soft-cap."""
    cards = [_panel(s, quantity) for quantity in SECOND]
    if not any(has(side.record, "max_capped") for side in s.sides):
        return [*cards, _missing(s, "capped", "Raw against capped", "max_capped")]
    capped = [side for side in s.sides if _caps(side.record)]
    return [*cards, _capped(s, capped)] if capped else cards


def has(record: Record, quantity: str) -> bool:
    """Whether a record holds any number of a quantity; what overflowed everywhere is one."""
    return quantity in record.values and not np.isnan(record.values[quantity]).all()


def _has_loss(record: Record) -> bool:
    """A monitor of somebody's training knows no losses."""
    return bool(np.isfinite(record.train_loss).any() or np.isfinite(record.validation_loss).any())


def _missing(s: Sight, id: str, title: str, what: str) -> Card:
    return Card(f"{s.place}-{id}", title, f"not recorded: {_those(s.sides)} no {what}, so there is nothing to draw here")


def _those(sides: list[Side]) -> str:
    names = list(dict.fromkeys(side.name for side in sides))
    return f"{' and '.join(names)} {'holds' if len(names) == 1 else 'hold'}"


def _caps(record: Record) -> bool:
    if not has(record, "max_capped"):
        return False
    return not np.allclose(record.values["max_logit"], record.values["max_capped"], rtol=0, atol=1e-3, equal_nan=True)


def _panel(s: Sight, quantity: str) -> Card:
    drawn = [side for side in s.sides if has(side.record, quantity)]
    if not drawn:
        return _missing(s, quantity, TITLES[quantity], quantity)
    lines = [each for side in drawn for each in _lines(s, side, quantity)]
    words = [f"{_those(lacking)} none of it"] if (lacking := [side for side in s.sides if side not in drawn]) else []
    if quantity == "max_logit":
        lines += [each for side in drawn for each in _bounds(s, side)]
        words += [bound(side.record) for side in s.shown()]
    figure = panel(
        Panel(lines, log=quantity in LOGS, span=(-0.02, 1.02) if quantity in SHARES else None, unit=TITLES[quantity]), s.theme,
        revision=f"{s.key}:{quantity}",
    )  # fmt: skip
    meaning = QUANTITIES.get(quantity, "")
    return card(f"{s.place}-{quantity}", TITLES.get(quantity, quantity), line(meaning, *words), figure)


def what_is_drawn(s: Sight) -> str:
    """Which head each line is; said once for all panels."""
    if s.several:
        return "each line is a seed: its most extreme head in any layer (of entropy the lowest)"
    if s.layer >= 0 and s.head >= 0:
        return f"strong lines: layer {s.layer} head {s.head}; other layers: their most extreme head (of entropy the lowest)"
    return "each line is a layer, faint to strong from the first to the last: its most extreme head (of entropy the lowest)"


def _lines(s: Sight, side: Side, quantity: str) -> list[Line]:
    record, values = side.record, side.record.values[quantity]
    by_layer = over_heads(values, quantity)
    layers = by_layer.shape[1]
    if s.several:
        worst = (np.fmin if quantity == "entropy" else np.fmax).reduce(by_layer, axis=1)
        dash = DASHES[[x.seed for x in s.sides if x.side == side.side].index(side.seed) % len(DASHES)]
        return [Line(f"{side.name}, seed {side.seed}", record.step, worst, side.side, dash=dash, label=f"seed {side.seed}")]
    found, chosen = [], (s.layer, s.head)
    picked = 0 <= s.layer < layers and 0 <= s.head < values.shape[2]
    for layer in range(layers):
        mine = picked and layer == chosen[0]
        drawn = values[:, layer, chosen[1]] if mine else by_layer[:, layer]
        strength = 1.0 if mine else shade(layer, layers) * (0.6 if picked else 1.0)
        which = f"head {chosen[1]}" if mine else f"its {'lowest' if quantity == 'entropy' else 'largest'} head"
        label = f"layer {layer}" if layers <= 8 else str(layer)
        name = f"{side.name}, layer {layer}, {which}"
        found.append(Line(name, record.step, drawn, side.side, strength, label, width=2.75 if mine else 1.75))
    return found


def _bounds(s: Sight, side: Side) -> list[Line]:
    """The live bound: of the chosen layer, or of the layer that is allowed most."""
    record = side.record
    if not np.isfinite(record.bound).any():
        return []
    picked = 0 <= s.layer < record.bound.shape[1] and s.head >= 0
    values = record.bound[:, s.layer] if picked else np.fmax.reduce(record.bound, axis=1)
    name = f"{side.name}: bound of {f'layer {s.layer}' if picked else 'the worst layer'}"
    return [Line(name, record.step, values, side.side, 0.9, "" if s.several else "bound", "dash", 1.25)]


def _losses(s: Sight) -> Card:
    lines, levels = [], []
    known = [side for side in s.sides if _has_loss(side.record)]
    if not known:
        return _missing(s, "loss", "Loss", "loss")
    for side in known:
        record, seed = side.record, f", seed {side.seed}" if s.several else ""
        dash = DASHES[[x.seed for x in s.sides if x.side == side.side].index(side.seed) % len(DASHES)]
        if not s.several:
            lines.append(
                Line(f"{side.name}: training, mean since the last probe", record.step, record.train_loss, side.side, 0.4)
            )
        name = f"{side.name}{seed}: validation"
        lines.append(Line(name, record.step, record.validation_loss, side.side, label=short_name(side), dash=dash, width=2.25))
    ngrams = (known[0].record.meta.get("corpus") or {}).get("ngrams") or {}
    for n, word in (("2", "bigram"), ("3", "trigram")):
        if isinstance(ngrams.get(n), int | float):
            levels.append(Level(float(ngrams[n]), word))
    figure = panel(Panel(lines, unit="loss", levels=levels, span=loss_span(lines, levels)), s.theme, revision=f"{s.key}:loss")
    reached = f"; dotted: what counting {' and '.join(f'{x.label}s ({x.value:.2f})' for x in levels)} reaches" if levels else ""
    faint = "" if s.several else "; faint: training loss, mean since the last probe"
    units = " and ".join(dict.fromkeys(side.record.loss_unit for side in known))
    lacking = [side for side in s.sides if side not in known]
    none = f"; {_those(lacking)} none" if lacking else ""
    return card(f"{s.place}-loss", "Loss", f"validation loss, {units}{faint}{reached}{none}", figure)


def loss_span(lines: list[Line], levels: list[Level]) -> tuple[float, float] | None:
    """From the lowest loss to a little above the unigram-like start: the first steps' plunge would flatten all else."""
    values = np.concatenate([np.ravel(x.values) for x in lines]) if lines else np.zeros(0)
    values = values[np.isfinite(values)]
    if not values.size or not levels:
        return None
    low = min(float(values.min()), *(level.value for level in levels))
    high = max(max(level.value for level in levels) * 1.35, float(np.median(values)) * 1.1)
    return low - 0.05, min(high, float(values.max()) + 0.05)


def short_name(side: Side) -> str:
    """A word beside its line: the arm, or which side it stands on where that is long."""
    return next((word for word in (side.record.meta["arm"], side.name) if len(word) <= 9), ("left", "right")[side.side])


def _capped(s: Sight, sides: list[Side]) -> Card:
    lines = []
    for side in sides:
        for quantity, dash, word in (("max_logit", "solid", "raw"), ("max_capped", "dash", "capped")):
            values = over_heads(over_heads(side.record.values[quantity], quantity)[..., None, :], quantity)[..., 0]
            lines.append(Line(f"{side.name}: {word}", side.record.step, values, side.side, label=word, dash=dash))
    figure = panel(Panel(lines, log=True, unit="largest |logit|"), s.theme, revision=f"{s.key}:capped")
    top = max(float(np.nanmax(side.record.values["max_logit"])) for side in sides)
    below = max(float(np.nanmax(side.record.values["max_capped"])) for side in sides)
    words = f"worst layer; raw q·k still reaches {number(top)}, what softmax reads stays at {number(below)} or below"
    return card(f"{s.place}-capped", "Raw against capped", words, figure)
