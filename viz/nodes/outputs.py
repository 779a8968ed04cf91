"""A sublayer whose output is normalised: what it gives, and what of that is added to the stream."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import Card, Scene, card, line, odd_values, short
from viz.theme import number

HALVES = {  # raw output, contribution, the norm between them
    "attn": ("attn.hook_module_out", "hook_attn_out", "ln1_post"),
    "mlp": ("mlp.hook_module_out", "hook_mlp_out", "ln2_post"),
}


def half_of(scene: Scene, path: str) -> str | None:
    """Which half of the block a tap or norm belongs to, where that half has a norm on its output."""
    return next((half for half, names in HALVES.items() if path in names and names[0] in scene.block_taps), None)


def wanted(scene: Scene, path: str) -> dict[str, Request]:
    """The lengths of both, if this node is one of a normalised output."""
    half = half_of(scene, path)
    if half is None:
        return {}
    raw, added, _ = HALVES[half]
    return {"raw": Request(scene.tap(raw), "norm", ("d_model",)), "added": Request(scene.tap(added), "norm", ("d_model",))}


def cards(scene: Scene, views: dict[str, View]) -> list[Card]:
    """RMS per token of the raw output and of the contribution, on one scale."""
    if "raw" not in views:
        return []
    theme, width = scene.theme, np.sqrt(scene.lm.config.d_model)
    raw, added = views["raw"].values / width, views["added"].values / width
    series = [Series("raw output", raw, theme.a), Series("contribution, after the norm", added, theme.b)]
    log = colours.spans_decades(np.concatenate([raw, added]))
    figure = stack(
        [Panel("rms over d_model", series, log=log)], labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS), theme,
        revision=scene.key("raw-added"), height=260, selected=scene.pos, click=("token", "x"), legend=True,
    )  # fmt: skip
    ratio = added / np.maximum(raw, 1e-30)
    finite = ratio[np.isfinite(ratio)]
    said = f"contribution over raw output: {number(float(np.median(finite)))} for the median token" if finite.size else ""
    caption = line(
        f"{views['raw'].tap} and {views['added'].tap}, {short(views['raw'].dtype)}",
        said,
        "the norm gives every token the same size; only its gain sets how much is added",
        "log scale" if log else "",
        *odd_values(np.concatenate([raw, added])),
    )
    return [card("raw-added", "Raw output against contribution", caption, figure)]
