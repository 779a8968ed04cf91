"""Norms, MLP, residual stream and strip: the numbers that are drawn are the model's."""

import numpy as np
import pytest
from pictures import captured, shown

from viz import nodes
from viz.nodes import gates, square
from viz.state import UiState
from viz.theme import LIGHT


def test_the_norm_s_numbers(lm, tokens):
    found = shown(lm, tokens, node="ln2", token=6)
    x = captured(lm, tokens, "blocks.1.hook_resid_mid")[6]
    scale = np.sqrt((x**2).mean() + 1e-5)
    before, divided, after = (trace.y for trace in found["norm-vector"].figure.data)
    assert np.allclose(before, x) and np.allclose(divided, x / scale, atol=1e-5)
    assert np.allclose(after, x / scale * lm.parameter("blocks.1.ln2.weight"), atol=1e-5)
    assert found["norm-divisor"].figure.data[0].y[6] == pytest.approx(scale, rel=1e-5)
    map_ = found["norm-map"].figure.data[0]
    assert map_.customdata.shape == (3, 23) and map_.customdata[1, 6] == pytest.approx(scale, rel=1e-5)
    table = dict(found["norm-both"].table)
    assert float(table["LayerNorm divides by"]) == pytest.approx(np.sqrt(x.var() + 1e-5), rel=1e-2)
    assert "computed here" in found["norm-both"].caption


def test_both_norms_by_hand():
    """Of [2, 4, 6, 8]: RMSNorm 0.365, 0.730, 1.095, 1.461; LayerNorm -1.342, -0.447, 0.447, 1.342."""

    class Scene:
        theme, token = LIGHT, "token 0"
        key = staticmethod(str)

    view = square.View(
        "x", np.array([2, 4, 6, 8], np.float32), ("d_model",), (np.arange(4),), "signed", "float32", (1, 1, 4), None, ""
    )
    dots = nodes.norm.both_norms(Scene, "RMSNorm", 0.0, view).figure.data[1]
    assert dots.x == pytest.approx([0.365, 0.730, 1.095, 1.461], abs=1e-3)
    assert dots.y == pytest.approx([-1.342, -0.447, 0.447, 1.342], abs=1e-3)


def test_massive_entries_are_named():
    values = np.random.default_rng(0).normal(size=64).astype(np.float32)
    values[[17, 20, 40]] = 900, 800, -500
    view = square.View("x", values, ("d_model",), (np.arange(64),), "signed", "float32", (1, 1, 64), None, "")
    assert nodes.norm.strongest(view) == [(17.0, 900.0, "dim 17: 900")]


def test_gates(lm, tokens):
    found = shown(lm, tokens, node="gate", token=3)
    gate, act, _, post = (captured(lm, tokens, f"blocks.1.mlp.{part}") for part in gates.PARTS)
    assert found["joint"].figure.data[0].customdata.sum() == gate.size == 23 * 66
    along, factor = found["joint"].figure.data[1].x, found["joint"].figure.data[1].y
    assert np.abs(factor - along / (1 + np.exp(-along))).max() < 0.02  # the model's own activations, joined by lines
    assert dict(found["closed"].table)["closed gates, all counted"] == f"{(np.abs(act) < 0.05).mean():.1%}"
    top = np.argsort(-np.abs(post[3]))[:12]
    assert (
        np.allclose(found["top-neurons"].figure.data[0].x, post[3, top])
        and found["top-neurons"].table[0][0] == f"neuron {top[0]}"
    )
    assert np.allclose(found["neurons-mlp.hook_pre"].figure.data[0].z, gate)


def test_neurons_sorted_by_their_peak(lm, tokens):
    post = captured(lm, tokens, "blocks.1.mlp.hook_post")
    order = np.argsort(-np.abs(post).max(0), kind="stable")
    card = shown(lm, tokens, node="post", neurons="sorted")["neurons-mlp.hook_post"]
    assert np.allclose(card.figure.data[0].z, post[:, order]) and card.figure.layout.xaxis.ticktext[0] == str(order[0])
    assert "strongest first" in card.caption


