"""What each node of the diagram shows, by its kind. The numbers come through `lm.views`; nothing here knows torch or gradio.

A node is a generator: it yields the requests that it needs, is sent their views, and returns its cards. So whoever draws it
can put its requests into a run that is going on anyway.
"""

from collections.abc import Sequence
from typing import Any

from model.view import Request
from viz.nodes import attention, experts, heads, latent, layers, mlp, norm, qk_norm, requests, rope, router, sink, stream
from viz.nodes import tensor as tensors
from viz.nodes.card import Asking, Card, Node, Scene
from viz.nodes.find import find
from viz.theme import LIGHT, Theme

__all__ = ["NODES", "Card", "Scene", "asked_for", "cards", "identities", "layer_strip", "requests_for_run"]

NODES: dict[str, Node] = {
    "stream": stream.stream,
    "norm": norm.norm,
    "heads": heads.heads,
    "latent": latent.latent,
    "qk_norm": qk_norm.qk_norm,
    "rope": rope.rope,
    "scores": attention.scores,
    "sink": sink.sink,
    "neurons": mlp.neurons,
    "router": router.router,
    "chosen": router.chosen,
    "experts": experts.experts,
    "tensor": tensors.tensor,
}


def cards(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, built: Any | None = None) -> list[Card]:
    """The cards of the node that `state` selects. `built` is the model as opened, where `lm` is a variant of it:
    its trained gains are then the counterfactual."""
    scene = Scene.of(lm, tokens, state, theme, built)
    node, views = _selected(scene), None
    try:
        while True:
            views = scene.ask(**node.send(views))
    except StopIteration as end:
        return end.value


def asked_for(lm: Any, tokens: Sequence[int], state: Any) -> list[Request]:
    """What the node that `state` selects asks for first, so that a run can answer it beside everything else."""
    node = _selected(Scene.of(lm, tokens, state, LIGHT))
    try:
        return list(next(node).values())
    except StopIteration:
        return []


def _selected(scene: Scene) -> Asking:
    kind, path = find(scene.state.node, scene.block_taps)
    return NODES[kind](scene, path)


def requests_for_run(lm: Any, tokens: Sequence[int], state: Any) -> list[Request]:
    """What the first run of a prompt answers: all that concerns every layer, and the chosen node."""
    return [*requests.every_layer(lm), *asked_for(lm, tokens, state)]


def layer_strip(lm: Any, tokens: Sequence[int], state: Any, theme: Theme, other: Any | None = None) -> Card:
    """The strip at the foot; `other` is a variant that has already run this prompt, drawn as a line."""
    return layers.strip(Scene.of(lm, tokens, state, theme), other)


def identities(lm: Any, tokens: Sequence[int], state: Any, theme: Theme) -> Card:
    """The identities of the chosen layer as a table."""
    return layers.identities(Scene.of(lm, tokens, state, theme))
