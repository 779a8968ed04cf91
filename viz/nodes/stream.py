"""The residual stream and what is added to it: every dim, its length, each half's share by layer, the next token at its end."""

from collections.abc import Callable

import numpy as np

from model.errors import BlockscopeError
from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.ranking import ranking
from viz.figures.stack import Panel, Series, stack
from viz.nodes import outputs, requests
from viz.nodes.card import Asking, Card, Scene, card, line, odd_values, short
from viz.theme import number

TITLES = {
    "hook_resid_pre": "Residual stream, entering",
    "hook_resid_mid": "Residual stream, after attention",
    "hook_resid_post": "Residual stream, leaving",
    "attn.hook_module_out": "What attention gives, before its norm",
    "mlp.hook_module_out": "What the MLP gives, before its norm",
    "hook_attn_out": "What attention adds",
    "hook_mlp_out": "What the MLP adds",
}
NEXT = 10
LARGEST = 8

Layers = dict[str, np.ndarray]  # [layer, pos] by tap


def stream(scene: Scene, name: str) -> Asking:
    """Cards of a tensor [pos, d_model] of the stream."""
    tap = scene.tap(name)
    views = yield {
        "map": Request(tap),
        "length": Request(tap, "norm", ("d_model",)),
        "peaks": Request(tap, "absmax", ("pos",)),
        **_every_layer(scene),
        **outputs.wanted(scene, name),
    }
    sizes, cosines = (
        {part: np.stack([views[f"{kind}:{part}:{i}"].values for i in range(len(asked))]) for part, asked in group.items()}
        for kind, group in _groups(scene)
    )
    ends_here = name == "hook_resid_post" and scene.layer == scene.lm.config.n_layers - 1
    return [
        dims(scene, name, views["map"]),
        *([next_token(scene)] if ends_here else []),
        *outputs.cards(scene, views),
        lengths(scene, views["length"]),
        contributions(scene, sizes),
        directions(scene, cosines),
        largest(scene, views["peaks"]),
    ]


def _groups(scene: Scene) -> tuple[tuple[str, dict[str, list[Request]]], ...]:
    return ("size", requests.stream_sizes(scene.lm)), ("cosine", requests.stream_cosines(scene.lm))


def _every_layer(scene: Scene) -> dict[str, Request]:
    return {f"{k}:{part}:{i}": r for k, group in _groups(scene) for part, asked in group.items() for i, r in enumerate(asked)}


def dims(scene: Scene, name: str, view: View) -> Card:
    """Tokens x dims; in log colour where a few massive entries would leave all others grey."""
    rows = labels.token_axis("token", scene.pieces, view.coords[0])
    columns = labels.index_axis("dim", scene.lm.config.d_model, view.coords[1])
    colour = colours.signed(view.values, scene.theme, scene.log)
    figure = matrix(
        view.values, rows, columns, colour, scene.theme,
        revision=scene.key(name), row=scene.pos, click=("token", "y"), height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    title = f"{TITLES.get(name, name)} · layer {scene.layer}"
    return card(f"stream-{name}", title, scene.caption(view, colour.note), figure, role="main")


def lengths(scene: Scene, view: View) -> Card:
    """Length of each token's vector; a click chooses the token."""
    side, values = labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS), view.values
    log = colours.spans_decades(values)
    figure = stack(
        [Panel("", [Series("length", values, scene.theme.faint, "bar")], log=log)], side, scene.theme,
        revision=scene.key("length"), height=220, selected=scene.pos, click=("token", "x"),
    )  # fmt: skip
    caption = line(f"{view.tap}, {view.how}, {short(view.dtype)}", "log scale" if log else "", *odd_values(values))
    return card("stream-length", "Length per token", caption, figure)


