"""Any tensor that has no picture of its own: two of its axes as a map, the others fixed at their first entry."""

from model.view import Request, View
from viz.figures import colours, labels
from viz.figures.colours import Colour
from viz.figures.heat import matrix
from viz.figures.labels import Axis
from viz.figures.stack import Panel, Series, stack
from viz.nodes.card import Asking, Card, Scene, card, line, odd_values, short

TOKENS = ("pos", "query_pos", "key_pos")
TITLES = {"attn.temperature.hook_scale": "Temperature: the factor on each query"}


def tensor(scene: Scene, name: str) -> Asking:
    """One card of a tap of any shape."""
    tap = scene.tap(name)
    dims = [axis for axis in scene.taps[tap].dims if axis not in ("batch", "1")]
    fixed = [axis for axis in dims if axis not in TOKENS][: max(len(dims) - 2, 0)]
    at = {axis: scene.head if axis == "head" else 0 for axis in fixed}
    view = (yield {"view": Request(tap, select=tuple(at.items()))})["view"]
    values, kept = view.values, [axis for axis in view.dims if axis != "1"]
    values = values.reshape([n for n, axis in zip(values.shape, view.dims, strict=True) if axis != "1"])
    if kept and kept[-1] in TOKENS and len(kept) == 2:
        values, kept = values.T, kept[::-1]
    title = f"{TITLES.get(name, name.replace('hook_', ''))} · layer {scene.layer}"
    where = ", ".join(f"{axis} {index}" for axis, index in at.items())
    if len(kept) != 2:
        return [_curve(scene, title, view, values.ravel(), where)]
    rows, columns = (_axis(scene, view, axis) for axis in kept)
    colour = _colour(scene, view)
    by_token = kept[0] in TOKENS
    figure = matrix(
        values, rows, columns, colour, scene.theme, revision=scene.key(name),
        row=scene.pos if by_token else None, click=("token", "y") if by_token else None,
        height=110 + min(max(22 * rows.cells, 110), 440),
    )  # fmt: skip
    return [card(f"tensor-{name}", title, scene.caption(view, where, colour.note), figure, role="main")]


def _curve(scene: Scene, title: str, view: View, values, where: str) -> Card:
    side = labels.token_axis("token", scene.pieces, most=labels.TICKS_ACROSS)
    if len(values) != len(scene.pieces):
        side = labels.index_axis("entry", len(values))
    series = Series(view.tap.rpartition(".")[2], values, scene.theme.faint, "bar")
    figure = stack([Panel("", [series])], side, scene.theme, revision=scene.key(view.tap), height=260)
    meaning = scene.taps[view.tap].meaning
    caption = line(f"{view.tap} ({meaning}), {short(view.dtype)}", view.how, where, *odd_values(values))
    return card(f"tensor-{view.tap}", title, caption, figure, role="main")


def _axis(scene: Scene, view: View, axis: str) -> Axis:
    sizes = dict(zip(scene.taps[view.tap].dims, view.shape, strict=True))
    first = view.coords[view.dims.index(axis)]
    if axis in TOKENS:
        return labels.token_axis("token", scene.pieces, first)
    return labels.index_axis(axis, sizes[axis], first)


def _colour(scene: Scene, view: View) -> Colour:
    """By what the tap says of its numbers: signed, a probability, or positive."""
    if view.kind == "signed":
        return colours.signed(view.values, scene.theme, scene.log)
    if view.kind == "probability":
        return colours.probability(scene.theme, scene.log)
    return colours.sequential(view.values, scene.theme, scene.log)
