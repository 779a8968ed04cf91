"""From recorded runs to cards: panels over steps, layers x heads, patterns of one head, and what the runs differ in."""

import base64
import json
import math
from dataclasses import dataclass

import numpy as np

from model.growth.quantities import QUANTITIES
from model.growth.record import Record
from viz.figures import colours, labels
from viz.figures.growth import Level, Line, Panel, Points, against, panel, shade
from viz.figures.growth_heads import heads, short
from viz.figures.heat import matrix
from viz.nodes.card import Card, card, line
from viz.pages.growth_records import OFF, ON, end, final_loss, over_heads, peak, worst_head
from viz.pages.growth_words import bound
from viz.theme import Theme, count, number

TITLES = {
    "max_logit": "Largest |logit|", "max_capped": "Largest |logit| after the soft-cap", "row_range": "Range of a row of logits",
    "entropy": "Entropy / log n", "one_hot": "One-hot rows", "q_norm": "Largest |q|", "k_norm": "Largest |k|",
    "cosine": "Largest |cos(q, k)|", "overflow": "Logits that are not finite",
}  # fmt: skip
LOGS = {"max_logit", "max_capped", "row_range", "q_norm", "k_norm"}
SHARES = {"entropy", "one_hot", "cosine"}
FIRST, SECOND = ("max_logit", "entropy", "one_hot"), ("row_range", "q_norm", "k_norm", "cosine")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
MOST_FRAMES = 400  # snapshots of the step slider


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
    """The first level: how large, how even, how one-hot, and what it costs."""
    return [*(_panel(s, quantity) for quantity in FIRST if _has(s, quantity)), *([_losses(s)] if _has_losses(s) else [])]


def details(s: Sight) -> list[Card]:
    """The second level; raw against capped where a run has a soft-cap."""
    cards = [_panel(s, quantity) for quantity in SECOND if _has(s, quantity)]
    capped = [side for side in s.sides if _caps(side.record)]
    return [*cards, _capped(s, capped)] if capped else cards


def _has(s: Sight, quantity: str) -> bool:
    return any(quantity in side.record.values for side in s.sides)


def _has_losses(s: Sight) -> bool:
    """A monitor of somebody's training knows no losses."""
    losses = [loss for side in s.sides for loss in (side.record.train_loss, side.record.validation_loss)]
    return any(np.isfinite(loss).any() for loss in losses)


def _caps(record: Record) -> bool:
    raw, capped = record.values["max_logit"], record.values.get("max_capped")
    return capped is not None and bool(np.nanmax(np.abs(raw - capped), initial=0) > 1e-3)


def _panel(s: Sight, quantity: str) -> Card:
    drawn = [side for side in s.sides if quantity in side.record.values]
    lines = [each for side in drawn for each in _lines(s, side, quantity)]
    words = [what_is_drawn(s, quantity)]
    if quantity == "max_logit":
        lines += [each for side in drawn for each in _bounds(s, side)]
        words += [bound(side.record) for side in s.shown()]
    figure = panel(
        Panel(lines, log=quantity in LOGS, span=(-0.02, 1.02) if quantity in SHARES else None, unit=TITLES[quantity]), s.theme,
        revision=f"{s.key}:{quantity}",
    )  # fmt: skip
    meaning = QUANTITIES.get(quantity, "")
    return card(f"{s.place}-{quantity}", TITLES.get(quantity, quantity), line(meaning, *words), figure)


def what_is_drawn(s: Sight, quantity: str) -> str:
    """Which head each line is."""
    least = quantity == "entropy"
    most = "lowest" if least else "largest"
    if s.several:
        return f"each line is a seed: its {most} over all layers and heads"
    if s.layer >= 0 and s.head >= 0:
        return f"strong line: layer {s.layer} head {s.head}; other layers: the {most} of their heads"
    return f"each line is a layer, faint to strong from the first to the last: the {most} of its heads"


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
    for side in s.sides:
        record, seed = side.record, f", seed {side.seed}" if s.several else ""
        dash = DASHES[[x.seed for x in s.sides if x.side == side.side].index(side.seed) % len(DASHES)]
        if not s.several:
            lines.append(
                Line(f"{side.name}: training, mean since the last probe", record.step, record.train_loss, side.side, 0.4)
            )
        name = f"{side.name}{seed}: validation"
        lines.append(Line(name, record.step, record.validation_loss, side.side, label=short_name(side), dash=dash, width=2.25))
    ngrams = (s.sides[0].record.meta.get("corpus") or {}).get("ngrams") or {}
    for n, word in (("2", "bigram"), ("3", "trigram")):
        if isinstance(ngrams.get(n), int | float):
            levels.append(Level(float(ngrams[n]), word))
    figure = panel(Panel(lines, unit="loss", levels=levels, span=loss_span(lines, levels)), s.theme, revision=f"{s.key}:loss")
    known = f"; dotted: what counting {' and '.join(f'{x.label}s ({x.value:.2f})' for x in levels)} reaches" if levels else ""
    faint = "" if s.several else "; faint: training loss, mean since the last probe"
    return card(f"{s.place}-loss", "Loss", f"validation loss, nats per token{faint}{known}", figure)


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
    return {OFF: "off", ON: "on"}.get(side.record.meta["arm"], side.name if len(side.name) <= 9 else "")


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