def test_sorting_reads_single_neurons_where_the_whole_does_not_fit(lm, tokens, monkeypatch):
    whole = shown(lm, tokens, node="post", neurons="sorted")["neurons-mlp.hook_post"].figure.data[0].z
    monkeypatch.setattr(nodes.mlp, "fits", lambda scene: False)
    assert np.array_equal(shown(lm, tokens, node="post", neurons="sorted")["neurons-mlp.hook_post"].figure.data[0].z, whole)


def test_the_stream_s_numbers(lm, tokens):
    found = shown(lm, tokens, node="attn_out", token=4)
    pre, added = captured(lm, tokens, "blocks.1.hook_resid_pre"), captured(lm, tokens, "blocks.1.hook_attn_out")
    assert np.allclose(found["stream-hook_attn_out"].figure.data[0].z, added)
    sizes = {trace.name: trace.y for trace in found["contributions"].figure.data}
    assert sizes["attention adds"][1] == pytest.approx(np.median(np.sqrt((added**2).mean(1))), rel=1e-5)
    assert sizes["stream, largest token"][1] == pytest.approx(np.sqrt((pre**2).mean(1)).max(), rel=1e-5)
    cosine = (added * pre).sum(1) / np.linalg.norm(added, axis=1) / np.linalg.norm(pre, axis=1)
    cosines = {trace.name: trace.y for trace in found["cosines"].figure.data}
    assert cosines["attention"][1] == pytest.approx(np.median(cosine), abs=1e-5) and cosines["attention, chosen token"][
        1
    ] == pytest.approx(cosine[4], abs=1e-5)


def test_the_next_token_is_the_greedy_one(lm, tokens):
    card = shown(lm, tokens, node="resid_post", layer=2)["next-token"]
    logits = captured(lm, tokens, "logits")[-1]
    p = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert card.figure.data[0].x[0] == pytest.approx(p.max(), rel=1e-4) and "nothing is sampled" in card.caption
    assert card.figure.layout.yaxis.ticktext[0] == str(p.argmax())
    assert "next-token" not in shown(lm, tokens, node="resid_post", layer=1)


def test_the_strip_and_the_identities(lm, tokens):
    other = lm.variant(qk_norm="head")
    card = nodes.layer_strip(lm, tokens, UiState(layer=1), LIGHT, other)
    visible = np.tril(np.ones((23, 23), bool))
    for model, trace in ((lm, card.figure.data[0]), (other, card.figure.data[2])):
        peaks = [np.abs(captured(model, tokens, f"blocks.{i}.attn.hook_logits")[:, visible]).max() for i in range(3)]
        assert np.allclose(trace.y, peaks, rtol=1e-5)
    assert card.figure.layout.meta["click"] == {"field": "layer", "from": "x"} and card.figure.data[1].x.tolist() == [1]
    table = nodes.identities(lm, tokens, UiState(layer=1), LIGHT).table
    assert len(table) >= 5 and all(name.startswith("✓") for name, _ in table)


@pytest.mark.parametrize("neurons", ["own", "sorted"])
@pytest.mark.parametrize("whole", [gates.WHOLE, 40_000])  # read at once, or some tokens one by one
def test_closed_gates_are_never_empty_where_there_are_data(lm, neurons, whole, monkeypatch):
    monkeypatch.setattr(gates, "WHOLE", whole)
    card = shown(lm, [i % 50 for i in range(816)], node="gate", neurons=neurons)["closed"]
    outline = card.figure.data[0]
    assert np.isfinite(outline.y).all() and outline.y[:-1].sum() == pytest.approx(1, abs=1e-5)
    low, high = card.figure.layout.xaxis.range
    assert low < outline.x[0] < outline.x[-1] < high and "undefined" not in dict(card.table).values()
