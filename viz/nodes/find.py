"""From a node of the diagram to what it shows: its kind and its tap, by axis names, so that it holds for any block."""

from collections.abc import Mapping
from typing import Any

LEAVES = {  # nodes that exist in many architectures -> the last word of the tap they show
    "resid_pre": "hook_resid_pre",
    "q": "hook_q",
    "k": "hook_k",
    "v": "hook_v",
    "logits": "hook_logits",
    "pattern": "hook_pattern",
    "z": "hook_z",
    "attn_out": "hook_attn_out",
    "resid_mid": "hook_resid_mid",
    "gate": "hook_pre",
    "up": "hook_pre_linear",
    "act": "hook_act",
    "post": "hook_post",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
}

BY_AXES = {  # axes of a tensor, batch left out -> the kind of node that draws it
    ("pos", "d_model"): "stream",
    ("pos", "head", "d_head"): "heads",
    ("pos", "kv_head", "d_head"): "heads",
    ("key_pos", "head", "d_head"): "heads",
    ("key_pos", "kv_head", "d_head"): "heads",
    ("head", "query_pos", "key_pos"): "scores",
    ("pos", "d_mlp"): "neurons",
}
FALLBACK = ("scores", "attn.hook_logits")  # every attention has them


def find(node: str, taps: Mapping[str, Any]) -> tuple[str, str]:
    """`taps` of a block by their path in it -> (kind of node, path of its tap or norm); FALLBACK if there is no such node."""
    if node in ("qk_norm", "rope"):
        return _slot(node, taps)
    if f"{node}.hook_scale" in taps and f"{node}.hook_normalized" in taps:
        return "norm", node
    leaf = LEAVES.get(node)
    for path, tap in taps.items():
        if path.rpartition(".")[2] == leaf or path.replace("hook_", "") == node:
            return BY_AXES.get(axes(tap), "tensor"), path
    return FALLBACK


def _slot(node: str, taps: Mapping[str, Any]) -> tuple[str, str]:
    """The slots between the projections and the scores. In latent attention a q_norm is a norm of the latent, not of q."""
    if node == "rope":
        return ("rope", "attn.rope") if "attn.rope.hook_angle" in taps else FALLBACK
    scale = taps.get("attn.q_norm.hook_scale")
    if scale is not None and "head" not in taps["attn.q_norm.hook_normalized"].dims:
        return "norm", "attn.q_norm"
    return "qk_norm", "attn"


def axes(tap: Any) -> tuple[str, ...]:
    return tuple(axis for axis in tap.dims if axis != "batch")
