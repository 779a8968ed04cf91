"""One tensor of every side in one colour range, what each differs from A by, and for logits how high they reach."""

import numpy as np

from model.compare import PLACE, Delta
from model.view import View
from viz.compare_state import CompareState
from viz.figures import labels, triptych
from viz.figures.stack import Panel, Series, stack
from viz.nodes import qk
from viz.nodes.attention import STAGES
from viz.nodes.card import Card, Scene, card, line, odd, short
from viz.pages.compare_done import Done, tap_of
from viz.state import UiState
from viz.theme import Theme, count, number

SQUARE, BUDGET = ("query_pos", "key_pos"), 96 * 96
TOKENS = ("pos", *SQUARE)
LOGITS = ("attn.hook_logits", "attn.hook_capped", "attn.hook_attn_scores")
CAPPED = LOGITS[1:]
NEAR = 4  # a bound this many times above all curves is told and not drawn: it would press them flat


def tensor_cards(done: Done, state: CompareState, theme: Theme) -> tuple[str, str, list[Card]]:
    """The chosen tensor of every side and its difference from A's, with its title and its caption."""
    tap, raw = tap_of(done, state), state.stage == "raw" and state.tap == "attn.hook_logits"
    having = [n for n, lm in enumerate(done.lms) if tap in lm.tap_modules]
    module = done.lms[having[0]].tap_modules[tap]
    dims = [axis for axis in module.dims if axis not in ("batch", "1")]
    fixed = [axis for axis in dims if axis not in TOKENS][: max(len(dims) - 2, 0)]
    at = [{axis: _index(done, n, axis, state) for axis in fixed} for n in range(len(done.lms))]
    delta = done.lock.delta(tap, [tuple(one.items()) for one in at], BUDGET)
    leaves, cards = _leaves(done, state, delta, raw), []
    cards += _drawn(done, leaves, delta.sides[having[0]], state, theme, tap)
    cards += [_gap(done, n, tap) for n in range(len(done.lms)) if delta.sides[n] is None]
    cards.sort(key=_place)
    if state.tap in LOGITS:
        cards.append(_reach(done, state, delta, raw, theme))
    title = tap + _where(done, at, having) + (" · before the scale" if raw else "")
    return title, _caption(done, tap, delta, having, at, theme), cards


def _place(one: Card) -> tuple[bool, str]:
    return one.id.startswith("delta"), one.id


def _index(done: Done, n: int, axis: str, state: CompareState) -> int:
    """The chosen head on an axis of heads, the KV head that it reads on one of KV heads, else the first entry."""
    config = done.lms[n].config
    attn = config.blocks[min(state.layer, config.n_layers - 1)].attn
    kv = state.head // (attn.n_heads // getattr(attn, "n_kv_heads", attn.n_heads))
    return {"head": state.head, "kv_head": kv}.get(axis, 0)


def _where(done: Done, at: list[dict], having: list[int]) -> str:
    said = []
    for axis in at[0]:
        found = {n: at[n][axis] for n in having}
        name = axis.replace("kv_head", "KV head")
        if len(set(found.values())) == 1:
            said.append(f"{name} {found[having[0]]}")
        else:
            said.append(f"{name} " + ", ".join(f"{i} of {done.letters[n]}" for n, i in found.items()))
    return f" · {', '.join(said)}" if said else ""


def _scale(done: Done, n: int, state: CompareState) -> float:
    return done.lms[n].config.blocks[state.layer].attn.logit_scale


def _leaves(done: Done, state: CompareState, delta: Delta, raw: bool) -> list[triptych.Leaf]:
    """A picture for each side that has the tensor, and for each later one that A's can be taken from."""
    leaves = {}
    for n, view in enumerate(delta.sides):
        if view is not None:
            values = _flat(view) / np.float32(_scale(done, n, state) if raw else 1.0)
            leaves[n] = triptych.Leaf(done.letters[n], values, _hidden(view), _axes(done, n, view))
    found = list(leaves.values())
    for n, change in enumerate(delta.changes, 1):
        if change is None:
            continue
        own = leaves[n].values - leaves[0].values if raw else _flat(change)  # before the scale each side has its own
        found.append(triptych.Leaf(f"{done.letters[n]} − A", own, _hidden(change), _axes(done, n, change), True))
    return found