def steps_of(s: Sight) -> list[int]:
    """The steps of the slider: the stored snapshots, or the probes where no patterns are stored."""
    shown = s.shown()
    stored = [set(side.record.snapshot_step.tolist()) for side in shown if side.record.patterns is not None]
    steps = set.intersection(*stored) if stored else set.intersection(*(set(side.record.step.tolist()) for side in shown))
    return sorted(steps)[:MOST_FRAMES]


def chosen_head(s: Sight, side: Side) -> tuple[int, int]:
    """The chosen head, or the one with the largest logit at the end of this run."""
    layers, count_ = side.record.values["max_logit"].shape[1:]
    if 0 <= s.layer < layers and 0 <= s.head < count_:
        return s.layer, s.head
    return worst_head(side.record)


def _probe_at(record: Record, step: int) -> int:
    """The last probe at or before a step."""
    return int(np.searchsorted(record.step, step, side="right")) - 1


def head_map(s: Sight) -> tuple[Card, dict]:
    """Layers x heads of both arms, and the same at every step of the slider as the page plays it."""
    shown = [side for side in s.shown() if s.quantity in side.record.values]
    steps, share = steps_of(s), s.quantity in SHARES
    values = [side.record.values[s.quantity] for side in shown]
    at = [[_probe_at(side.record, step) for step in steps] for side in shown]
    every = np.concatenate([v[p].ravel() for v, p in zip(values, at, strict=True)])
    picked = [chosen_head(s, side) for side in shown]
    figure = heads(
        [v[p[-1]] for v, p in zip(values, at, strict=True)], [side.name for side in shown], every, s.theme,
        revision=f"{s.key}:heads", unit=TITLES[s.quantity], share=share, chosen=picked,
    )  # fmt: skip
    colour = colours.probability(s.theme) if share else colours.sequential(every, s.theme, log=colours.spans_decades(every))
    frames = [
        {
            "z": [_plain(colour.forward(v[i])) for i in p],
            "text": [[[short(float(x)) for x in row] for row in v[i]] for i in p],
            "most": [_most(v[i], s.quantity) for i in p],
        }
        for v, p in zip(values, at, strict=True)
    ]  # fmt: skip
    names = " and ".join(f"{side.name} (left)" if i == 0 else f"{side.name} (right)" for i, side in enumerate(shown))
    words = line(
        QUANTITIES[s.quantity], names if len(shown) > 1 else "", "one colour range for all steps; a click chooses a head"
    )
    return card(f"{s.place}-heads", f"{TITLES[s.quantity]} of every head", words, figure), {"heads": frames}


def _most(values: np.ndarray, quantity: str) -> str:
    """The extreme of a map in words: "13,855 in layer 2 head 1"."""
    sign = 1.0 if quantity == "entropy" else -1.0
    flat = np.where(np.isnan(values), np.inf, sign * values)
    layer, head = (int(i) for i in np.unravel_index(np.argmin(flat), values.shape))
    return f"{number(float(values[layer, head]))} in layer {layer} head {head}"


def _plain(values: np.ndarray) -> list:
    return [[round(float(v), 4) if math.isfinite(v) else None for v in row] for row in values]


