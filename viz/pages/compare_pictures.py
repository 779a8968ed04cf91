"""The pictures of a whole comparison: the strip of each side, and the loss of each token."""

import numpy as np

from model.compare import CHANGED, ONLY_A, ONLY_B, PLACE, SAME, SHAPE
from viz.compare_state import CompareState
from viz.figures import divergence, triptych
from viz.nodes.card import Card, card, line
from viz.pages.compare_done import Done
from viz.theme import Theme

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
    PLACE: divergence.PLACE,
}


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
    sizes = np.full((len(rows), depth, 2), np.nan, np.float32)
    for row, name in enumerate(rows):
        for layer in range(depth):
            cell = done.lock.cells[n - 1].get(f"blocks.{layer}.{name}")
            if cell is not None:
                relative[row, layer], kind[row, layer], sizes[row, layer] = cell.relative, KINDS[cell.state], cell.rms
    chosen = (rows.index(state.tap), state.layer) if state.tap in rows and n == done.nth(state) else None
    part = divergence.Strip(relative, kind, [short_name(name) for name in rows], sizes)
    looks = {"selected": chosen, "low": len(done.specs) > 2, "revision": f"strip:{len(rows)}:{depth}"}
    figure = divergence.strip(part, theme, letter=letter, **looks)
    first = done.lock.where(n)
    gaps = [f"hatched: only in {one}" for one, state_ in (("A", ONLY_A), (letter, ONLY_B)) if (kind == KINDS[state_]).any()]
    for state_, why in ((SHAPE, "other shape"), (PLACE, "another place in the block")):
        gaps += [f"crosses: {why}, statistics only"] if (kind == KINDS[state_]).any() else []
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


def a_character(done: Done) -> tuple[list[float], tuple[int, int]]:
    """Of sides that cut the text differently: each side's loss of a character over one span, which all predict, and the span.

    It starts where all have first read the same characters: what a side reads before has no prediction on it or on another.
    """
    ends, at = done.lock.ends, [[int(i) for i in own] for own in done.lock.at]
    start, stop = ends[0][at[0][0]], ends[0][at[0][-1]]
    if stop <= start:
        return [], (start, stop)
    sums = [float(loss[own[0] : own[-1]].sum()) for loss, own in zip(done.losses.loss, at, strict=True)]
    return [total / (stop - start) for total in sums], (start, stop)


def chance(done: Done) -> str:
    """What guessing gives, where a side has random weights: nobody trained them, so their loss says nothing of the design."""
    by_size: dict[int, list[str]] = {}
    for letter, lm in zip(done.letters, done.lms, strict=True):
        if lm.random:
            by_size.setdefault(lm.config.d_vocab, []).append(letter)
    said = [f"{', '.join(who)}: random weights, chance gives ln {n:,} = {np.log(n):.3f}" for n, who in by_size.items()]
    return "; ".join(said)


def late_card(done: Done, theme: Theme) -> Card:
    """Per-token loss of every side, and the KL of each prediction; of sides that cut the text differently, by character."""
    found, ends = done.losses, done.lock.ends
    places = None if ends is None else [np.interp(own, ends[0], np.arange(len(ends[0]))) for own in ends]
    figure = triptych.losses(
        found.loss, found.kl, done.letters, done.pieces[0], theme, revision=f"loss:{len(done.pieces[0])}", places=places
    )
    if not found.loss.size:
        means = "one token"
    elif ends is None:
        means = "mean " + ", ".join(f"{c} {np.nanmean(found.loss[i]):.3f}" for i, c in enumerate(done.letters))
    else:
        each, (start, stop) = a_character(done)
        means = "a character " + ", ".join(f"{c} {x:.3f}" for c, x in zip(done.letters, each, strict=True))
        means = means + f" over characters {start + 1} to {stop}, which every side predicts" if each else "no common character"
    no_kl = "" if found.kl is not None else "no KL: the sides do not share a vocabulary"
    placed = "" if ends is None else "each token of the others stands where it ends in the text of A"
    words = line(f"−log p of the token that came, {means}", chance(done), no_kl, placed)
    return card("losses", "Loss of each token", words, figure, role="late")
