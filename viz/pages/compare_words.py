"""The words and tables of a comparison: next tokens, what changed, identities on both sides, the blocks node by node."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from model.block import BlockConfig
from model.compare import CHANGED, ONLY_A, ONLY_B, PLACE, SAME, SHAPE, Cell, Lockstep
from model.counting import count_config
from viz.compare_state import CompareState
from viz.nodes.card import short
from viz.pages.blocks import block_nodes
from viz.pages.compare_done import Done
from viz.pages.compare_tensor import bound
from viz.pages.quick import QUICK
from viz.pairs import draw_pair
from viz.theme import Theme, count, number


def nexts(done: Done) -> list[dict]:
    """The next tokens of each side, or the sentence that says why there are none."""
    told = []
    for letter, outcome in zip(done.letters, done.outcomes, strict=True):
        if isinstance(outcome, str):
            told.append({"letter": letter, "wrong": outcome})
        else:
            top = [[piece, f"{p:.3f}" if p >= 0.0005 else "<0.001", p] for _, piece, p in outcome.top]
            kl = None if outcome.kl is None else f"{outcome.kl:.3g}" if outcome.kl else "0"
            told.append({"letter": letter, "top": top, "kl": kl, "entropy": f"{outcome.entropy:.2f}"})
    return told


def table(done: Done) -> dict:
    """What changed, a row a quantity and a column a side."""
    lms, lock = done.lms, done.lock
    counts = [count_config(lm.config) for lm in lms]
    first = counts[0].parameters
    formats = [short(str(lm.dtype).removeprefix("torch.")) for lm in lms]
    kept = [_bytes(c.kv_bytes_per_token(lm.dtype.itemsize)) for c, lm in zip(counts, lms, strict=True)]
    one = len(set(formats)) == 1
    kept = kept if one else [f"{size} {name}" for size, name in zip(kept, formats, strict=True)]
    rows = [
        [f"largest |logit|{_ran(lock)}", *map(number, highest(lock))],
        ["parameters", f"{first:,}", *(f"{c.parameters - first:+,}".replace("-", "−") for c in counts[1:])],
        [f"KV cache / token{', ' + formats[0] if one else ''}", *kept],
        ["layers × width", *(f"{lm.config.n_layers} × {lm.config.d_model}" for lm in lms)],
    ]
    return {"columns": ["", *done.letters], "rows": rows}


def _ran(lock: Lockstep) -> str:
    """Which layers were run on every side, where those above the first difference were not."""
    last = lock.depth - 1
    return "" if lock.begin <= 0 else f", layers {lock.begin}–{last}" if lock.begin < last else f", layer {last}"


def highest(lock: Lockstep) -> list[float]:
    """Each side's own largest |logit| over all that it sees; where a side shares A's layers, A's counts for it."""
    peaks: list[dict[int, float]] = [{} for _ in lock.sides]
    for n, cells in enumerate(lock.cells, 1):
        for name, cell in cells.items():
            if name.endswith("attn.hook_logits"):
                layer = int(name.split(".")[1])
                for side, own in zip((0, n), cell.own, strict=True):
                    peaks[side] |= {layer: own} if own == own else {}
    for n, own in enumerate(peaks):
        own |= {layer: peak for layer, peak in peaks[0].items() if layer < lock.first[n]}
    return [max(own.values(), default=float("nan")) for own in peaks]


def _bytes(n: int) -> str:
    return f"{n:,} B" if n < 10_000 else f"{n / 1000:,.1f} kB"


def starts(done: Done) -> list[list[str]]:
    return [[letter, done.lock.where(n) or "nothing differs"] for n, letter in enumerate(done.letters) if n]


def identities(done: Done, state: CompareState, theme: Theme) -> list[dict]:
    """The equations of the chosen layer on both sides, what stands above the change, and the bound that QK-norm sets."""
    n, lock = done.nth(state), done.lock
    told = []
    if lock.first[n] > 0:
        told.append(
            {
                "name": f"nothing differs above layer {lock.first[n]}",
                "holds": True,
                "value": "0",
                "note": "one computation, run once",
            }
        )
    ours, theirs = ({i.formula: i for i in lock.identities(side, state.layer)} for side in (0, n))
    for formula in dict.fromkeys([*ours, *theirs]):
        pair = [side.get(formula) for side in (ours, theirs)]
        who = "A, " + done.letters[n] if all(pair) else "A" if pair[0] else done.letters[n]
        value = " · ".join(_residual(i.residual) for i in pair if i)
        told.append(
            {
                "name": f"{formula} ({who})",
                "holds": all(i.holds for i in pair if i),
                "value": value,
                "note": next(i.note for i in pair if i),
            }
        )
    for side in dict.fromkeys((0, n)):
        told += _bound(done, side, n, state, theme)
    return told


