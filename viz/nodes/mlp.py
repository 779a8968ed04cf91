"""The gated MLP: its neurons per token, in their own order or the strongest first."""

import numpy as np

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.nodes import gates
from viz.nodes.card import WHOLE, Asking, Card, Scene, card
from viz.nodes.square import signed_peak

CELLS = 16_384  # of a map
COLUMNS = 128  # neurons of a sorted map


def neurons(scene: Scene, name: str) -> Asking:
    """Cards of one of the tensors [pos, d_mlp] of an MLP."""
    tap = scene.tap(name)
    whole = scene.state.neurons == "sorted" and fits(scene)
    views = yield {
        "map": Request(tap, budget=2 * WHOLE if whole else CELLS),
        "peaks": Request(tap, "absmax", ("pos",)),
        **gates.wanted(scene, name.rpartition(".")[0]),
    }
    if scene.state.neurons == "sorted":
        drawn = yield from ranked(scene, name, views["map"], views["peaks"].values)
    else:
        drawn = in_order(scene, name, views["map"])
    return [drawn, *gates.cards(scene, views)]


def fits(scene: Scene) -> bool:
    """Whether a whole [pos, d_mlp] tensor may be read at once."""
    return len(scene.tokens) * gates.width(scene) <= 2 * WHOLE


def in_order(scene: Scene, name: str, view: View) -> Card:
    """Tokens x neurons in their own order, peaks kept."""
    columns = labels.index_axis("neuron", gates.width(scene), view.coords[1])
    return _map(scene, name, view, view.values, view.coords[0], columns, view.how)


def ranked(scene: Scene, name: str, view: View, peaks: np.ndarray) -> Asking:
    """The neurons with the largest |x| over all tokens, strongest first; read one by one where the whole does not fit."""
    most = min(len(peaks), COLUMNS)
    order = np.argsort(-np.nan_to_num(peaks, nan=np.inf), kind="stable")[:most]
    if fits(scene):
        values = view.values[:, order]
    else:
        tap = scene.tap(name)
        singles = yield {f"n{i}": Request(tap, select=(("d_mlp", int(i)),), budget=WHOLE) for i in order}
        values = np.stack([single.values for single in singles.values()], axis=1)
    step = -(-values.size // CELLS)
    first = np.arange(0, len(values), step)
    values = np.stack([signed_peak(rows, 0) for rows in np.split(values, first[1:])]) if step > 1 else values
    marked = np.arange(0, most, -(-most // 16))
    title, ends = "neuron, strongest first", (-0.5, most - 0.5)
    columns = labels.Axis("rank", np.arange(most, dtype=np.float32), ends, marked, [str(order[i]) for i in marked], title)
    how = f"the {most} neurons with the largest |x|, strongest first" + (
        f", largest |x| of every {step} tokens" if step > 1 else ""
    )
    return _map(scene, name, view, values, first, columns, how)


def _map(scene: Scene, name: str, view: View, values: np.ndarray, first: np.ndarray, columns: labels.Axis, how: str) -> Card:
    rows = labels.token_axis("token", scene.pieces, first)
    colour = colours.signed(values, scene.theme, scene.log)
    figure = matrix(
        values, rows, columns, colour, scene.theme, revision=scene.key(f"{name}:{scene.state.neurons}"),
        row=scene.pos, click=("token", "y"), height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    leaf, act = name.rpartition(".")[2], f"{gates.symbol(scene)}(gate)"
    gated = f"{name.rpartition('.')[0]}.hook_act" in scene.block_taps
    titles = {"hook_pre": "Gate, before the activation", "hook_pre_linear": "Up", "hook_act": act, "hook_post": f"{act} × up"}
    plain = {"hook_pre": "Neurons, before the activation", "hook_post": "Neurons, after the activation"}
    title = f"{(titles if gated else plain).get(leaf, leaf)} · layer {scene.layer}"
    return card(f"neurons-{name}", title, scene.caption(view, colour.note, how=how), figure, role="main")
