"""The rotation: pairs as arrows, angles, wavelengths, and the score of one q and one k at every distance."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.rotary import arrows
from viz.figures.stack import Panel, Series, stack
from viz.nodes import qk
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.qk import kind_of
from viz.theme import number

TILES = 8  # pairs drawn as arrows
ANGLES = 24_000  # cells of the angle map
REACH = 512  # distances drawn at least, where the context has them
POINTS = 2048  # of one curve


def rope(scene: Scene, _: str) -> Asking:
    """Cards of the rotation of the chosen head, query token and the other key that it reads most."""
    row = (("head", scene.head), ("query_pos", scene.pos))
    views = yield {
        **turned(scene),
        "logits": Request(scene.tap("attn.hook_logits"), select=row, budget=WHOLE),
        "pattern": Request(scene.tap("attn.hook_pattern"), select=row, budget=WHOLE),
        "angle": Request(scene.tap("attn.rope.hook_angle"), budget=WHOLE),
    }
    key, why = strongest_key(scene, views["pattern"])
    found = [planes(scene, views, key, why)]
    if qk.plain(scene) or latent(scene):
        found.append(distance(scene, views, key))
    return [*found, angles(scene, views["angle"]), wavelengths(scene)]


def latent(scene: Scene) -> bool:
    """Whether one rotary key serves all heads, beside coordinates that do not rotate (multi-head latent attention)."""
    return "attn.hook_rot_k_rope" in scene.block_taps


def turned(scene: Scene) -> dict[str, Request]:
    """q of the chosen head and token, k of every token, before and after the rotation."""
    head, at, kv = ("head", scene.head), ("pos", scene.pos), ("kv_head", scene.kv_head)
    every = max(WHOLE, len(scene.tokens) * scene.attn.d_head)  # all of every key, however long the prompt
    if latent(scene):
        taps, whose = ("attn.hook_q", "attn.hook_k_rope", "attn.hook_rot_k_rope"), ()
    else:
        normed_first = scene.attn.q_norm is not None and kind_of(scene.attn) == "Attention"
        before = ("attn.q_norm.hook_out", "attn.k_norm.hook_out") if normed_first else ("attn.hook_q", "attn.hook_k")
        taps, whose = (*before, "attn.hook_rot_k"), (kv,)
    before_q, before_k, after_k = (scene.tap(tap) for tap in taps)
    asked = {
        "q": Request(before_q, select=(head, at), budget=every),
        "rot_q": Request(scene.tap("attn.hook_rot_q"), select=(head, at), budget=every),
        "k": Request(before_k, select=whose, budget=every),
        "rot_k": Request(after_k, select=whose, budget=every),
    }
    return asked | ({"keys": Request(scene.tap("attn.hook_keys"), select=(head,), budget=every)} if latent(scene) else {})


def rotary_first(scene: Scene, x: np.ndarray) -> np.ndarray:
    """x [..., d_head] with the coordinates that rotate in front; latent attention has them at the end."""
    still = scene.attn.d_nope if latent(scene) and x.shape[-1] == scene.attn.d_head else 0
    return np.roll(x, -still, axis=-1)


def strongest_key(scene: Scene, pattern: View) -> tuple[int, str]:
    """The visible key of the largest weight, and in words which that is; the token itself, and key 0 where it is hidden,
    only if there is no other. pattern [key_pos]."""
    weight, hidden = pattern.values, pattern.masked
    seen = np.ones(len(weight), bool) if hidden is None else ~hidden
    at = np.arange(len(weight))
    other, first = seen & (at != scene.pos), bool(scene.state.hide_first) & (at == 0)
    if not np.isfinite(weight[seen]).all():
        return int(np.flatnonzero(seen)[-1]), "which only stands in: the pattern of this query is not finite"
    for among, why in (
        (other & ~first, "the other key that it reads most" + (", key 0 left out" if (other & first).any() else "")),
        (other, "the only other key that it sees"),
    ):
        if among.any():
            return int(np.argmax(np.where(among, weight, -1.0))), why
    return scene.pos, "itself, the only key that it sees"


def chosen_pairs(energy: np.ndarray, most: int = TILES) -> np.ndarray:
    """Fast to slow: of each of `most` neighbouring groups of pairs, the one that carries most of |q||k|."""
    groups = np.array_split(np.arange(len(energy)), min(most, len(energy)))
    return np.array([group[np.argmax(energy[group])] for group in groups])


def planes(scene: Scene, views: dict[str, View], key: int, why: str) -> Card:
    """q and k before and after the rotation, pair by pair."""
    q, turned_q = (qk.pairs(scene, rotary_first(scene, np.nan_to_num(views[name].values))) for name in ("q", "rot_q"))
    k, turned_k = (qk.pairs(scene, np.nan_to_num(views[name].values[key])) for name in ("k", "rot_k"))
    shown, waves = chosen_pairs(np.abs(q) * np.abs(k)), 2 * np.pi / qk.frequencies(scene)
    titles = [f"pair {p}<br>λ {number(float(waves[p]))}" for p in shown]
    before, after = ({n: np.stack([z[shown].real, z[shown].imag], axis=1) for n, z in side} for side in (
        (("q", q), ("k", k)), (("q", turned_q), ("k", turned_k)),
    ))  # fmt: skip
    figure = arrows(before, after, titles, scene.theme, revision=scene.key("planes"))
    caption = line(
        f"{views['q'].tap} → attn.hook_rot_q, {short(views['q'].dtype)}",
        f"{scene.attn.rope.d} of {scene.attn.d_head} coordinates rotate" if scene.attn.rope.d < scene.attn.d_head else "",
        "k is one for all heads" if latent(scene) else "",
        f"q: {scene.token}; k: key {key} “{scene.pieces[key]}”, {why}",
        f"{len(shown)} of {len(waves)} pairs, fast to slow, of each group the one with the largest |q||k|",
        "drawn length √length, one scale for all",
        "dotted: the angle turned, modulo 2π",
        *odd_values(views["q"].values),
    )
    return card("rope-planes", f"Rotation of q and k · layer {scene.layer} · head {scene.head}", caption, figure, role="main")


def scores_at(scene: Scene, q: np.ndarray, k: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """scale * rot(q) . rot(k) for a query `distances` positions after the key: the sum over pairs of
    Re(q conj(k)) cos(distance w) - Im(q conj(k)) sin(distance w), plus the coordinates that do not rotate."""
    q, k = q.astype(np.float64), k.astype(np.float64)
    product = qk.pairs(scene, q) * np.conj(qk.pairs(scene, k))
    turn = distances.astype(np.float64)[:, None] * qk.frequencies(scene)
    rotated = (product.real * np.cos(turn) - product.imag * np.sin(turn)).sum(1) * qk.magnitude(scene) ** 2
    d = scene.attn.rope.d
    return scene.attn.logit_scale * (rotated + q[d:] @ k[d:])


def distance(scene: Scene, views: dict[str, View], key: int) -> Card:
    """The score that this q and this k would have at any distance; the model's own logit is a dot on the curve."""
    theme, true = scene.theme, scene.pos - key
    last = max(min(max(REACH, 4 * len(scene.tokens)), scene.lm.config.context), true + 1, 2)
    step = max(1, last // POINTS)
    at = np.union1d(np.arange(0, last, step), [true])
    q, k = rotary_first(scene, views["q"].values), views["k"].values[key]
    if latent(scene):
        k = np.concatenate([k, views["keys"].values[key, : scene.attn.d_nope]])
    curve = scores_at(scene, q, k, at)
    own = float(views["logits"].values[key])
    title = "distance: query position − key position"
    side = labels.Axis("distance", at.astype(np.float32), (-0.02 * last, last), title=title)
    dot = Series("the model’s logit here", np.array([own], np.float32), theme.accent, "dots", np.array([true], np.float32))
    note = [(float(true), own, f"distance {true}: {number(own)}")] if np.isfinite(own) else []
    panel = Panel("", [Series("scaled logit", curve, theme.secondary), dot], zero=False, notes=note)
    figure = stack([panel], side, theme, revision=scene.key("distance"), height=260, legend=False)
    owner = "with the plain part of attn.hook_keys" if latent(scene) else f"KV head {scene.kv_head}"
    gap = abs(own - float(curve[np.searchsorted(at, true)]))
    caption = line(
        "scale·Σ_pairs |q||k| cos(angle between + distance·frequency), computed here",
        f"q: {views['q'].tap}, {scene.token}, head {scene.head}",
        f"k: {views['k'].tap}, key {key} “{scene.pieces[key]}”, {owner}",
        f"dot: {views['logits'].tap} at the true distance, {number(gap)} off the curve"
        if np.isfinite(gap)
        else f"no dot: {views['logits'].tap} at the true distance or the curve is not finite",
        f"every {step} distances" if step > 1 else "",
    )
    return card("rope-distance", "Score against distance", caption, figure)


def angles(scene: Scene, view: View, role: str = "more") -> Card:
    """The angle of every pair at every position, modulo 2 pi, on a cyclic scale."""
    positions, pairs = view.values.shape
    step = -(-positions * pairs // ANGLES)
    first = np.arange(0, positions, step)
    drawn = np.mod(view.values[first].T, np.float32(2 * np.pi))
    figure = matrix(
        drawn, labels.index_axis("pair", pairs), labels.index_axis("position", positions, first), colours.angle(scene.theme),
        scene.theme, revision=scene.key("angle"), unit="angle", click=("token", "x"),
        height=110 + min(max(9 * pairs, 100), 330),
    )  # fmt: skip
    caption = line(
        f"{view.tap} = position·frequency mod 2π, {short(view.dtype)}",
        f"{positions} × {pairs} (position × pair)" + (", nothing pooled" if step == 1 else f", every {step} positions drawn"),
        "pair 0 turns fastest",
        "cyclic colour",
    )
    return card("rope-angle", "Angle per pair and position", caption, figure, role=role)


def wavelengths(scene: Scene) -> Card:
    """Positions per full turn of each pair, with and without the scaling, beside the context and this prompt."""
    theme, config, context = scene.theme, scene.attn.rope, scene.lm.config.context
    scaled, plain = (2 * np.pi / qk.frequencies(scene, scaled=s) for s in (True, False))
    series, what = [Series("without scaling", plain, theme.a)], "no scaling in this model"
    if config.scaling is not None:
        name = type(config.scaling).__name__
        series.append(Series(f"with {name} scaling", scaled, theme.b))
        what = f"{name} scaling, factor {config.scaling.factor:g}"
    n = len(scene.tokens)
    lines = [(float(context), f"context {context:,}"), (float(n), f"this prompt {n:,}")]
    figure = stack(
        [Panel("positions per turn", series, log=True, lines=lines)], labels.index_axis("pair", len(scaled)), theme,
        revision=scene.key("wave"), height=260, legend=len(series) > 1,
    )  # fmt: skip
    caption = line(
        f"λ = 2π / frequency, frequency = {config.base:,.10g}^(−2·pair/{config.d}), computed from the config",
        what,
        f"{config.pairing} pairing",
        f"{int((scaled > context).sum())} of {len(scaled)} pairs never complete a turn within the context",
    )
    return card("rope-wave", "Wavelength per pair", caption, figure, role="side")
