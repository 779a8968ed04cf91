"""Every head of a run at every stored step: maps of layers x heads, attention patterns, and the file that the page plays."""

import base64
import json
import math

import numpy as np

from model.growth.quantities import QUANTITIES
from viz.figures import colours, labels
from viz.figures.growth_heads import heads, short
from viz.figures.heat import matrix
from viz.nodes.card import Card, card, line
from viz.pages.growth_recorded import SHARES, TITLES, Side, Sight, has
from viz.pages.growth_records import worst_head
from viz.theme import number

MOST_FRAMES = 400  # snapshots of the step slider


def steps_of(s: Sight) -> list[int]:
    """The steps of the slider: the snapshots that any arm stored, or the probes where no patterns are stored.

    An arm that has none at a step, because it ended earlier, say, stays at its last one before.
    """
    shown = s.shown()
    stored = [side.record.snapshot_step.tolist() for side in shown if side.record.patterns is not None]
    return sorted(set().union(*(stored or [side.record.step.tolist() for side in shown])))[:MOST_FRAMES]


def chosen_head(s: Sight, side: Side) -> tuple[int, int]:
    """The chosen head, or the one with the largest logit at the end of this run."""
    layers, count_ = side.record.values["max_logit"].shape[1:]
    if 0 <= s.layer < layers and 0 <= s.head < count_:
        return s.layer, s.head
    return worst_head(side.record)


def _last_at(steps: np.ndarray, step: int) -> int:
    """Which of these is the last at or before a step; the first where all are later."""
    return max(0, int(np.searchsorted(steps, step, side="right")) - 1)


def head_map(s: Sight) -> tuple[Card, dict]:
    """Layers x heads of both arms, and the same at every step of the slider as the page plays it."""
    shown = [side for side in s.shown() if has(side.record, s.quantity)]
    steps, share = steps_of(s), s.quantity in SHARES
    values = [side.record.values[s.quantity] for side in shown]
    at = [[_last_at(side.record.step, step) for step in steps] for side in shown]
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
        QUANTITIES[s.quantity],
        names if len(shown) > 1 else f"of {shown[0].name}" if len(s.shown()) > 1 else "",
        "one colour range for all steps; a click chooses a head",
    )
    return card(f"{s.place}-heads", f"{TITLES[s.quantity]} of every head", words, figure), {"heads": frames}


def _most(values: np.ndarray, quantity: str) -> str:
    """The extreme of a map in words: "13,855 in layer 2 head 1"."""
    sign = 1.0 if quantity == "entropy" else -1.0
    if (values == values.flat[0]).all():  # no logit overflowed, say: no head is worse than another
        return f"{number(float(values.flat[0]))} in every head"
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
        where = [_last_at(record.snapshot_step, step) for step in steps]
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
        chosen = "chosen" if s.head >= 0 else f"the largest logit of this run at step {record.step[-1]:,}"
        last = int(record.snapshot_step[-1])
        ended = f"; its last pattern is of step {last:,}" if last < steps[-1] else ""
        words = f"layer {layer} head {head} ({chosen}), stored to 1/255, colours from 0 to 1{ended}"
        cards.append(card(f"{s.place}-pattern-{side.side}", title, words, drawn))
        frames.append({"n": len(pieces), "data": base64.b64encode(np.ascontiguousarray(stack).tobytes()).decode()})
    return cards, {"patterns": frames}


def _piece(token: int) -> str:
    if not 0 <= token < 256:
        return str(token)
    return {10: "↵", 32: "␣", 9: "⇥"}.get(token, chr(token) if 33 <= token < 127 else f"x{token:02x}")


def packed(told: dict) -> bytes:
    return json.dumps(told, separators=(",", ":"), allow_nan=False).encode()