def _caption(done: Done, tap: str, delta: Delta, having: list[int], at: list[dict], theme: Theme) -> str:
    """What the tensor is, how far each side moved, where it cannot be compared, and what was reduced."""
    view = delta.sides[having[0]]
    moved = [_apart(done, n, tap, delta, at[n]) for n in range(1, len(done.lms))]
    gaps = [_why_not(done, n, tap, delta) for n in range(1, len(done.lms))]
    ranges = "sides share one range, differences another, centred on 0" if any(c is not None for c in delta.changes) else ""
    module = done.lms[having[0]].tap_modules[tap]
    what = f"{module.meaning}, {short(view.dtype)}"
    return line(what, ", ".join(filter(None, moved)), *filter(None, gaps), ranges, view.how, *odd(view.stats, theme))


def _apart(done: Done, n: int, tap: str, delta: Delta, at: dict[str, int]) -> str:
    """How far one side moved: in the part that is shown, where that can be said, and over the whole tensor."""
    change, cell, letter = delta.changes[n - 1], done.lock.cells[n - 1].get(tap), done.letters[n]
    axes = [axis.replace("kv_head", "KV head") for axis in at]
    part = f"in {', '.join(f'{axis} {i}' for axis, i in zip(axes, at.values(), strict=True))}" if at else ""
    whole = f"over all {axes[0]}s" if len(axes) == 1 else "over the whole tensor" if axes else ""
    known = cell is not None and cell.relative == cell.relative
    if change is not None and not change.stats.absmax and not change.stats.nan:
        same = " ".join(filter(None, [letter, "the same", part])) + ", bit for bit"
        return f"{same} ({number(cell.relative)} {whole})" if part and known and cell.relative else same
    if not known:
        return ""
    said = f"‖{letter} − A‖ / ‖A‖ = "
    if not part:
        return said + number(cell.relative)
    a = delta.sides[0]
    if change is None or a is None or change.stats.finite != a.stats.finite or not a.stats.rms:  # another mask, say
        return f"{said}{number(cell.relative)} {whole}"
    return f"{said}{number(change.stats.rms / a.stats.rms)} {part}, {number(cell.relative)} {whole}"


def _why_not(done: Done, n: int, tap: str, delta: Delta) -> str:
    """Why there is no difference to draw, where both have the tensor."""
    one, two, cell = delta.sides[0], delta.sides[n], done.lock.cells[n - 1].get(tap)
    if delta.changes[n - 1] is not None or one is None or two is None:
        return ""
    rms = f"so statistics only: rms {number(one.stats.rms)} and {number(two.stats.rms)}"
    if cell is not None and cell.state == PLACE:
        return f"{done.letters[n]}: a norm of the same name at another place in the block, {rms}"
    return f"{done.letters[n]}: shapes differ, {list(one.shape[1:])} against {list(two.shape[1:])}, {rms}"


def _gap(done: Done, n: int, tap: str) -> Card:
    config = done.lms[n].config
    few = tap.startswith("blocks.") and int(tap.split(".")[1]) >= config.n_layers
    why = f"a gap: this side has {count(config.n_layers, 'layer')}" if few else "a gap: this side has no such tensor"
    return card(f"tensor-{done.letters[n]}", done.letters[n], why, role="tensor")


def _drawn(done: Done, leaves: list[triptych.Leaf], view: View, state: CompareState, theme: Theme, tap: str) -> list[Card]:
    looks = {"revision": f"{tap}:{len(done.pieces[0])}"}
    if len(leaves[0].axes) == 1:
        drawn = triptych.curves(leaves, theme, **looks)
        sides = " and ".join(leaf.title for leaf in leaves if not leaf.difference)
        titles = [sides, *(leaf.title for leaf in leaves if leaf.difference)]
        found = zip(titles, drawn, strict=True)
        return [card(f"{'delta' if i else 'tensor'}-curve-{i}", title, note, figure, role="tensor")
                for i, (title, (figure, note)) in enumerate(found)]  # fmt: skip
    drawn = triptych.maps(leaves, view.kind, theme, log=bool(state.log), **looks)
    return [
        card(f"{'delta' if leaf.difference else 'tensor'}-{leaf.title[0]}", leaf.title, note, figure, role="tensor")
        for leaf, (figure, note) in zip(leaves, drawn, strict=True)
    ]


