"""A vector per token that belongs to no head: the latents of latent attention, and its rotary key."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.ranking import ranking
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import Asking, Card, Scene, card, line, odd_values, short
from viz.theme import number

TITLES = {
    "hook_q_latent": "Query latent",
    "hook_kv_latent": "Key and value latent",
    "hook_cache_latent": "Latents in the cache",
    "hook_k_rope": "Rotary key, before the rotation",
    "hook_rot_k_rope": "Rotary key, after the rotation",
    "hook_cache_k_rope": "Rotary keys in the cache",
}
PAIRS = {  # tap -> what is made of it, drawn beside it, and in words
    "attn.hook_q_latent": ("attn.q_norm.hook_out", "after its norm: what the up projection reads"),
    "attn.hook_kv_latent": ("attn.kv_norm.hook_out", "after its norm: what the cache keeps"),
    "attn.hook_k_rope": ("attn.hook_rot_k_rope", "after the rotation: the length stays"),
}
LARGEST = 8


def latent(scene: Scene, name: str) -> Asking:
    """Cards of a tensor [pos, d_latent] or [pos, d_head]."""
    tap, axis = scene.tap(name), scene.taps[scene.tap(name)].dims[-1]
    after, words = PAIRS.get(name, (None, ""))
    tokens = next(d for d in scene.taps[tap].dims if d in ("pos", "key_pos"))
    asked = {"map": Request(tap), "length": Request(tap, "norm", (axis,)), "peaks": Request(tap, "absmax", (tokens,))}
    if after is not None:
        asked["after"] = Request(scene.tap(after), "norm", (axis,))
    views = yield asked
    return [
        entries(scene, name, views["map"], axis),
        lengths(scene, views, words),
        largest(scene, views["peaks"], axis),
        kept(scene),
    ]


def entries(scene: Scene, name: str, view: View, axis: str) -> Card:
    """Tokens x entries."""
    rows = labels.token_axis("token", scene.pieces, view.coords[0])
    columns = labels.index_axis(axis, scene.sizes(view)[axis], view.coords[1])
    colour = colours.signed(view.values, scene.theme, scene.log)
    figure = matrix(
        view.values, rows, columns, colour, scene.theme,
        revision=scene.key(name), row=scene.pos, click=("token", "y"), height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    leaf = name.rpartition(".")[2]
    title = f"{TITLES.get(leaf, leaf.removeprefix('hook_').replace('_', ' '))} · layer {scene.layer}"
    return card(f"latent-{name}", title, scene.caption(view, "one for all heads", colour.note), figure, role="main")


def lengths(scene: Scene, views: dict[str, View], words: str) -> Card:
    """Length per token, and that of what is made of it."""
    theme, view = scene.theme, views["length"]
    series = [Series("as projected", view.values, theme.faint, "bar")]
    if "after" in views:
        series.append(Series(words.partition(":")[0], views["after"].values, theme.b))
    figure = stack(
        [Panel("", series)], labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS), theme,
        revision=scene.key("length"), height=240, selected=scene.pos, click=("token", "x"), legend=len(series) > 1,
    )  # fmt: skip
    beside = f"line: {views['after'].tap}, {words}" if "after" in views else ""
    caption = line(f"{view.tap}, {view.how}, {short(view.dtype)}", beside, *odd_values(view.values))
    return card("length", "Length per token", caption, figure)


def largest(scene: Scene, view: View, axis: str) -> Card:
    """The entries that are largest over all tokens."""
    order = np.argsort(-np.nan_to_num(view.values, nan=np.inf), kind="stable")[:LARGEST]
    names = [str(i) for i in order]
    figure = ranking(names, view.values[order], scene.theme, revision=scene.key("entries"), name="largest |x|")
    which = f"the {len(order)} largest of {len(view.values)} entries of {axis}"
    return card("largest", "Largest entries", line(view.tap, view.how, which, *odd_values(view.values)), figure, role="side")


def kept(scene: Scene) -> Card:
    """What a cache keeps of one token here, against what it would keep of ordinary heads."""
    attn = scene.attn
    full = attn.n_heads * (attn.d_head + attn.d_value)
    rows = [
        ("latent", f"{attn.kv_latent:,}"),
        ("rotary key", f"{attn.rope.d:,}"),
        ("kept per token", f"{attn.cached_per_token:,}"),
        ("keys and values of every head", f"{full:,}"),
        ("so many times less", number(full / attn.cached_per_token)),
    ]
    caption = "numbers a token and layer; keys and values are made from the latent when they are needed"
    return card("kept", "What the cache keeps", caption, table=rows, role="side")
