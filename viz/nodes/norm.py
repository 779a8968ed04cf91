"""A norm: what it divides by, what that does to one token's vector, and what its gain does afterwards."""

import numpy as np

from model.errors import BlockscopeError
from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.cloud import against
from viz.figures.heat import matrix
from viz.figures.stack import Panel, Series, stack
from viz.nodes import norm_source, outputs, requests
from viz.nodes.card import Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.qk import kind_of
from viz.nodes.square import signed_peak, thinned
from viz.theme import number

CENTRED = ("LayerNorm", "BiaslessLayerNorm")  # norms that subtract the mean first
DRAWN = 1024  # points of one curve
STANDS_OUT = 5  # times the RMS of the vector: entries from there on are named
PAIRED = 600  # dims drawn as dots


def norm(scene: Scene, name: str) -> Asking:
    """Cards of the norm at the path `name` ("ln1", "attn.kv_norm") of the chosen block."""
    here, own = (("pos", scene.pos),), scene.layer
    asked = requests.norm_scales(scene.lm, name)
    parts = {"divided": f"{name}.hook_normalized", "after": f"{name}.hook_out"}
    views = yield {
        **{part: Request(scene.tap(tap), select=here, budget=DRAWN) for part, tap in parts.items()},
        **norm_source.wanted(scene, name),
        **{f"scale{i}": request for i, request in asked.items()},
        **outputs.wanted(scene, name),
    }
    scales = {i: views[f"scale{i}"].values.reshape(-1) for i in asked}  # layer -> [pos]
    config, whole = _config(scene, name), norm_source.read(views)
    views |= {"before": norm_source.like(whole, views["after"])} if whole is not None else {}
    found = [
        vector(scene, name, kind_of(config), views, float(scales[own][scene.pos])),
        divisors(scene, kind_of(config), scales[own], views[f"scale{own}"]),
        *outputs.cards(scene, views),
        divisor_map(scene, name, scales, views[f"scale{own}"]),
        *gains(scene, name),
    ]
    return found + ([both_norms(scene, kind_of(config), config.eps, whole)] if whole is not None else [])


def _config(scene: Scene, name: str):
    """The norm's own config, down the path of its name."""
    config = scene.block
    for part in name.split("."):
        config = vars(config)[part]
    return config


def formula(kind: str) -> str:
    """What a norm of this kind divides by."""
    return "√(mean (x − mean)² + eps)" if kind in CENTRED else "√(mean x² + eps)"


def vector(scene: Scene, name: str, kind: str, views: dict[str, View], scale: float) -> Card:
    """One token's vector before, after dividing and after the gain, one above the other."""
    theme, after = scene.theme, views["after"]
    d = after.shape[-1]
    x = "(x − mean)" if kind in CENTRED else "x"
    rows = (
        ("before", "x, what the norm reads", theme.secondary),
        ("divided", f"{x} / {number(scale)}", theme.b),
        ("after", f"gain × {x} / scale{' + bias' if kind == 'LayerNorm' else ''}", theme.a),
    )
    shown = [row for row in rows if row[0] in views]
    panels = [Panel(title, [Series(title, views[k].values, c, "area")], notes=strongest(views[k])) for k, title, c in shown]
    side = labels.index_axis("dim", d, after.coords[0])
    figure = stack(panels, side, theme, revision=scene.key(f"vector:{name}"), height=40 + 140 * len(panels), legend=False)
    taps = [views[k].tap if not i else views[k].tap.removeprefix(scene.tap("")) for i, (k, _, _) in enumerate(shown)]
    caption = line(
        f"{' → '.join(taps)}, {short(after.dtype)}",
        f"{scene.token}, {d} dims, {after.how}",
        f"the divisor {number(scale)} is {formula(kind)}, measured in fp32",
        *odd_values(after.values),
    )
    title = f"{kind} {norm_source.place(scene, name)} · layer {scene.layer} · {scene.token}"
    return card("norm-vector", title, caption, figure, role="main")


def strongest(view: View) -> list[tuple[float, float, str]]:
    """What stands out of a vector, the largest entry up and down, as notes of a panel: (place, value, "dim 17: 512")."""
    size, first = np.abs(np.where(np.isfinite(view.values), view.values, 0)), view.coords[0]
    floor = STANDS_OUT * float(np.sqrt(np.mean(size**2)))
    step = int(first[1] - first[0]) if len(first) > 1 else 1
    notes = []
    for side in (view.values > 0, view.values < 0):
        i = int(np.argmax(size * side))
        if side[i] and size[i] > floor:
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
        f"{view.tap} = {formula(kind)}, {short(view.dtype)}",
        "one number a token, nothing pooled",
        "log scale" if log else "",
        *odd_values(scales),
    )
    return card("norm-divisor", f"Divisor per token · layer {scene.layer}", caption, figure)


def divisor_map(scene: Scene, name: str, scales: dict[int, np.ndarray], view: View) -> Card:
    """Every layer's divisor of every token in log colour: a massive activation is a cell that stands out."""
    n, length = scene.lm.config.n_layers, len(scene.tokens)
    values = np.full((n, length), np.nan, np.float32)
    masked = np.ones((n, length), bool)  # a layer without this norm is empty
    for layer, row in scales.items():
        values[layer], masked[layer] = row, False
    drawn, first, how = thinned(values, 256, "tokens")
    figure = matrix(
        drawn, labels.index_axis("layer", n), labels.token_axis("token", scene.pieces, first, labels.TICKS_ACROSS),
        colours.sequential(values, scene.theme, log=True), scene.theme, masked=masked[:, first],
        revision=scene.key(f"divisors:{name}"), unit="divisor", row=scene.layer, click=("layer", "y"),
        height=110 + min(max(n * 16, 60), 420),
    )  # fmt: skip
    caption = line(
        f"blocks.*.{name}.hook_scale, {short(view.dtype)}",
        f"{n} × {length} (layer × token), {how}",
        "log colour",
        "a row opens its layer",
        *odd_values(values[~masked]),
    )
    return card("norm-map", "Divisor, all layers × tokens", caption, figure)


def gains(scene: Scene, name: str) -> list[Card]:
    """The gain (or what is added to 1 to get it), dim by dim, with what it does at its ends; none where the norm has none."""
    for leaf, title in (("weight", "Gain"), ("offset", "Gain − 1")):
        try:
            gain = scene.lm.parameter(scene.tap(f"{name}.{leaf}"))
        except BlockscopeError:
            continue
        return [_gain(scene, f"{name}.{leaf}", title, gain)]
    return []


def _gain(scene: Scene, name: str, title: str, gain: np.ndarray) -> Card:
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
    caption = line(f"{scene.tap(name)}, {d} numbers", how, *odd_values(gain))
    return card("norm-gain", title, caption, figure, table, "side")


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
