"""From a finished run and a view to what the browser is told: plain values, small, with figures by key. No gradio here."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache

import numpy as np

from model.view import Request, View
from viz.diagram import Node, graph
from viz.drawing import draw
from viz.nodes import Card, asked_for, cards, requests_for_run
from viz.nodes.card import short
from viz.nodes.requests import logit_peaks
from viz.shelf import LM, Run, Shelf
from viz.state import UiState, fit
from viz.store import Store
from viz.theme import THEMES, count

LARGEST = 300_000  # bytes of one figure on the wire
QK_WORDS = {"off": "QK-norm off", "head": "QK-norm per head", "projection": "QK-norm over the whole projection"}
CONTROLS = {  # which of the page's controls a node answers to, by its id
    **dict.fromkeys(("logits", "pattern"), ("stage", "head", "log", "hide_first")),
    **dict.fromkeys(("q", "k", "v", "z", "rope", "qk_norm"), ("head",)),
    **dict.fromkeys(("ln1", "ln2"), ("log",)),
    **dict.fromkeys(("gate", "up", "act", "post"), ("neurons",)),
}


@lru_cache(maxsize=256)
def block_nodes(config) -> tuple[Node, ...]:
    """The diagram of a block from its config alone."""
    return tuple(graph(config))


@lru_cache(maxsize=64)
def block_drawings(config) -> dict:
    nodes = block_nodes(config)
    standing, lying = draw(nodes), draw(nodes, lying=True)
    return {"key": f"{hash(config):x}", "standing": standing, "lying": lying}


def number_requests(lm: LM, layer: int) -> list[tuple[str, Request]]:
    """(node, request) for every number on the diagram of a layer."""
    nodes = block_nodes(lm.config.blocks[layer])
    return [(node.id, Request(f"blocks.{layer}.{tap}", "stats")) for node in nodes for tap in node.shown]


def run_requests(lm: LM, tokens: Sequence[int], state: UiState) -> list[Request]:
    """What a run answers: all numbers and the chosen node. A later view of it costs no more than one block."""
    layer = min(state.layer, lm.config.n_layers - 1)
    numbers = [request for _, request in number_requests(lm, layer)]
    return [*requests_for_run(lm, tokens, replace(state, layer=layer)), *numbers]


def look_ahead(lm: LM, tokens: Sequence[int], state: UiState) -> None:
    """The diagram's numbers, the identities and the chosen node in one pass through the block: all then find theirs kept."""
    asked = [request for _, request in number_requests(lm, state.layer)]
    lm.views(tokens, [*asked, *asked_for(lm, tokens, state)], checking=state.layer)


def peaks(lm: LM, tokens: Sequence[int]) -> tuple[float, ...]:
    """The largest visible |attention logit| of each layer; NaN where a layer has one that is not a number."""
    return tuple(float(view.values.max()) for view in lm.views(tokens, logit_peaks(lm)))


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


def describe(card: Card, store: Store) -> dict:
    """A card as the browser gets it: words and a table as they are, the figure by its key."""
    told = {name: getattr(card, name) for name in ("id", "title", "caption", "role", "height", "table")}
    if card.figure is None:
        return told
    payload = card.figure.to_json().encode()
    if len(payload) > LARGEST:
        return told | {"caption": f"{card.caption} · not sent: the figure has {len(payload):,} bytes, at most {LARGEST:,} are"}
    return told | {"url": f"data/{store.put(payload)}"}


def about(lm: LM, name: str, built: LM) -> dict:
    """The header's words on a model; `built` is the model as its file describes it, `lm` as it runs now."""
    attention = lm.config.blocks[0].attn
    return {
        "name": name,
        "size": f"{count(lm.config.n_layers, 'layer')} · {lm.config.d_model} wide",
        "device": f"{lm.device} · {short(str(lm.dtype).removeprefix('torch.'))}",
        "layers": lm.config.n_layers,
        "heads": attention.n_heads,
        "kv_heads": attention.n_kv_heads,
        "parameters": f"{lm.parameters:,} parameters",
        "qk": lm.qk_norm,
        "built": QK_WORDS[built.qk_norm],
        "invented": len(getattr(lm, "invented", ())),
        "report": list(lm.report),
    }


