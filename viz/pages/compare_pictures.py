"""The pictures of a comparison: the strip of each side, one tensor of two sides with its difference, the loss of each token."""

from dataclasses import replace

import numpy as np

from model.compare import CHANGED, ONLY_A, ONLY_B, SAME, SHAPE
from model.view import View
from viz.compare_state import CompareState
from viz.figures import divergence, labels, triptych
from viz.nodes.card import Card, card, line, odd, short
from viz.pages.compare_done import Done, tap_of
from viz.theme import Theme, number

MAIN = (
    "ln1.hook_out", "attn.hook_q", "attn.hook_rot_q", "attn.hook_logits", "attn.hook_pattern", "attn.hook_z", "hook_attn_out",
    "hook_resid_mid", "ln2.hook_out", "mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post",
)  # fmt: skip
KINDS = {
    SAME: divergence.EMPTY,
    CHANGED: divergence.MOVED,
    ONLY_A: divergence.ONLY_A,
    ONLY_B: divergence.ONLY_B,
    SHAPE: divergence.SHAPE,
}
SQUARE, BUDGET = ("query_pos", "key_pos"), 96 * 96


def strip_rows(done: Done, state: CompareState) -> list[str]:
    """The tensors of a block that some side has, in the order in which they come about."""
    order: dict[str, None] = {}
    for cells in done.lock.cells:
        for name in cells:
            if name.startswith("blocks."):
                order.setdefault(name.split(".", 2)[2])
    if state.rows == "main":
        rows = [name for name in MAIN if name in order]
        return rows + ([state.tap] if state.tap in order and state.tap not in rows else [])
    return list(order)


def strip_card(done: Done, n: int, state: CompareState, theme: Theme) -> Card:
    """One side against A: relative change of every tensor and layer."""
    rows, depth, letter = strip_rows(done, state), done.lock.depth, done.letters[n]
    relative, kind = np.zeros((len(rows), depth), np.float32), np.zeros((len(rows), depth), np.uint8)
    for row, name in enumerate(rows):
        for layer in range(depth):
            cell = done.lock.cells[n - 1].get(f"blocks.{layer}.{name}")
            if cell is not None:
                relative[row, layer], kind[row, layer] = cell.relative, KINDS[cell.state]
    chosen = (rows.index(state.tap), state.layer) if state.tap in rows and n == done.nth(state) else None
    part = divergence.Strip(relative, kind, [short_name(name) for name in rows])
    looks = {"selected": chosen, "low": len(done.specs) > 2, "revision": f"strip:{len(rows)}:{depth}"}
    figure = divergence.strip(part, theme, letter=letter, **looks)
    first = done.lock.where(n)
    gaps = [f"hatched: only in {one}" for one, state_ in (("A", ONLY_A), (letter, ONLY_B)) if (kind == KINDS[state_]).any()]
    gaps += ["crosses: other shape, statistics only"] if (kind == KINDS[SHAPE]).any() else []
    words = "nothing differs: every tensor is the same, bit for bit" if first is None else f"starts at {first}"
    return card(f"strip-{letter}", f"{letter} against A", line(words, *gaps), figure, role="strip")


BRIEF = (
    ("attn.hook_", ""), ("mlp.hook_pre_linear", "up"), ("mlp.hook_pre", "gate"), ("mlp.hook_", "mlp "), (".hook_out", ""),
    ("hook_", ""),
)  # fmt: skip


def short_name(name: str) -> str:
    for long, brief in BRIEF:
        name = name.replace(long, brief)
    return name


