"""What concerns the model rather than a node: the strip of layers at the foot, and the identities of the block."""

from typing import Any

import numpy as np

from viz.figures import labels
from viz.figures.stack import Panel, Series, stack
from viz.nodes import requests
from viz.nodes.card import Card, Scene, card, line, odd_values
from viz.theme import Theme, number

NAMES = {
    "off": "without QK-norm",
    "head": "with QK-norm per head",
    "projection": "with QK-norm over the projection",
}


def strip(scene: Scene, other: Any | None = None) -> Card:
    """Bars: the largest |logit| of each layer. Line: the same of `other`, a model with another QK-norm, for this prompt."""
    peaks = _peaks(scene.lm, scene)
    series = [Series(NAMES[scene.lm.qk_norm], peaks, _faded(scene.theme.a, scene.theme), "bar")]
    if other is not None:
        unit = ", unit gain (counterfactual)" if other.invented else ""
        series.append(Series(f"{NAMES[other.qk_norm]}{unit}", _peaks(other, scene), scene.theme.b))
    figure = stack(
        [Panel("", series)], labels.index_axis("layer", len(peaks)), scene.theme,
        revision=scene.key("strip"), height=140, selected=scene.layer, click=("layer", "x"), legend=len(series) > 1,
    )  # fmt: skip
    figure.data[1].marker.color = scene.theme.a  # the open layer keeps the colour of the others, at full strength
    what = "blocks.*.attn.hook_logits, largest |logit| over heads, queries and visible keys"
    return card("strip", "Largest |logit| per layer", line(what, "a click opens a layer", *odd_values(peaks)), figure)


def _faded(colour: str, theme: Theme) -> str:
    """The colour mixed with the background: a bar that is not selected."""
    pairs = ((int(colour[i : i + 2], 16), int(theme.background[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(0.6 * a + 0.4 * b):02x}" for a, b in pairs)


def _peaks(lm: Any, scene: Scene) -> np.ndarray:
    views = lm.views(list(scene.tokens), requests.logit_peaks(lm))
    return np.array([view.values.max() for view in views], np.float32)


def identities(scene: Scene) -> Card:
    """The equations of the block with the residual that was measured on this prompt."""
    found = scene.lm.identities(list(scene.tokens), scene.layer)
    rows = [(f"{'✓' if i.holds else '✗'} {i.formula}", number(i.residual)) for i in found]
    broken = [f"{i.name}: {i.note}" for i in found if not i.holds]
    caption = line(
        f"layer {scene.layer}, largest difference relative to the largest entry",
        f"does not hold: {'; '.join(broken)}" if broken else "",
    )
    return card("identities", "Identities", caption, table=rows, role="side")