def patterns(s: Sight) -> tuple[list[Card], dict]:
    """The attention pattern of one head of each arm at the last snapshot, and all snapshots for the page to play."""
    cards, frames, steps = [], [], steps_of(s)
    for side in s.shown():
        record, (layer, head) = side.record, chosen_head(s, side)
        title = side.name
        if record.patterns is None:
            cards.append(Card(f"{s.place}-pattern-{side.side}", title, "this run stored no attention patterns"))
            frames.append(None)
            continue
        where = [record.snapshot_step.tolist().index(step) for step in steps]
        stack = record.patterns[where, layer, head]
        pieces = [_piece(int(t)) for t in record.snapshot_tokens]
        axis = labels.token_axis("key", pieces, most=labels.TICKS_ACROSS)
        rows = labels.token_axis("query", pieces, most=24)
        future = ~np.tri(len(pieces), dtype=bool)
        values = np.where(future, np.nan, stack[-1] / 255).astype(np.float32)
        drawn = matrix(
            values, rows, axis, colours.probability(s.theme), s.theme, revision=f"{s.key}:pattern{side.side}:{len(pieces)}",
            unit="weight", masked=future, inset=True, height=380,
        )  # fmt: skip
        chosen = "chosen" if s.head >= 0 else "the largest logit of this run at its end"
        words = f"layer {layer} head {head} ({chosen}), stored to 1/255, colours from 0 to 1"
        cards.append(card(f"{s.place}-pattern-{side.side}", title, words, drawn))
        frames.append({"n": len(pieces), "data": base64.b64encode(np.ascontiguousarray(stack).tobytes()).decode()})
    return cards, {"patterns": frames}


def _piece(token: int) -> str:
    if not 0 <= token < 256:
        return str(token)
    return {10: "↵", 32: "␣", 9: "⇥"}.get(token, chr(token) if 33 <= token < 127 else f"x{token:02x}")


def frames(s: Sight) -> tuple[list[Card], list[Card], dict]:
    """The map, the patterns, and one small file with every step of both."""
    mapped, first = head_map(s)
    drawn, second = patterns(s)
    return [mapped], drawn, {"steps": steps_of(s), "names": [side.name for side in s.shown()], **first, **second}


def packed(told: dict) -> bytes:
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()


def sweep_cards(found: dict[str, list], chosen: str, theme: Theme) -> list[Card]:
    """Largest logit and loss at the end against the learning rate: real runs only."""
    if not all(found.values()):
        return []
    side, cards = {OFF: 0, ON: 1}, []
    unsettled = "nats per token; one seed each: differences of about 0.05 are not settled"
    for key, title, of, log, words in (
        ("logit", "Largest |logit| at the end", end, True, "over all layers and heads at the last step; both axes logarithmic"),
        ("loss", "Validation loss at the end", final_loss, False, unsettled),
    ):
        groups = []
        for arm, runs in found.items():
            x, y = np.array([e.lr for e, _ in runs]), np.array([of(record) for _, record in runs])
            groups.append(Points(_arm_word(arm), x, y, side[arm], label={OFF: "off", ON: "on"}[arm]))
        figure = against(
            groups, theme, x="learning rate", y=title, log_y=log, revision=f"sweep:{key}", at=float(chosen) if chosen else None,
            click=("lr_index", "customdata"),
        )  # fmt: skip
        cards.append(card(f"growth-sweep-{key}", title, words, figure))
    return cards


def _arm_word(arm: str) -> str:
    return {OFF: "QK-norm off", ON: "QK-norm on"}.get(arm, arm)


def fix_rows(runs: list[Record]) -> dict:
    """The table of fixes: what each run ended at. `arms` are the values a click chooses."""
    rows = []
    for record in runs:
        rows.append(
            [
                record.meta["label"], number(final_loss(record)), number(end(record)), number(peak(record)),
                number(end(record, "max_capped")) if "max_capped" in record.values else "–", number(end(record, "entropy")),
                number(end(record, "one_hot")), record.meta["ended"],
            ]
        )  # fmt: skip
    heads_ = [
        "run",
        "validation loss",
        "largest |logit|, end",
        "its peak",
        "after soft-cap, end",
        "lowest entropy",
        "one-hot, most",
        "ended",
    ]
    return {"columns": heads_, "rows": rows, "arms": [record.meta["arm"] for record in runs]}


def about(record: Record) -> str:
    """One line on a run: what it is and what it was made with."""
    meta = record.meta
    recipe = meta.get("recipe") or {}
    parts = [
        f"{meta['parameters']:,} parameters" if isinstance(meta.get("parameters"), int) else "",
        count(int(record.step[-1]), "step"),
        f"learning rate {recipe['lr']:g}" if isinstance(recipe.get("lr"), int | float) else "",
        f"seed {meta['seed']}" if isinstance(meta.get("seed"), int) else "",
        f"{meta['seconds']:.0f} s" if isinstance(meta.get("seconds"), int | float) else "",
        f"torch {str(meta['torch'])[:20]}" if isinstance(meta.get("torch"), str) else "",
        meta["ended"],
    ]
    return line(*parts)