def tensor_cards(done: Done, state: CompareState, theme: Theme) -> tuple[str, str, list[Card]]:
    """The chosen tensor of A, of the side compared with it, and their difference; its title and its caption."""
    n, tap = done.nth(state), tap_of(done, state)
    lm = next(one for one in done.lms if tap in one.tap_modules)
    module = lm.tap_modules[tap]
    dims = [axis for axis in module.dims if axis not in ("batch", "1")]
    fixed = [axis for axis in dims if axis not in ("pos", *SQUARE)][: max(len(dims) - 2, 0)]
    attn = lm.config.blocks[min(state.layer, lm.config.n_layers - 1)].attn
    group = attn.n_heads // getattr(attn, "n_kv_heads", attn.n_heads)
    at = {axis: state.head if axis == "head" else state.head // group if axis == "kv_head" else 0 for axis in fixed}
    delta = done.lock.delta(tap, tuple(at.items()), BUDGET)
    raw = state.stage == "raw" and state.tap == "attn.hook_logits"
    leaves, views = [], []
    for i, view in ((0, delta.sides[0]), (n, delta.sides[n])):
        if view is not None:
            divide = done.lms[i].config.blocks[state.layer].attn.logit_scale if raw else 1.0
            leaves.append(triptych.Leaf(done.letters[i], _flat(view) / np.float32(divide), _hidden(view)))
            views.append(view)
    change = delta.changes[n - 1]
    if change is not None:
        scale = done.lms[n].config.blocks[state.layer].attn.logit_scale if raw else 1.0
        leaves.append(triptych.Leaf(f"{done.letters[n]} − A", _flat(change) / np.float32(scale), _hidden(change), True))
    cell = done.lock.cells[n - 1].get(tap)
    where = ", ".join(f"{axis.replace('kv_head', 'KV head')} {index}" for axis, index in at.items())
    title = tap + (f" · {where}" if where else "") + (" · before the scale" if raw else "")
    gap = _gap(done, n, delta.sides[0], delta.sides[n], change)
    words = (
        f"‖{done.letters[n]} − A‖ / ‖A‖ = {number(cell.relative)}"
        if cell is not None and cell.relative == cell.relative
        else ""
    )
    same = "" if gap else "the sides share one range, the difference has its own, centred on 0"
    caption = line(f"{module.meaning}, {short(views[0].dtype)}", words, gap, same, views[0].how, *odd(views[0].stats, theme))
    fits = len({leaf.values.shape for leaf in leaves}) == 1
    if not fits:  # other shapes: each on its own axes
        found = [
            one for leaf, view in zip(leaves, views, strict=False) for one in _drawn(done, [leaf], view, state, theme, tap)
        ]
    else:
        found = _drawn(done, leaves, views[0], state, theme, tap)
    return title, caption, found


def _gap(done: Done, n: int, a: View | None, b: View | None, change: View | None) -> str:
    if a is None or b is None:
        return f"a gap: only {done.letters[n] if a is None else 'A'} has this tensor"
    if change is None:
        return f"shapes differ, {list(a.shape)} against {list(b.shape)}: no difference can be taken"
    return "" if change.stats.absmax else "the same on both sides, bit for bit"


def _drawn(done: Done, leaves, view: View, state: CompareState, theme: Theme, tap: str) -> list[Card]:
    kept = [axis for axis in view.dims if axis != "1"]
    revision = f"{tap}:{len(done.pieces[0])}"
    words = ["A", "side", "difference"]
    if len(kept) != 2:
        whole = len(leaves[0].values) == len(done.pieces[0])
        side = (
            labels.token_axis("token", done.pieces[0], most=triptych.TICKS)
            if whole
            else labels.index_axis("entry", len(leaves[0].values))
        )
        drawn = triptych.curves(leaves, side, theme, revision=revision)
        titles = [
            " and ".join(leaf.title for leaf in leaves if not leaf.difference),
            *(leaf.title for leaf in leaves if leaf.difference),
        ]
        return [
            card(f"tensor-curve-{i}", t, c, f, role="tensor") for i, ((f, c), t) in enumerate(zip(drawn, titles, strict=True))
        ]
    rows, columns = (_axis(done, view, axis) for axis in (kept if kept[0] in ("pos", *SQUARE) else kept[::-1]))
    if kept[0] not in ("pos", *SQUARE):
        leaves = [replace(leaf, values=leaf.values.T, masked=None if leaf.masked is None else leaf.masked.T) for leaf in leaves]
    drawn = triptych.maps(leaves, rows, columns, view.kind, theme, log=bool(state.log), revision=revision)
    names = [words[2] if leaf.difference else "A" if leaf.title == "A" else words[1] for leaf in leaves]
    return [
        card(f"tensor-{name}", leaf.title, note, figure, role="tensor")
        for name, leaf, (figure, note) in zip(names, leaves, drawn, strict=True)
    ]


def _axis(done: Done, view: View, axis: str) -> labels.Axis:
    first = view.coords[view.dims.index(axis)]
    name = {"query_pos": "query", "key_pos": "key", "pos": "token"}.get(axis, axis)
    if axis in ("pos", *SQUARE) and len(done.pieces[0]) > 1 and (first[-1] > 0 or len(first) > 1):
        return labels.token_axis(name, done.pieces[0], first, most=triptych.TICKS)
    size = int(first[-1]) + (int(first[1] - first[0]) if len(first) > 1 else 1)
    return labels.index_axis(name, size, first)


def _flat(view: View) -> np.ndarray:
    return view.values.reshape([n for n, axis in zip(view.values.shape, view.dims, strict=True) if axis != "1"])


def _hidden(view: View) -> np.ndarray | None:
    return None if view.masked is None else view.masked.reshape(_flat(view).shape)


def late_card(done: Done, theme: Theme) -> Card:
    """Per-token loss of every side, and the KL of each prediction."""
    found = done.losses
    figure = triptych.losses(found.loss, found.kl, done.letters, done.pieces[0], theme, revision=f"loss:{len(done.pieces[0])}")
    means = (
        ", ".join(f"{c} {np.nanmean(found.loss[i]):.3f}" for i, c in enumerate(done.letters))
        if found.loss.size
        else "one token"
    )
    no_kl = "" if found.kl is not None else "no KL: the sides do not share a vocabulary"
    return card(
        "losses", "Loss of each token", line(f"−log p of the token that came, mean {means}", no_kl), figure, role="late"
    )
