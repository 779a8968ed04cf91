"""From a node of the diagram to what it shows: its kind and its tap, by axis names, so that it holds for any block."""

from collections.abc import Mapping
from typing import Any

ENDS = {  # nodes that exist in many architectures -> how the path of the tap that they show ends
    "resid_pre": "hook_resid_pre",
    "q": "hook_q",
    "k": "hook_k",
    "v": "hook_v",
    "q_latent": "hook_q_latent",
    "kv_latent": "hook_kv_latent",
    "k_rope": "hook_k_rope",
    "keys": "hook_keys",
    "values": "hook_values",
    "temperature": "temperature.hook_scale",
    "logits": "hook_logits",
    "capped": "hook_capped",
    "pattern": "hook_pattern",
    "sink": "hook_sink",
    "z": "hook_z",
    "attn_module_out": "attn.hook_module_out",
    "attn_out": "hook_attn_out",
    "resid_mid": "hook_resid_mid",
    "gate": "hook_pre",
    "up": "hook_pre_linear",
    "act": "hook_act",
    "post": "hook_post",
    "router": "hook_router_logits",
    "chosen": "hook_expert_weights",
    "experts": "experts.hook_post",
    "mlp_module_out": "mlp.hook_module_out",
    "mlp_out": "hook_mlp_out",
    "resid_post": "hook_resid_post",
}

BY_AXES = {  # axes of a tensor, batch left out -> the kind of node that draws it
    ("pos", "d_model"): "stream",
    ("pos", "head", "d_head"): "heads",
    ("pos", "kv_head", "d_head"): "heads",
    ("key_pos", "head", "d_head"): "heads",
    ("key_pos", "kv_head", "d_head"): "heads",
    ("pos", "d_latent"): "latent",
    ("key_pos", "d_latent"): "latent",
    ("pos", "d_head"): "latent",  # one vector for all heads
    ("key_pos", "d_head"): "latent",
    ("head", "query_pos", "key_pos"): "scores",
    ("head", "query_pos"): "sink",
    ("pos", "d_mlp"): "neurons",
    ("pos", "expert"): "router",
    ("pos", "topk"): "chosen",
    ("pos", "topk", "d_mlp"): "experts",
}
FALLBACK = ("scores", "attn.hook_logits")  # every attention has them


def find(node: str, taps: Mapping[str, Any]) -> tuple[str, str]:
    """`taps` of a block by their path in it -> (kind of node, path of its tap or norm); FALLBACK if there is no such node."""
    if node in ("qk_norm", "rope"):
        return _slot(node, taps)
    if f"{node}.hook_scale" in taps and f"{node}.hook_normalized" in taps:
        return "norm", node
    for path, tap in taps.items():
        if named(path) == node or path.replace("hook_", "") == node:
            return BY_AXES.get(axes(tap), "tensor"), path
    return FALLBACK


def named(path: str) -> str | None:
    """The node in ENDS that a tap belongs to: its last two words may name another one than the last word alone."""
    words = path.split(".")
    ends = (".".join(words[-2:]), words[-1])
    return next((node for end in ends for node, known in ENDS.items() if known == end), None)


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
