"""Tensors that every head has for every token: q, k, v, z."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.mosaic import mosaic
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import Asking, Card, Scene, card, line, odd_values, short
from viz.theme import count

WORDS = {"hook_q": "Queries", "hook_k": "Keys", "hook_v": "Values", "hook_z": "Head outputs"}
SMALL = 18_000  # cells of all heads together


def heads(scene: Scene, name: str) -> Asking:
    """Cards of a tensor [pos or key_pos, head or kv_head, d_head]: one head large, all small, the length per token."""
    tap = scene.tap(name)
    shared = "kv_head" in scene.taps[tap].dims
    tokens = "key_pos" if "key_pos" in scene.taps[tap].dims else "pos"
    axis, chosen = ("kv_head", scene.kv_head) if shared else ("head", scene.head)
    views = yield {
        "large": Request(tap, select=((axis, chosen),)),
        "small": Request(tap, budget=SMALL),
        "peaks": Request(tap, "absmax", (tokens, "d_head")),
        "length": Request(tap, "norm", ("d_head",)),
    }
    limit = colours.peak(views["peaks"].values)
    colour = colours.signed(views["small"].values, scene.theme, scene.log, limit)
    one = f"KV head {chosen}" if shared else f"head {chosen}"
    return [
        large(scene, name, views["large"], colour, one, shared),
        small(scene, views["small"], colour, chosen, shared),
        length(scene, name, views["length"], chosen, one),
    ]


def words_for(name: str) -> str:
    leaf = name.rpartition(".")[2]
    return WORDS.get(leaf, leaf.removeprefix("hook_").replace("_", " "))


def large(scene: Scene, name: str, view: View, colour: colours.Colour, one: str, shared: bool) -> Card:
    """The chosen head: tokens down, its coordinates across."""
    rows = labels.token_axis("token", scene.pieces, view.coords[0])
    columns = labels.index_axis("d_head", scene.sizes(view)["d_head"], view.coords[1])
    figure = matrix(
        view.values, rows, columns, colour, scene.theme,
        revision=scene.key(name), row=scene.pos, click=("token", "y"), height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    first, last = scene.kv_head * scene.group, (scene.kv_head + 1) * scene.group - 1
    readers = f"read by head {first}" if first == last else f"read by heads {first}–{last}"
    which = readers if shared else f"reads KV head {scene.kv_head} of {scene.attn.n_kv_heads}"
    title = f"{words_for(name)} · layer {scene.layer} · {one}"
    return card(f"tensor-{name}", title, scene.caption(view, which, colour.note), figure, role="main")


def small(scene: Scene, view: View, colour: colours.Colour, chosen: int, shared: bool) -> Card:
    """Every head in the colours of the large picture; a click on a KV head opens the first query head that reads it."""
    axis = "kv_head" if shared else "head"
    tiles = np.moveaxis(view.values, view.dims.index(axis), 0)  # [head, pos, d_head]
    word = ("kv head " if shared else "head ") if len(tiles) <= 9 else "kv " if shared else ""
    titles = [f"{word}{h}" for h in range(len(tiles))]
    opens = np.arange(len(tiles)) * (scene.group if shared else 1)
    figure = mosaic(tiles, titles, colour, scene.theme, revision=scene.key("heads"), selected=chosen, heads=opens)
    caption = line(f"{view.tap}, tokens down, d_head across, one colour range", view.how, "a click opens a head")
    return card("heads", count(len(tiles), "KV head" if shared else "head"), caption, figure, role="side")


def length(scene: Scene, name: str, view: View, chosen: int, one: str) -> Card:
    """|x| per token of the chosen head, between the shortest and longest of all heads."""
    values, theme = view.values, scene.theme  # [pos, head]
    series = [Series(f"|x|, {one}", values[:, chosen], theme.faint, "bar")]
    if values.shape[1] > 1:
        ends = (("longest of all heads", values.max(1)), ("shortest of all heads", values.min(1)))
        series += [Series(words, x, theme.secondary, "dash") for words, x in ends]
    side = labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS)
    figure = stack(
        [Panel("", series)], side, theme,
        revision=scene.key("length"), height=230, selected=scene.pos, click=("token", "x"), legend=False,
    )  # fmt: skip
    dotted = "; dotted: the longest and the shortest of all heads" if values.shape[1] > 1 else ""
    caption = line(f"{view.tap}, {view.how}, {short(view.dtype)}", f"bars: {one}{dotted}", *odd_values(values))
    return card("length", f"Length per token, {words_for(name).lower()}", caption, figure)
