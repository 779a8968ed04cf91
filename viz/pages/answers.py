"""From a finished run and a view to what the browser is told: plain values, small, with figures by key. No gradio here."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import numpy as np

from model.view import Request
from viz.change import spelled
from viz.nodes import Card, asked_for, cards, requests_for_run
from viz.nodes.card import short
from viz.nodes.requests import logit_peaks
from viz.pages import surgery
from viz.pages.blocks import block_drawings, block_nodes, controls, layer_kinds, number_requests, numbers, rarer_kind
from viz.shelf import LM, Run, Shelf
from viz.state import UiState, fit
from viz.store import Store
from viz.theme import THEMES, count

LARGEST = 300_000  # bytes of one figure on the wire
QK_WORDS = {"off": "QK-norm off", "head": "QK-norm per head", "projection": "QK-norm over the whole projection"}


def run_requests(lm: LM, tokens: Sequence[int], state: UiState) -> list[Request]:
    """What a run answers: all numbers and the chosen node. A later view of it costs no more than one block."""
    layer = min(state.layer, lm.config.n_layers - 1)
    numbers = [request for _, request in number_requests(lm, layer)]
    return [*requests_for_run(lm, tokens, replace(state, layer=layer)), *numbers]


def block_requests(lm: LM, tokens: Sequence[int], state: UiState) -> list[Request]:
    """What a view of one block needs: the diagram's numbers and the chosen node."""
    asked = [request for _, request in number_requests(lm, state.layer)]
    return [*asked, *asked_for(lm, tokens, state)]


def look_ahead(lm: LM, tokens: Sequence[int], state: UiState) -> None:
    """The diagram's numbers, the identities and the chosen node in one pass through the block: all then find theirs kept."""
    lm.views(tokens, block_requests(lm, tokens, state), checking=state.layer)


def peaks(lm: LM, tokens: Sequence[int], layers: int | None = None) -> tuple[float, ...]:
    """The largest visible |attention logit| of each layer (of the first so many); NaN where one is not a number."""
    return tuple(float(view.values.max()) for view in lm.views(tokens, logit_peaks(lm)[:layers]))


def grown(run: Run) -> Run:
    """The same run with the peaks of what has been measured since."""
    found = list(run.peaks)
    for request in logit_peaks(run.lm)[len(found) :]:
        if (view := run.lm.recall(run.tokens, request)) is None:
            break
        found.append(float(view.values.max()))
    return replace(run, peaks=tuple(found))


def reach(lm: LM, tokens: Sequence[int], state: UiState) -> int:
    """The last layer that the view needs: the chosen one, unless its node is drawn from later ones too."""
    layer = min(state.layer, lm.config.n_layers - 1)
    return max(layer, *(lm.stage_of(request.tap) for request in asked_for(lm, tokens, replace(state, layer=layer))), 0)


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
    size = f"{count(lm.config.n_layers, 'layer')} · {lm.config.d_model} wide"
    return {
        "name": name,
        "size": f"{size} · {built.report[0].partition(':')[0]}" if built.random else size,
        "device": f"{lm.store.homes} · {short(str(lm.dtype).removeprefix('torch.'))}",
        "layers": lm.config.n_layers,
        "heads": attention.n_heads,
        "kv_heads": attention.n_kv_heads,
        "parameters": f"{lm.parameters:,} parameters",
        "built": QK_WORDS[built.qk_norm],
        "differs": surgery.differs(built, lm),
        "report": list(lm.report),
    }


def strip(shelf: Shelf, name: str, which: str, run: Run, prompt: str) -> dict:
    """The layers at the foot: the largest |logit| of each as it ran and, once that has run too, of its counterfactual."""
    built = shelf.model(name)
    key = hashlib.sha256(f"{name}\0{which}\0{prompt}".encode()).hexdigest()[:16]
    kind, at = rarer_kind(run.lm.config)
    layers, ran = run.lm.config.n_layers, len(run.peaks)
    so_far = [] if run.whole else [f"{ran} of {layers} layers so far"]
    label = ", ".join(["as changed" if which else "as run", *_qk_words(built, run.lm), *so_far])
    told = {"run": key, "layers": layers, "peaks": plain(run.peaks), "label": label, "other": None, "other_label": ""}
    told |= {"kinds": layer_kinds(run.lm.config), "kind": kind, "kind_at": at}
    changed = surgery.counterfactual(built, which)
    other = None if changed is None else shelf.find(name, spelled(changed), prompt)
    if other is not None:
        told |= {"other": plain(other.peaks), "other_label": _other_label(other.lm, bool(which))}
    return told


def _qk_words(built: LM, lm: LM) -> list[str]:
    """How QK-norm stands, where there is a choice."""
    return [QK_WORDS[lm.qk_norm]] if surgery.possible(built, "qk_norm") else []


def _other_label(other: LM, loaded: bool) -> str:
    if loaded:
        return ", ".join(["as loaded", *_qk_words(other, other)])
    return f"{'unit-gain ' if other.invented else ''}{QK_WORDS[other.qk_norm]} (counterfactual)"


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


def length(lm: LM, tokens: list[int]) -> str:
    """ "51 tokens", and where they are more than the model was made for, that number: beyond it, nothing was learned."""
    beyond = len(tokens) > lm.config.context and not lm.random
    return count(len(tokens), "token") + (f", made for {lm.config.context:,}" if beyond else "")


def took(run: Run) -> str:
    """How long the text is, and how long what has run of it took."""
    return f"{length(run.lm, list(run.tokens))} · {run.seconds:.2f} s"


def words(shelf: Shelf, name: str, which: str, run: Run, state: UiState) -> dict:
    """All of a view that is not a picture; `state` is settled and fitted."""
    lm, tokens, built = run.lm, list(run.tokens), shelf.model(name)
    return {
        "state": asdict(state),
        "query": state.query(),
        "model": about(lm, name, built),
        "parts": surgery.menu(built, state),
        "tokens": {"pieces": list(run.pieces), "said": took(run)},
        "layer": layer_kinds(lm.config)[state.layer],
        "numbers": numbers(lm, tokens, state.layer),
        "identities": plain(identities(run, state.layer)),
        "strip": strip(shelf, name, which, run, state.prompt),
    }


def view(shelf: Shelf, store: Store, name: str, which: str, run: Run, state: UiState, scheme: str) -> dict:
    """Everything the page shows of a run. Another node, head, stage or token costs no more than one block."""
    state, notes = fitted(run, state)
    look_ahead(run.lm, list(run.tokens), state)
    theme, block = THEMES[scheme if state.theme == "auto" else state.theme], run.lm.config.blocks[state.layer]
    return words(shelf, name, which, run, state) | {
        "kind": "view",
        "notes": notes,
        "block": block_drawings(block),
        "controls": controls(block, state.node),
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