def strip(shelf: Shelf, name: str, run: Run, prompt: str) -> dict:
    """The layers at the foot: the largest |logit| of each as it ran and, once that has run too, with QK-norm the other way."""
    which = hashlib.sha256(f"{name}\0{run.lm.qk_norm}\0{prompt}".encode()).hexdigest()[:16]
    label = f"as run, {QK_WORDS[run.lm.qk_norm]}"
    told = {"run": which, "peaks": plain(run.peaks), "label": label, "other": None, "other_label": ""}
    other = shelf.find(name, other_qk(run.lm, shelf.model(name)), prompt)
    if other is not None:
        gain = "unit-gain " if getattr(other.lm, "invented", ()) else ""
        told |= {"other": plain(other.peaks), "other_label": f"{gain}{QK_WORDS[other.lm.qk_norm]} (counterfactual)"}
    return told


def other_qk(lm: LM, built: LM) -> str:
    """The QK-norm of the counterfactual line: off against on, as built where it was built with one."""
    if lm.qk_norm != "off":
        return "off"
    return built.qk_norm if built.qk_norm != "off" else "head"


def identities(run: Run, layer: int) -> list[dict]:
    """The identities of a layer on this run, measured when the layer is first opened."""
    if layer not in run.identities:
        run.identities[layer] = [asdict(identity) for identity in run.lm.identities(list(run.tokens), layer)]
    return run.identities[layer]


def fitted(run: Run, state: UiState) -> tuple[UiState, list[str]]:
    """The view moved inside this run: its layers, heads, tokens and the nodes of its blocks."""
    config = run.lm.config
    block = config.blocks[min(state.layer, config.n_layers - 1)]
    nodes = [node.id for node in block_nodes(block)]
    return fit(state, layers=config.n_layers, heads=block.attn.n_heads, tokens=len(run.tokens), nodes=nodes)


def words(shelf: Shelf, name: str, run: Run, state: UiState) -> dict:
    """All of a view that is not a picture; `state` is fitted."""
    lm, tokens = run.lm, list(run.tokens)
    return {
        "state": asdict(state),
        "query": state.query(),
        "model": about(lm, name, shelf.model(name)),
        "tokens": {"pieces": list(run.pieces), "said": f"{count(len(tokens), 'token')} · {run.seconds:.2f} s"},
        "numbers": numbers(lm, tokens, state.layer),
        "identities": plain(identities(run, state.layer)),
        "strip": strip(shelf, name, run, state.prompt),
    }


def view(shelf: Shelf, store: Store, name: str, run: Run, state: UiState, scheme: str) -> dict:
    """Everything the page shows of a run. Another node, head, stage or token costs no more than one block."""
    state, notes = fitted(run, state)
    look_ahead(run.lm, list(run.tokens), state)
    theme = THEMES[scheme if state.theme == "auto" else state.theme]
    return words(shelf, name, run, state) | {
        "kind": "view",
        "notes": notes,
        "block": block_drawings(run.lm.config.blocks[state.layer]),
        "controls": CONTROLS.get(state.node, ()),
        "cards": [describe(card, store) for card in cards(run.lm, list(run.tokens), state, theme, shelf.model(name))],
    }


def data_of(card: Card) -> dict:
    """A card with the numbers it draws, for people who call the endpoint rather than open the page."""
    data = [] if card.figure is None else [plain(trace.to_plotly_json()) for trace in card.figure.data]
    words = {name: getattr(card, name) for name in ("id", "title", "caption", "role")}
    return words | {"table": plain(card.table), "data": data}


def plain(value):
    """Anything a figure holds, as JSON that a strict parser reads: arrays as lists, what is not a number as null."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
