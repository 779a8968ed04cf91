"""What each node of the diagram shows, by its kind. The numbers come through `lm.views`; nothing here knows torch or gradio."""

from collections.abc import Sequence
from typing import Any

from viz.nodes import attention, heads, layers, mlp, norm, qk_norm, rope, stream
from viz.nodes.card import Card, Node, Scene
from viz.nodes.requests import requests_for_run
from viz.theme import Theme

__all__ = ["KINDS", "NODES", "Card", "Scene", "cards", "identities", "layer_strip", "requests_for_run"]

NODES: dict[str, Node] = {
    "stream": stream.stream,
    "norm": norm.norm,
    "heads": heads.heads,
    "qk_norm": qk_norm.qk_norm,
    "rope": rope.rope,
    "scores": attention.scores,
    "neurons": mlp.neurons,
}

KINDS: dict[str, tuple[str, str]] = {  # node of the diagram -> (its kind, the tap or module that it shows)
    "resid_pre": ("stream", "hook_resid_pre"),
    "ln1": ("norm", "ln1"),
    "q": ("heads", "attn.hook_q"),
    "k": ("heads", "attn.hook_k"),
    "v": ("heads", "attn.hook_v"),
    "qk_norm": ("qk_norm", "attn"),
    "rope": ("rope", "attn.rope"),
    "logits": ("scores", "attn.hook_logits"),
    "pattern": ("scores", "attn.hook_pattern"),
    "z": ("heads", "attn.hook_z"),
    "attn_out": ("stream", "hook_attn_out"),
    "resid_mid": ("stream", "hook_resid_mid"),
    "ln2": ("norm", "ln2"),
    "gate": ("neurons", "mlp.hook_pre"),
    "up": ("neurons", "mlp.hook_pre_linear"),
    "act": ("neurons", "mlp.hook_act"),
    "post": ("neurons", "mlp.hook_post"),
    "mlp_out": ("stream", "hook_mlp_out"),
    "resid_post": ("stream", "hook_resid_post"),
}


def cards(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, built: Any | None = None) -> list[Card]:
    """The cards of the node that `state` selects. `built` is the model as opened, where `lm` is a variant of it:
    its trained gains are then the counterfactual."""
    scene = Scene.of(lm, tokens, state, theme, built)
    kind, shown = KINDS.get(state.node, KINDS["logits"])
    return NODES[kind](scene, shown)


def layer_strip(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, other: Any | None = None) -> Card:
    """The strip at the foot; `other` is a variant that has already run this prompt, drawn as a line."""
    return layers.strip(Scene.of(lm, tokens, state, theme), other)


def identities(lm: Any, tokens: Sequence[int], state: Any, theme: Theme) -> Card:
    """The identities of the chosen layer as a table."""
    return layers.identities(Scene.of(lm, tokens, state, theme))
