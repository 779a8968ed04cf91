"""Cards of a tiny model, and what holds for every one of them."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import distinct, tiny_config

from model.positions import Llama3, Yarn
from model.run import LM
from model.weights import WeightStore
from viz import nodes
from viz.figures import colours, labels
from viz.figures.heat import matrix
from viz.state import UiState
from viz.theme import LIGHT

LARGEST = 300_000
NODES = [
    "resid_pre", "ln1", "q", "k", "v", "qk_norm", "rope", "logits", "pattern", "z", "attn_out", "resid_mid", "ln2", "gate", "up",
    "act", "post", "mlp_out", "resid_post",
]  # fmt: skip
YARN = Yarn(factor=4.0, original=16)
LLAMA3 = Llama3(factor=8.0, low=1.0, high=4.0, original=16)


def tokens(name: str, pieces: list[str]) -> labels.Axis:
    return labels.token_axis(name, pieces)


def square(values: np.ndarray, pieces: list[str] | None = None, theme=LIGHT, **more):
    pieces = pieces or [str(i) for i in range(len(values))]
    colour = more.pop("colour", None) or colours.signed(values, theme)
    return matrix(values, tokens("query", pieces), tokens("key", pieces), colour, theme, revision="r", **more)


def scene(lm, tokens, **state) -> nodes.Scene:
    return nodes.Scene.of(lm, tokens, replace(UiState(layer=1, head=4), **state), LIGHT)


def shown(lm, tokens, theme=LIGHT, built=None, **state) -> dict[str, nodes.Card]:
    found = nodes.cards(lm, tokens, replace(UiState(layer=1, head=4), **state), theme, built)
    assert len({card.id for card in found}) == len(found)
    return {card.id: card for card in found}


def captured(lm, tokens, tap: str) -> np.ndarray:
    return lm.capture(tokens, [tap])[tap][0].float().numpy()


def poisoned(part: str, value: float) -> LM:
    """A model in which one entry of one matrix is not a number."""

    def source(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        x = distinct(name, shape)
        if name == part:
            x[0, 0] = value
        return x

    return LM(tiny_config(), WeightStore(source, torch.device("cpu"), torch.float32), name="bad", source="test", tokenizer=None)


def check(card: nodes.Card) -> None:
    """What holds for every card: small strict JSON, numeric axes, finite ranges, its tensor named."""
    assert card.caption and card.title and card.role in ("main", "more", "side")
    assert (card.figure is None) == (card.height == 0)
    if card.figure is None:
        return
    text = card.figure.to_json()
    assert len(text) < LARGEST, f"{card.id}: {len(text):,} bytes"
    whole = json.loads(text, parse_constant=lambda word: pytest.fail(f"{card.id}: {word} in the JSON"))
    bar = whole["layout"].get("coloraxis")
    if bar:
        assert np.isfinite([bar["cmin"], bar["cmax"]]).all() and bar["cmin"] < bar["cmax"]
    for trace in card.figure.data:
        for axis in ("x", "y"):
            assert trace[axis] is None or np.issubdtype(np.asarray(trace[axis]).dtype, np.number), (card.id, axis)
    click = (card.figure.layout.meta or {}).get("click")
    assert click is None or (click["field"] in ("layer", "head", "token") and click["from"] in ("x", "y", "customdata"))


def texts(value):
    """Every string in a figure."""
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value
