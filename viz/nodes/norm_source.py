"""Where a norm stands and what it reads: a tap, or for a norm on the stream the sum of two."""

from dataclasses import replace

import numpy as np

from model.view import Request, View
from viz.nodes.card import WHOLE, Scene
from viz.nodes.qk import kind_of
from viz.nodes.square import signed_peak

PLACES = {  # (wiring, norm), "" for every other wiring
    ("", "ln1"): "before attention",
    ("", "ln2"): "before the MLP",
    ("", "ln1_post"): "on attention's output",
    ("", "ln2_post"): "on the MLP's output",
    ("", "attn.q_norm"): "on the query latent",
    ("", "attn.kv_norm"): "on the key and value latent",
    ("Parallel", "ln1"): "before attention and MLP",
    ("PostNorm", "ln1"): "after attention is added",
    ("PostNorm", "ln2"): "after the MLP is added",
}
READS = {  # as above -> the taps whose sum the norm reads
    ("", "ln1"): ("hook_resid_pre",),
    ("", "ln2"): ("hook_resid_mid",),
    ("", "ln1_post"): ("attn.hook_module_out",),
    ("", "ln2_post"): ("mlp.hook_module_out",),
    ("", "attn.q_norm"): ("attn.hook_q_latent",),
    ("", "attn.kv_norm"): ("attn.hook_kv_latent",),
    ("PostNorm", "ln1"): ("hook_resid_pre", "hook_attn_out"),
    ("PostNorm", "ln2"): ("hook_resid_mid", "hook_mlp_out"),
}


def place(scene: Scene, name: str) -> str:
    """Where the norm at this path of the block stands, in words."""
    return PLACES.get((kind_of(scene.block), name)) or PLACES.get(("", name), name)


def wanted(scene: Scene, name: str) -> dict[str, Request]:
    """What the norm reads of the chosen token, whole; nothing where that has no name."""
    taps = READS.get((kind_of(scene.block), name)) or READS.get(("", name), ())
    taps = taps if all(tap in scene.block_taps for tap in taps) else ()
    return {f"read{i}": Request(scene.tap(tap), select=(("pos", scene.pos),), budget=WHOLE) for i, tap in enumerate(taps)}


def read(views: dict[str, View]) -> View | None:
    """The sum of the views that `wanted` asked for [d]."""
    parts = [view for name, view in views.items() if name.startswith("read")]
    if not parts:
        return None
    with np.errstate(invalid="ignore"):  # infinities of both signs
        values = sum(part.values for part in parts)
    return replace(parts[0], values=values, tap=" + ".join(part.tap if not i else _leaf(part) for i, part in enumerate(parts)))


def _leaf(view: View) -> str:
    return view.tap.split(".", 2)[-1]


def like(view: View, other: View) -> View:
    """A whole vector with its peaks kept in the same blocks as `other`."""
    first = other.coords[0]
    if len(first) == len(view.values):
        return view
    values = np.array([signed_peak(block, 0) for block in np.split(view.values, first[1:])], np.float32)
    return replace(view, values=values, coords=other.coords, how=other.how)
