"""QK-norm: what it divides q and k by, its gains and the bound they set, and the logits with and without it."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.distribution import overlay
from viz.figures.heat import matrix
from viz.figures.stack import Panel, Series, stack
from viz.nodes import qk
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.square import thinned
from viz.theme import count, number


def qk_norm(scene: Scene, _: str) -> Asking:
    """Cards of the slot on q and k: filled, or empty and then what it would do."""
    logits = {"logits": Request(scene.tap("attn.hook_logits"), select=(("head", scene.head),), budget=WHOLE)}
    both = qk.projected(scene) | logits if qk.plain(scene) else {}
    if qk.norm_over(scene) == "off":
        if not both:
            return [card("qk-off", "QK-norm is off", "an empty slot: q and k pass unchanged", role="main")]
        return [with_and_without(scene, (yield both), "QK-norm is off: what it would do here", "main")]
    scales = {f"{part}_scale": Request(scene.tap(f"attn.{part}_norm.hook_scale")) for part in "qk"}
    after = {f"{part}_out": Request(scene.tap(f"attn.{part}_norm.hook_out"), "norm", ("d_head",)) for part in "qk"}
    before = {f"{part}_in": Request(scene.tap(f"attn.hook_{part}"), "norm", ("d_head",)) for part in "qk"}
    views = yield scales | after | before | both
    found = [divisors(scene, views), lengths(scene, views)]
    found += [with_and_without(scene, views)] if both else []
    return found + ([gains(scene)] if qk.bounded(scene) else [])


def divisors(scene: Scene, views: dict[str, View]) -> Card:
    """The divisor of every token and head, q above k, in one log colour range."""
    q, k = (views[f"{part}_scale"].values.reshape(len(scene.tokens), -1).T for part in "qk")  # [head or 1, pos]
    both = np.concatenate([q, k])
    drawn, first, how = thinned(both, 256, "tokens")
    names = [f"q {h}" for h in range(len(q))] + [f"k {h}" for h in range(len(k))]
    marked = np.arange(0, len(both), -(-len(both) // labels.TICKS))
    ends = (-0.5, len(both) - 0.5)
    rows = labels.Axis("divisor of", np.arange(len(both), dtype=np.float32), ends, marked, [names[i] for i in marked])
    columns = labels.token_axis("token", scene.pieces, first, labels.TICKS_ACROSS)
    figure = matrix(
        drawn, rows, columns, colours.sequential(both, scene.theme, log=True), scene.theme,
        revision=scene.key("qk-scale"), unit="divisor", click=("token", "x"), height=120 + min(max(18 * len(both), 60), 460),
    )  # fmt: skip
    over = "one a head and token" if scene.attn.qk_norm_over == "head" else "one a token, over the whole projection"
    caption = line(
        f"{views['q_scale'].tap} and k_norm.hook_scale = √(mean x² + eps), {short(views['q_scale'].dtype)}",
        f"{over}, {how}",
        "log colour, one range",
        *odd_values(both),
    )
    return card("qk-scale", f"QK-norm divisors · layer {scene.layer}", caption, figure, role="main")


def lengths(scene: Scene, views: dict[str, View]) -> Card:
    """|q| and |k| of the chosen head before the norm and after it and its gain."""
    theme, side, panels = scene.theme, labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS), []
    for part, word, at in (("q", "head", scene.head), ("k", "KV head", scene.kv_head)):
        before, after = (views[f"{part}_{end}"].values[:, at] for end in ("in", "out"))
        series = [Series("before", before, theme.a), Series("after norm and gain", after, theme.b)]
        panels.append(Panel(f"|{part}|, {word} {at}", series))
    figure = stack(
        panels, side, theme, revision=scene.key("qk-length"), height=300, selected=scene.pos, click=("token", "x"), legend=True
    )
    dtype = short(views["q_in"].dtype)
    caption = line(f"length over d_head of hook_q, hook_k and of q_norm.hook_out, k_norm.hook_out, {dtype}", "nothing pooled")
    return card("qk-length", "Length before and after QK-norm", caption, figure)


def gains(scene: Scene) -> Card:
    """The gains of the chosen head and its KV head, and the bound on its logits."""
    theme, d = scene.theme, scene.attn.d_head
    g = qk.gains(scene, scene.attn.qk_norm_over)
    bound, formula = qk.bounds(scene, g)
    q, k = (g.q, g.k) if g.over == "head" else (g.q.reshape(-1, d)[scene.head], g.k.reshape(-1, d)[scene.kv_head])
    panels = [Panel(f"g_{n}", [Series(f"g_{n}", x, c, "area")]) for n, x, c in (("q", q, theme.a), ("k", k, theme.b))]
    figure = stack(panels, labels.index_axis("d_head", d), theme, revision=scene.key("qk-gain"), height=260, legend=False)
    rows = [
        ("max |g_q|", number(float(np.abs(q).max()))),
        ("max |g_k|", number(float(np.abs(k).max()))),
        ("bound on a scaled logit", number(float(bound[scene.head]))),
        ("√d_head, for comparison", number(float(np.sqrt(d)))),
    ]
    caption = line(
        f"attn.q_norm.weight and attn.k_norm.weight, {origin(scene, g)}",
        f"bound: {formula}",
        ""
        if g.over == "head"
        else "over the projection one head may hold all of the length: |q_h| ≤ √(n_heads·d_head)·max|g_q|",
    )
    return card("qk-gain", "Gains and bound", caption, figure, rows, role="side")


def origin(scene: Scene, g: qk.Gains) -> str:
    """Where the gains come from."""
    opened = qk.configured(scene.built.config.blocks[scene.layer].attn)
    if g.learned:
        return "all ones: this norm has no gain" if qk.kind_of(scene.attn.q_norm) == "UnitRMSNorm" else "learned"
    if opened == "off":
        return "all ones: the model as opened has no QK-norm"
    if opened == g.over:
        return "all ones, in place of gains that the model as opened does not have"
    spans = {"head": "each head", "projection": "the whole projection"}
    own = f"the model's own gains are for a norm over {spans[opened]}"
    return f"all ones: {own} and do not fit, so they were replaced"


def with_and_without(
    scene: Scene, views: dict[str, View], title: str = "Logits with and without QK-norm", role: str = "more"
) -> Card:
    """The visible logits of the chosen head with and without QK-norm, both from the residual stream of this run."""
    theme, on = scene.theme, qk.norm_over(scene) != "off"
    g = qk.usual(scene)
    model = views["logits"]
    own = model.values if model.masked is None else model.values[~model.masked]
    other = qk.visible_logits(scene, views, None if on else g)
    bound, formula = qk.bounds(scene, g)
    norm = "QK-norm per head" if g.over == "head" else "QK-norm over the projection"
    norm += "" if g.learned else ", unit gain"
    names = (f"{norm}, as run", "without") if on else ("without, as run", norm)
    shades = (theme.b, theme.a) if on else (theme.a, theme.b)
    figure = overlay(
        [(names[0], own, shades[0]), (names[1], other, shades[1])], theme,
        revision=scene.key("overlay"), title="scaled logit", bound=float(bound[scene.head]), height=280,
    )  # fmt: skip
    learned = "the gains are learned, so it is not plain √d_head"
    unit = "with unit gains, which nobody trained: learned ones would move it"
    caption = line(
        f"head {scene.head} of layer {scene.layer}, {count(other.size, 'visible logit')}, triangles at their ends",
        "both from the same residual stream",
        *odd_values(own),
        f"bound: {formula}; {learned if g.learned else unit}",
        f"“{names[1]}” is computed here from hook_q and hook_k",
        "" if model.how == "nothing pooled" else f"as run: {model.how}",
    )
    return card("overlay", title, caption, figure, role=role)
