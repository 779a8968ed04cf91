"""What each node of the diagram shows, by its kind. The numbers come through `lm.views`; nothing here knows torch or gradio."""

from collections.abc import Sequence
from typing import Any

from viz.nodes import attention, heads, layers, mlp, norm, qk_norm, rope, stream, tensor
from viz.nodes.card import Card, Node, Scene
from viz.nodes.find import find
from viz.nodes.requests import requests_for_run
from viz.theme import Theme

__all__ = ["NODES", "Card", "Scene", "cards", "identities", "layer_strip", "requests_for_run"]

NODES: dict[str, Node] = {
    "stream": stream.stream,
    "norm": norm.norm,
    "heads": heads.heads,
    "qk_norm": qk_norm.qk_norm,
    "rope": rope.rope,
    "scores": attention.scores,
    "neurons": mlp.neurons,
    "tensor": tensor.tensor,
}


def cards(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, built: Any | None = None) -> list[Card]:
    """The cards of the node that `state` selects. `built` is the model as opened, where `lm` is a variant of it:
    its trained gains are then the counterfactual."""
    scene = Scene.of(lm, tokens, state, theme, built)
    kind, path = find(state.node, scene.block_taps)
    return NODES[kind](scene, path)


def layer_strip(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, other: Any | None = None) -> Card:
    """The strip at the foot; `other` is a variant that has already run this prompt, drawn as a line."""
    return layers.strip(Scene.of(lm, tokens, state, theme), other)


def identities(lm: Any, tokens: Sequence[int], state: Any, theme: Theme) -> Card:
    """The identities of the chosen layer as a table."""
    return layers.identities(Scene.of(lm, tokens, state, theme))
