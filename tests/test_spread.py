"""The card of attention statistics shows what model.statistics computes on its own."""

import numpy as np
import pytest
import torch
from conftest import make_lm, tiny_config

from model import load
from model.masks import Causal, Chunked, Sliding
from model.statistics import attention_statistics
from viz.nodes import cards, facts
from viz.nodes.card import Scene
from viz.nodes.spread import shares, wanted
from viz.state import UiState
from viz.theme import LIGHT, number

IDS = torch.randint(131, (90,), generator=torch.Generator().manual_seed(2)).tolist()


@pytest.mark.parametrize("mask", [Causal(), Sliding(window=7), Chunked(chunk=9)])
def test_the_card_says_what_the_statistics_are(mask):
    lm, state = make_lm(tiny_config(mask=mask)), UiState(layer=1, head=2, token=61)
    theirs = attention_statistics(lm, IDS, 1, of=61)
    (card,) = [card for card in cards(lm, IDS, state, LIGHT) if card.id == "spread"]
    scene = Scene.of(lm, IDS, state, LIGHT)
    found = shares(scene, scene.ask(**wanted(scene), **facts.wanted(scene)))
    drawn = np.concatenate([np.asarray(trace.y, float) for trace in card.figure.data if trace.type == "bar"])
    for name in ("entropy", "one_hot", "first"):
        np.testing.assert_allclose(found[name], getattr(theirs, name), rtol=1e-4, atol=1e-6, err_msg=name)
        assert all(np.isclose(drawn, x, rtol=1e-3, atol=1e-6).any() for x in found[name]), name
    named = [int(words.split("reads key ")[1].split(" ")[0]) for words, _ in card.table if "reads key" in words]
    assert named == theirs.top_keys[2].tolist()
    assert [value for words, value in card.table if "reads key" in words] == [number(float(w)) for w in theirs.top_weights[2]]
    assert "from query tiles" in card.caption


def test_a_sink_is_among_them_and_one_token_has_no_means():
    lm = load("tiny-gpt-oss", device="cpu")
    (card,) = [card for card in cards(lm, IDS, UiState(), LIGHT) if card.id == "spread"]
    sink = lm.capture(IDS, ["blocks.0.attn.hook_sink"])["blocks.0.attn.hook_sink"][0, 0].mean()
    assert dict(card.table)["taken by the sink, mean of all queries"] == number(float(sink))
    scene = Scene.of(make_lm(), [5], UiState(), LIGHT)
    assert np.isnan(shares(scene, scene.ask(**wanted(scene)))["first"]).all()