def contributions(scene: Scene, sizes: Layers) -> Card:
    """How large the stream is at each layer, and how large what each half adds: the median token, and the largest."""
    theme, width = scene.theme, np.sqrt(scene.lm.config.d_model)
    stream = sizes["hook_resid_pre"]
    series = [*_pair("stream", stream / width, theme.ink)]
    relative = []
    for name, words, colour in (("hook_attn_out", "attention adds", theme.a), ("hook_mlp_out", "MLP adds", theme.b)):
        series += _pair(words, sizes[name] / width, colour)
        share = _over_tokens(np.median, sizes[name][scene.layer :][:1] / np.maximum(stream[scene.layer :][:1], 1e-30))
        relative.append(f"{words} {number(float(share[0]))}")
    figure = stack(
        [Panel("rms over d_model", series, log=True)], labels.index_axis("layer", len(stream)), theme,
        revision=scene.key("sizes"), height=300, selected=scene.layer, click=("layer", "x"),
    )  # fmt: skip
    caption = line(
        "blocks.*.hook_resid_pre, hook_attn_out, hook_mlp_out: rms over d_model per token",
        "lines: median token, dotted: largest token",
        "log scale",
        f"at layer {scene.layer}, relative to the stream (median token): {', '.join(relative)}",
        "a click opens a layer",
        *odd_values(np.stack(list(sizes.values()))),
    )
    return card("contributions", "Size of each contribution, by layer", caption, figure)


def _pair(words: str, rms: np.ndarray, colour: str) -> list[Series]:
    """The median token as a line, the largest dotted."""
    dotted = Series(f"{words}, largest token", _over_tokens(np.max, rms), colour, "dash", opacity=0.7, keyed=False)
    return [Series(words, _over_tokens(np.median, rms), colour), dotted]


def _over_tokens(reduce: Callable, values: np.ndarray) -> np.ndarray:
    """Over the finite entries of each row; NaN where there is none."""
    return np.array([reduce(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values], np.float32)


def directions(scene: Scene, cosines: Layers) -> Card:
    """Whether each half writes along the stream or across it."""
    series = []
    for name, words, colour in (("hook_attn_out", "attention", scene.theme.a), ("hook_mlp_out", "MLP", scene.theme.b)):
        series.append(Series(words, _over_tokens(np.median, cosines[name]), colour))
        own = cosines[name][:, scene.pos]
        series.append(Series(f"{words}, chosen token", own, colour, "dash", opacity=0.8, keyed=False))
    side = labels.index_axis("layer", len(cosines["hook_mlp_out"]))
    figure = stack(
        [Panel("cosine", series, span=(-1.05, 1.05))], side, scene.theme,
        revision=scene.key("cosines"), height=240, click=("layer", "x"),
    )  # fmt: skip
    caption = line(
        "hook_attn_out with hook_resid_pre, hook_mlp_out with hook_resid_mid, over d_model",
        f"lines: median token, dotted: {scene.token}",
        "always −1 to 1",
        *odd_values(np.stack(list(cosines.values()))),
    )
    return card("cosines", "Cosine with the stream, by layer", caption, figure)


def largest(scene: Scene, view: View) -> Card:
    """The dims with the largest entry over all tokens."""
    order = np.argsort(-np.nan_to_num(view.values, nan=np.inf), kind="stable")[:LARGEST]
    names = [f"dim {i}" for i in order]
    figure = ranking(names, view.values[order], scene.theme, revision=scene.key("dims"), name="largest |x|")
    which = f"the {len(order)} largest of {len(view.values)} dims"
    caption = line(f"{view.tap}, {view.how}, {short(view.dtype)}", which, *odd_values(view.values))
    return card("largest-dims", "Largest dims", caption, figure, role="side")


def next_token(scene: Scene) -> Card:
    """What the model would say next: a ranking, or the reason that there is none."""
    vocabulary = scene.lm.config.d_vocab
    try:
        found = scene.lm.next_tokens(list(scene.tokens), k=min(NEXT, vocabulary))
    except BlockscopeError as error:
        return card("next-token", "Next token", str(error), role="side")
    names = [labels.label(piece, i, 18) for i, piece, _ in found]
    values = np.array([p for _, _, p in found], np.float32)
    figure = ranking(names, values, scene.theme, revision=scene.key("next"), name="probability", span=(0, 1.15), first=True)
    caption = line(
        f"softmax(logits) after the last token, the {len(found)} largest of {vocabulary:,}",
        "the first is the argmax, the model's greedy choice; nothing is sampled",
    )
    return card("next-token", "Next token", caption, figure, role="side")