def _bound(done: Done, side: int, n: int, state: CompareState, theme: Theme) -> list[dict]:
    """Whether every head's logits of this layer stay under the largest of their bounds."""
    lm = done.lms[side]
    cell = done.lock.cells[n - 1].get(f"blocks.{state.layer}.attn.hook_logits")
    heads = range(lm.config.blocks[state.layer].attn.n_heads) if state.layer < lm.config.n_layers else ()
    found = [bound(done, side, replace(state, head=head, stage="scaled"), theme) for head in heads]
    if cell is None or not found or None in found:
        return []
    highest, formula = max(found)
    peak = cell.own[0 if side == 0 else 1]
    return [
        {
            "name": f"{done.letters[side]} logits under the bound {number(highest)}",
            "holds": bool(peak <= highest * (1 + 1e-4)),
            "value": f"max {number(peak)}",
            "note": formula,
        }
    ]


def _residual(x: float) -> str:
    return "0" if x == 0 else "—" if x != x else f"{x:.0e}".replace("e-0", "e-")


@lru_cache(maxsize=64)
def _pair(a: BlockConfig, b: BlockConfig) -> tuple[str, str]:
    return draw_pair(block_nodes(a), block_nodes(b))


def diagrams(done: Done, state: CompareState) -> list[dict]:
    """The block of both sides at the chosen layer, row by row; each node says how far it moved, or that it stands alone."""
    n, told = done.nth(state), []
    cells, here = done.lock.cells[n - 1], f"blocks.{state.layer}."
    blocks = {side: done.lms[side].config.blocks[state.layer : state.layer + 1] for side in (0, n)}
    there = [found[0] for found in blocks.values() if found]
    drawn = _pair(there[0], there[-1])
    for side, found in blocks.items():
        letter = done.letters[side]
        if not found:
            depth = done.lms[side].config.n_layers
            told.append({"letter": letter, "missing": f"{letter} has {count(depth, 'layer')} and none of this number"})
            continue
        nodes = {}
        for node in block_nodes(found[0]):
            taps = [tap for tap in node.shown if here + tap in cells] or [tap for tap in node.taps if here + tap in cells]
            moved = EMPTY if node.off else _moved({tap: cells[here + tap] for tap in taps}, letter)
            nodes[node.id] = {"taps": node.shown or node.taps, **moved}
        told.append({"letter": letter, "svg": drawn[side > 0], "nodes": nodes})
    return told


EMPTY = {"kind": "same", "words": "", "said": "an empty slot", "open": ""}
ORDER = (SAME, ONLY_A, ONLY_B, PLACE, CHANGED, SHAPE)  # of several tensors of one node the last is told


def _moved(cells: Mapping[str, Cell], letter: str) -> dict:
    """What stands on a node, which tensor that is and which a click opens, and the same of each of its tensors in words."""
    words = {tap: _word(cell, letter) for tap, cell in cells.items()}
    said = "; ".join(f"{tap}: {word}" for tap, word in words.items())
    if not cells:
        return {"kind": "same", "words": "shared", "said": "shared", "open": ""}
    most = max(cells, key=lambda tap: (ORDER.index(cells[tap].state), _size(cells[tap])))
    cell, word = cells[most], words[most]
    kind = "only" if cell.state in (ONLY_A, ONLY_B, PLACE) else "same" if cell.state == SAME else "moved"
    whose = f"{_which(most)} " if len(cells) > 1 and cell.state == CHANGED else ""
    return {"kind": kind, "words": whose + word, "said": said, "open": most}


def _size(cell: Cell) -> float:
    return cell.relative if cell.relative == cell.relative else float("inf")


def _which(tap: str) -> str:
    """ "attn.hook_rot_k" -> "k": of several tensors of one node the one that is meant."""
    found = re.search(r"(?:rot_|\.)([qkv])(?:_|$)", tap)
    return found[1] if found else tap.rpartition("hook_")[2]


def _word(cell: Cell, letter: str) -> str:
    fixed = {ONLY_A: f"only in {letter}", ONLY_B: f"only in {letter}", SHAPE: "other shape", PLACE: "other place"}
    return fixed.get(cell.state) or f"Δ {number(cell.relative)}"


def quick_list(shelf: Any, model: str) -> list[dict]:
    """Every entry of the one-click list, with the sentence that says why this model cannot be compared so."""
    told = []
    for name, quick in QUICK.items():
        entry = {"id": name, "label": quick.label, "title": quick.title, "tap": quick.tap, "wrong": ""}
        if shelf.ready(model):
            try:
                quick.sides(shelf.model(model), shelf.names)
            except Exception as error:  # an unfit model: the entry is shown and says why
                entry["wrong"] = str(error)
        told.append(entry)
    return told
