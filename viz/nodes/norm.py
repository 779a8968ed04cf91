"""A norm: what it divides by, what that does to one token's vector, and what its gain does afterwards."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.cloud import against
from viz.figures.heat import matrix
from viz.figures.stack import Panel, Series, stack
from viz.nodes import requests
from viz.nodes.card import WHOLE, Card, Scene, card, line, odd_values, short
from viz.nodes.square import signed_peak, thinned
from viz.theme import number

READS = {"ln1": "hook_resid_pre", "ln2": "hook_resid_mid"}  # the stream that each norm of a pre-norm block reads
BEFORE = {"ln1": "attention", "ln2": "the MLP"}
FORMULAS = {"RMSNorm": "√(mean x² + eps)", "LayerNorm": "√(mean (x − mean)² + eps)"}  # what each kind of norm divides by
DRAWN = 1024  # points of one curve
STANDS_OUT = 5  # times the RMS of the vector: entries from there on are named
PAIRED = 600  # dims drawn as dots


def norm(scene: Scene, name: str) -> list[Card]:
    """Cards of the norm `name` ("ln1", "ln2") of the chosen layer."""
    here, stream, layers = (("pos", scene.pos),), scene.tap(READS[name]), range(scene.lm.config.n_layers)
    views = scene.ask(
        before=Request(stream, select=here, budget=DRAWN),
        divided=Request(scene.tap(f"{name}.hook_normalized"), select=here, budget=DRAWN),
        after=Request(scene.tap(f"{name}.hook_out"), select=here, budget=DRAWN),
        whole=Request(stream, select=here, budget=WHOLE),
        **{f"scale{i}": r for i, r in enumerate(requests.norm_scales(scene.lm, name))},
    )
    scales = np.stack([views[f"scale{i}"].values.reshape(-1) for i in layers])  # [layer, pos]
    config = {"ln1": scene.block.ln1, "ln2": scene.block.ln2}[name]
    kind = type(config).__qualname__.partition(".")[0]
    return [
        vector(scene, name, kind, views, float(scales[scene.layer, scene.pos])),
        divisors(scene, kind, scales[scene.layer], views[f"scale{scene.layer}"]),
        divisor_map(scene, name, scales, views["scale0"]),
        gains(scene, name),
        both_norms(scene, kind, config.eps, views["whole"]),
    ]


def vector(scene: Scene, name: str, kind: str, views: dict[str, View], scale: float) -> Card:
    """One token's vector before, after dividing and after the gain, one above the other."""
    theme, d, before = scene.theme, scene.block.d_model, views["before"]
    subtracted, bias = ("(x − mean)", " + bias") if kind == "LayerNorm" else ("x", "")
    rows = (
        ("before", "x, the residual stream", theme.secondary),
        ("divided", f"{subtracted} / {number(scale)}", theme.b),
        ("after", f"gain × {subtracted} / scale{bias}", theme.a),
    )
    panels = [Panel(title, [Series(title, views[k].values, c, "area")], notes=strongest(views[k])) for k, title, c in rows]
    side = labels.index_axis("dim", d, before.coords[0])
    figure = stack(panels, side, theme, revision=scene.key(f"vector:{name}"), height=460, legend=False)
    caption = line(
        f"{before.tap} → {name}.hook_normalized → {name}.hook_out, {short(before.dtype)}",
        f"{scene.token}, {d} dims, {before.how}",
        f"the divisor {number(scale)} is {FORMULAS.get(kind, 'the scale')}, measured in fp32",
        *odd_values(views["after"].values),
    )
    title = f"{kind} before {BEFORE[name]} · layer {scene.layer} · {scene.token}"
    return card("norm-vector", title, caption, figure, role="main")


def strongest(view: View, most: int = 3) -> list[tuple[float, float, str]]:
    """The entries that stand out of a vector, as notes of a panel: (place, value, "dim 17: 512")."""
    size, first = np.abs(np.where(np.isfinite(view.values), view.values, 0)), view.coords[0]
    floor = STANDS_OUT * float(np.sqrt(np.mean(size**2)))
    step = int(first[1] - first[0]) if len(first) > 1 else 1
    notes = []
    for i in np.argsort(-size)[:most]:
        if size[i] > floor:
            name = f"dim {first[i]}" if step == 1 else f"dims {first[i]}–{first[i] + step - 1}"
            value = float(view.values[i])
            notes.append((float(first[i] + (step - 1) / 2), value, f"{name}: {number(value)}"))
    return notes


