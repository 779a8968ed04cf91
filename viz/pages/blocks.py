"""What stands in the column of the block: its drawing, a number on every node, what kind of layer it is, its controls."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from model.block import BlockConfig
from model.lm import Decoder
from model.surgery import CHANGES
from model.taps import taps_of
from model.view import Request, View
from viz.diagram import Node, graph
from viz.drawing import draw
from viz.nodes.find import find
from viz.pages.surgery import word
from viz.shelf import LM
from viz.theme import count

CONTROLS = {  # which of the page's controls a node answers to, by the kind of its picture
    "scores": ("stage", "head", "log", "hide_first"),
    "heads": ("head", "log"),
    "sink": ("head", "log"),
    "qk_norm": ("head",),
    "rope": ("head", "hide_first"),
    "neurons": ("neurons", "log"),
    "stream": ("log",),
    "latent": ("log",),
    "router": ("log",),
    "chosen": ("log",),
    "experts": ("log",),
    "tensor": ("log",),
}


@lru_cache(maxsize=256)
def block_nodes(config: BlockConfig) -> tuple[Node, ...]:
    """The diagram of a block from its config alone."""
    return tuple(graph(config))


@lru_cache(maxsize=64)
def block_drawings(config: BlockConfig) -> dict:
    nodes = block_nodes(config)
    standing, lying = draw(nodes), draw(nodes, lying=True)
    key = hashlib.sha256((standing + lying).encode()).hexdigest()[:16]
    return {"key": key, "standing": standing, "lying": lying}


@lru_cache(maxsize=256)
def controls(config: BlockConfig, node: str) -> tuple[str, ...]:
    """The controls that change what this node shows."""
    with torch.device("meta"):
        taps = taps_of(config.build())
    return CONTROLS.get(find(node, taps)[0], ())


def number_requests(lm: LM, layer: int) -> list[tuple[str, Request]]:
    """(node, request) for every number on the diagram of a layer."""
    nodes = block_nodes(lm.config.blocks[layer])
    return [(node.id, Request(f"blocks.{layer}.{tap}", "stats")) for node in nodes for tap in node.shown]


def numbers(lm: LM, tokens: Sequence[int], layer: int) -> dict[str, dict]:
    """What stands on each node: rms and largest |x| of its tensors together, and what in them is not a number."""
    asked = number_requests(lm, layer)
    views = lm.views(tokens, [request for _, request in asked])
    by_node: dict[str, list[View]] = {}
    for (node, _), view in zip(asked, views, strict=True):
        by_node.setdefault(node, []).append(view)
    return {node: _together(found) for node, found in by_node.items()}


def _together(views: list[View]) -> dict:
    stats = [view.stats for view in views]
    finite = sum(s.finite for s in stats)
    rms = math.sqrt(sum(s.rms**2 * s.finite for s in stats if s.finite) / finite) if finite else math.nan
    largest = max((s.absmax for s in stats if s.finite), default=math.nan)
    shapes = " and ".join(f"{view.tap} {list(view.shape)} {view.dtype}" for view in views)
    return {
        "rms": brief(rms) if finite else "—",
        "max": brief(largest) if finite else "—",
        "size": largest if finite else 0.0,  # for the bar; the texts are for people
        "nan": sum(s.nan for s in stats),
        "inf": sum(s.posinf + s.neginf for s in stats),
        "shape": shapes,
    }


def brief(x: float) -> str:
    """A size in four characters, for the diagram: 0.07, 3.71, 15.8, 344, 12k, 3e12."""
    if x == 0:
        return "0"
    if not 0.01 <= x < 1e6:
        mantissa, exponent = f"{x:.0e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    if x >= 1000:
        return f"{x / 1000:.1f}k" if x < 9950 else f"{x / 1000:.0f}k"
    return f"{x:.0f}" if x >= 99.95 else f"{x:.1f}" if x >= 9.995 else f"{x:.2f}"


# ---- kinds of layers ---------------------------------------------------------------------------------------------------


EVERYWHERE = "sees all"


def _mask(block: BlockConfig) -> str:
    value = CHANGES["window"].read(block)
    return EVERYWHERE if value == "off" else f"window {int(value):,}" if value.isdigit() else value


def _rotation(block: BlockConfig) -> str:
    base, scaling = CHANGES["rope_base"].read(block), CHANGES["rope_scaling"].read(block)
    if base == "off":
        return "no rotation"
    return f"RoPE {word('rope_base', base)}" + ("" if scaling == "off" else f" · {scaling.replace('-', ' × ')}")


def _mlp(block: BlockConfig) -> str:
    n = getattr(block.mlp, "n_experts", 0)
    return count(n, "expert") if n else "one MLP"


def _qk_norm(block: BlockConfig) -> str:
    return "no QK-norm" if CHANGES["qk_norm"].read(block) == "off" else "QK-norm"


ASPECTS: tuple[Callable[[BlockConfig], str], ...] = (_mask, _rotation, _qk_norm, _mlp)


@lru_cache(maxsize=64)
def layer_kinds(config: Decoder.Config) -> tuple[str, ...]:
    """What each layer is, in what the layers of this model differ, and its window where it has one; "" if that is nothing."""
    said = {block: [aspect(block) for aspect in ASPECTS] for block in set(config.blocks)}
    differ = {i for i in range(len(ASPECTS)) if len({words[i] for words in said.values()}) > 1}
    if any(words[0] != EVERYWHERE for words in said.values()):
        differ.add(0)  # the mask
    return tuple(" · ".join(said[block][i] for i in sorted(differ)) for block in config.blocks)


def rarer_kind(config: Decoder.Config) -> tuple[str, list[int]]:
    """The kind of layer that fewer layers have, and which those are; ("", []) where all are alike."""
    kinds = layer_kinds(config)
    few = Counter(kinds).most_common()[-1][0]
    return (few, [i for i, kind in enumerate(kinds) if kind == few]) if len(set(kinds)) > 1 else ("", [])
