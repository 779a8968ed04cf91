"""The neurons of the chosen experts: each token has other experts, so a row is an expert of one token."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.figures.ranking import ranking
from viz.nodes import router
from viz.nodes.card import WHOLE, Asking, Card, Scene, card, line, odd_values, short
from viz.nodes.square import signed_peak
from viz.theme import number

CELLS = 16_384  # of a map
TOP = 12


def experts(scene: Scene, name: str) -> Asking:
    """Cards of the tensor [pos, topk, d_mlp]."""
    tap, here = scene.tap(name), (("pos", scene.pos),)
    views = yield {
        "neurons": Request(tap, select=here, budget=WHOLE),
        "length": Request(tap, "norm", ("d_mlp",)),
        **router.wanted(scene),
    }
    return [
        neurons(scene, name, views),
        sizes(scene, views),
        router.choice(scene, views),
        router.load(scene, views),
        strongest(scene, views),
        router.of_token(scene, views),
    ]


def ranked(scene: Scene, views: dict[str, View]) -> list[str]:
    """The experts of the chosen token as labels, best first."""
    weights, indices = (views[name].values[scene.pos] for name in ("weights", "indices"))
    return [f"expert {int(e)} · {number(float(w))}" for e, w in zip(indices, weights, strict=True)]


def neurons(scene: Scene, name: str, views: dict[str, View]) -> Card:
    """The chosen token's experts x their neurons."""
    view, mlp = views["neurons"], scene.block.mlp
    topk, step = len(view.values), -(-view.values.size // CELLS)
    rows = labels.Axis("rank", np.arange(topk, dtype=np.float32), (-0.5, topk - 0.5), np.arange(topk), ranked(scene, views))
    first = np.arange(0, mlp.d_mlp, step)
    columns = labels.index_axis("neuron", mlp.d_mlp, first)
    values = np.stack([signed_peak(part, 1) for part in np.split(view.values, first[1:], axis=1)], axis=1)
    colour = colours.signed(values, scene.theme, scene.log)
    figure = matrix(
        values, rows, columns, colour, scene.theme, revision=scene.key(name), height=130 + min(max(34 * topk, 60), 380)
    )
    gate = "clamped SwiGLU" if mlp.gate.startswith("clamped") else "SiLU(gate) × up"
    how = view.how if step == 1 else f"largest |x| of every {step} neurons"
    what = f"{gate} of each expert that {scene.token} goes to, with its weight"
    caption = scene.caption(view, what, colour.note, how=how)
    return card("experts", f"Neurons of the chosen experts · layer {scene.layer}", caption, figure, role="main")


def sizes(scene: Scene, views: dict[str, View]) -> Card:
    """How strongly each token drives each of its experts."""
    view = views["length"]
    step = -(-len(view.values) // 256)
    first = np.arange(0, len(view.values), step)
    figure = matrix(
        view.values[first], labels.token_axis("token", scene.pieces, first), labels.index_axis("rank", view.values.shape[1]),
        colours.sequential(view.values, scene.theme, scene.log), scene.theme, revision=scene.key("expert-sizes"),
        unit="length", row=scene.pos, click=("token", "y"), height=110 + min(max(16 * len(first), 110), 380),
    )  # fmt: skip
    how = view.how + (f", every {step} tokens drawn" if step > 1 else "")
    caption = line(f"{view.tap}, {how}, {short(view.dtype)}", "rank 0 is the expert chosen first", *odd_values(view.values))
    return card("expert-sizes", "Length of the neurons, token × rank", caption, figure)


def strongest(scene: Scene, views: dict[str, View]) -> Card:
    """The neurons of the chosen token's experts with the largest |x|."""
    values, indices = views["neurons"].values, views["indices"].values[scene.pos].astype(int)
    flat = values.ravel()
    order = np.argsort(-np.nan_to_num(np.abs(flat), nan=np.inf), kind="stable")[:TOP]
    names = [f"{indices[i // values.shape[1]]}:{i % values.shape[1]}" for i in order]
    figure = ranking(names, flat[order], scene.theme, revision=scene.key("top"), name="product")
    caption = line(f"{views['neurons'].tap} of {scene.token}", "expert:neuron", f"the {len(order)} largest of {flat.size:,}")
    return card("top-neurons", "Top neurons of the token", caption, figure, role="side")