def divisors(scene: Scene, kind: str, scales: np.ndarray, view: View) -> Card:
    """The divisor of each token of this layer; a click chooses the token."""
    side = labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS)
    log = colours.spans_decades(scales)
    figure = stack(
        [Panel("", [Series("divisor", scales, scene.theme.faint, "bar")], log=log)], side, scene.theme,
        revision=scene.key("divisor"), height=230, selected=scene.pos, click=("token", "x"),
    )  # fmt: skip
    caption = line(
        f"{view.tap} = {FORMULAS.get(kind, 'the divisor')}, {short(view.dtype)}",
        "one number a token, nothing pooled",
        "log scale" if log else "",
        *odd_values(scales),
    )
    return card("norm-divisor", f"Divisor per token · layer {scene.layer}", caption, figure)


def divisor_map(scene: Scene, name: str, scales: np.ndarray, view: View) -> Card:
    """Every layer's divisor of every token in log colour: a massive activation is a cell that stands out."""
    n, length = scales.shape
    drawn, first, how = thinned(scales, 256, "tokens")
    figure = matrix(
        drawn, labels.index_axis("layer", n), labels.token_axis("token", scene.pieces, first, labels.TICKS_ACROSS),
        colours.sequential(scales, scene.theme, log=True), scene.theme,
        revision=scene.key(f"divisors:{name}"), unit="divisor", row=scene.layer, click=("layer", "y"),
        height=110 + min(max(n * 16, 60), 420),
    )  # fmt: skip
    caption = line(
        f"blocks.*.{name}.hook_scale, {short(view.dtype)}",
        f"{n} × {length} (layer × token), {how}",
        "log colour",
        "a row opens its layer",
        *odd_values(scales),
    )
    return card("norm-map", "Divisor, all layers × tokens", caption, figure)


def gains(scene: Scene, name: str) -> Card:
    """The gain, dim by dim, with what it does at its ends."""
    gain = scene.lm.parameter(scene.tap(f"{name}.weight"))
    d, step = len(gain), -(-len(gain) // DRAWN)
    first = np.arange(0, d, step)
    drawn = np.array([signed_peak(block, 0) for block in np.split(gain, first[1:])], np.float32)
    panel = Panel("", [Series("gain", drawn, scene.theme.a, "area")])
    figure = stack([panel], labels.index_axis("dim", d, first), scene.theme, revision=scene.key(f"gain:{name}"), height=190)
    finite = gain[np.isfinite(gain)]
    table = [("negative", f"{int((gain < 0).sum())} of {d}")]
    if finite.size:
        table = [
            ("smallest · largest", f"{number(float(finite.min()))} · {number(float(finite.max()))}"),
            ("mean", number(float(finite.mean()))),
            ("largest |gain| at", f"dim {int(np.argmax(np.abs(np.nan_to_num(gain, nan=0.0))))}"),
            *table,
        ]
    how = "nothing pooled" if step == 1 else f"largest |x| of every {step} dims"
    return card(
        "norm-gain", "Gain", line(f"{scene.tap(name)}.weight, {d} numbers", how, *odd_values(gain)), figure, table, "side"
    )


def both_norms(scene: Scene, kind: str, eps: float, view: View) -> Card:
    """RMSNorm and LayerNorm of the same vector, both without gain, written out here."""
    x = view.values.astype(np.float64)
    with np.errstate(invalid="ignore"):  # a vector with infinities has no mean
        rms_scale, ln_scale = np.sqrt(np.mean(x**2) + eps), np.sqrt(np.mean((x - x.mean()) ** 2) + eps)
        rms_out, ln_out = x / rms_scale, (x - x.mean()) / ln_scale
        size = np.linalg.norm(rms_out) * np.linalg.norm(ln_out)
        table = [
            ("mean of x", number(float(x.mean()))),
            ("RMSNorm divides by", number(float(rms_scale))),
            ("LayerNorm divides by", number(float(ln_scale))),
            ("largest difference", number(float(np.abs(rms_out - ln_out).max()))),
            ("cosine of the two", f"{float(rms_out @ ln_out / size):.6f}" if size > 0 else "undefined"),
        ]
    keep = np.sort(np.argsort(-np.abs(rms_out))[:PAIRED])
    names = ("RMSNorm: x / √(mean x² + eps)", "LayerNorm: (x − mean) / √(var + eps)")
    figure = against(
        rms_out[keep], ln_out[keep], scene.theme, revision=scene.key("norms"), names=names, indices=keep, entry="dim"
    )
    caption = line(
        f"both computed here from {view.tap} of {scene.token}, without gain, eps {eps:g}",
        f"{len(x)} dims" if len(keep) == len(x) else f"the {len(keep)} largest of {len(x)} dims",
        f"this model uses {kind}",
        *odd_values(x),
    )
    return card("norm-both", "RMSNorm against LayerNorm", caption, figure, table, "side")