def _axes(done: Done, n: int, view: View) -> tuple[labels.Axis, ...]:
    """Rows and columns of a picture (tokens down), or the one axis of a vector."""
    kept = [axis for axis in view.dims if axis != "1"]
    axes = [_axis(done, n, view, axis) for axis in kept]
    return tuple(axes if len(kept) < 2 or kept[0] in TOKENS else axes[::-1])


def _axis(done: Done, n: int, view: View, axis: str) -> labels.Axis:
    first = view.coords[view.dims.index(axis)]
    name = {"query_pos": "query", "key_pos": "key", "pos": "token"}.get(axis, axis)
    pieces = done.pieces[n]
    if axis in TOKENS and len(pieces) > 1 and (first[-1] > 0 or len(first) > 1):
        return labels.token_axis(name, pieces, first, most=triptych.TICKS)
    size = int(first[-1]) + (int(first[1] - first[0]) if len(first) > 1 else 1)
    return labels.index_axis(name, size, first)


def _turned(view: View) -> bool:
    kept = [axis for axis in view.dims if axis != "1"]
    return len(kept) == 2 and kept[0] not in TOKENS


def _flat(view: View) -> np.ndarray:
    values = view.values.reshape([n for n, axis in zip(view.values.shape, view.dims, strict=True) if axis != "1"])
    return values.T if _turned(view) else values


def _hidden(view: View) -> np.ndarray | None:
    if view.masked is None:
        return None
    return view.masked.T if _turned(view) else view.masked.reshape(_flat(view).shape)


# ---- how high logits reach -----------------------------------------------------------------------------------------


def _reach(done: Done, state: CompareState, delta: Delta, raw: bool, theme: Theme) -> Card:
    """The largest |logit| of each query on every side, under the bound that QK-norm's gains or a soft-cap set."""
    series, bounds, said = [], {}, []
    for n, view in enumerate(delta.sides):
        if view is None:
            continue
        scale = np.float32(_scale(done, n, state) if raw else 1.0)
        values = np.abs(_flat(view) / scale)
        seen = values if view.masked is None else np.where(view.masked, -1.0, values)
        series.append(Series(done.letters[n], seen.max(-1), triptych.shade(theme, n), at=_axes(done, n, view)[0].centres))
        if (found := bound(done, n, state, theme)) is not None:
            height, formula = found[0] / float(scale), found[1] + (" / scale" if raw else "")
            bounds.setdefault((round(height, 6), formula), []).append(done.letters[n])
    lines, top = [], max((float(np.nanmax(one.values)) for one in series if np.isfinite(one.values).any()), default=0.0)
    for (height, formula), letters in bounds.items():
        who, near = ", ".join(letters), height <= NEAR * top
        if near:
            lines.append((height, f"bound of {who}: {number(height)}"))
        far = "" if near else f", {number(height / top)} times the largest here: not drawn" if top else ": not drawn"
        said.append(f"{'dashed: ' if near else ''}{who} cannot pass {formula}{far}")
    missing = [s.name for s in series if not any(s.name in letters for letters in bounds.values())]
    said += [f"nothing bounds {', '.join(missing)}"] if missing else []
    side = next(_axes(done, n, view)[0] for n, view in enumerate(delta.sides) if view is not None)
    figure = stack(
        [Panel("largest |logit|", series, lines=lines)], side, theme, revision=f"reach:{len(done.pieces[0])}",
        height=230, legend=True,
    )  # fmt: skip
    head = f"of each query, head {state.head} of layer {state.layer}" + (", before the scale" if raw else "")
    return card("reach", "How high the logits reach", line(head, *said), figure, role="tensor")


def bound(done: Done, n: int, state: CompareState, theme: Theme) -> tuple[float, str] | None:
    """What one side's logits of this head cannot pass, whatever the prompt, and the formula; None where nothing bounds them."""
    lm = done.lms[n]
    if state.layer >= lm.config.n_layers:
        return None
    scene = Scene.of(lm, done.lock.ids[n][0].tolist(), UiState(layer=state.layer, head=state.head), theme)
    cap = getattr(scene.attn, "softcap", None)
    if cap is not None and STAGES[state.stage].tap in CAPPED:
        return float(cap), f"the soft-cap {number(float(cap))}"
    if not qk.bounded(scene):
        return None
    bounds, formula = qk.bounds(scene, qk.gains(scene, scene.attn.qk_norm_over))
    return float(bounds[scene.head]), formula
