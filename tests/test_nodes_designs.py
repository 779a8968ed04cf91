"""The pictures of what only some designs have: experts, sinks, soft-caps, windows, latents, norms on outputs."""

import re

import numpy as np
import pytest
from pictures import captured, check, scene, shown

from model import load
from viz.nodes import window
from viz.nodes.qk import seen

TEXT = "def area(w, h):\n    return w * h\n"


def opened(name: str):
    lm = load(f"tiny-{name}", device="cpu")
    return lm, lm.encode(TEXT)


@pytest.mark.parametrize("name", ["mixtral", "deepseek-v3", "llama4", "gpt-oss"])
def test_router_and_choice_are_the_models(name):
    lm, tokens = opened(name)
    logits, weights, indices = (
        captured(lm, tokens, f"blocks.3.mlp.hook_{w}") for w in ("router_logits", "expert_weights", "expert_indices")
    )
    cards = shown(lm, tokens, node="router", layer=3, token=4)
    heat, dots = cards["router"].figure.data
    assert np.array_equal(heat.z, logits)
    assert np.array_equal(dots.x, indices.ravel()) and np.array_equal(
        dots.y, np.repeat(np.arange(len(tokens)), indices.shape[1])
    )
    used = cards["choice"].figure.data[0].z
    assert np.allclose(np.take_along_axis(used, indices.astype(int), 1), weights) and np.isfinite(used).sum() == indices.size
    bars = cards["load"].figure.data[0]
    assert np.array_equal(bars.y, np.bincount(indices.ravel().astype(int), minlength=logits.shape[1]))
    assert cards["token-experts"].table[0][0] == f"expert {int(indices[4][0])}"
    assert list(cards) == ["router", "choice", "load", "token-experts"]
    assert next(iter(shown(lm, tokens, node="chosen", layer=3))) == "choice"


def test_the_neurons_are_those_of_the_tokens_own_experts():
    lm, tokens = opened("mixtral")
    cards = shown(lm, tokens, node="experts", layer=1, token=5)
    post = captured(lm, tokens, "blocks.1.mlp.experts.hook_post")
    indices = captured(lm, tokens, "blocks.1.mlp.hook_expert_indices").astype(int)
    assert np.array_equal(cards["experts"].figure.data[0].z, post[5])
    assert [text.split(" · ")[0] for text in cards["experts"].figure.layout.yaxis.ticktext] == [
        f"expert {e}" for e in indices[5]
    ]
    assert np.allclose(cards["expert-sizes"].figure.data[0].z, np.linalg.norm(post, axis=-1), rtol=1e-5)
    top = np.unravel_index(np.argmax(np.abs(post[5])), post[5].shape)
    assert cards["top-neurons"].figure.layout.yaxis.ticktext[0] == f"{indices[5][top[0]]}:{top[1]}"


def test_a_sink_and_its_row_sum_to_one():
    lm, tokens = opened("gpt-oss")
    share = captured(lm, tokens, "blocks.1.attn.hook_sink")
    figure = shown(lm, tokens, node="pattern", head=2)["scores"].figure
    heat = figure.data[0]
    (column,) = (trace for trace in figure.data if trace.type == "heatmap" and trace.x[0] < -1)
    assert np.allclose(column.z[:, 0], share[2]) and np.allclose(np.nansum(heat.z, 1) + column.z[:, 0], 1, atol=1e-5)
    assert column.x[1] < heat.x[0] - 0.5 and [note.text for note in figure.layout.annotations] == ["sink"]
    cards = shown(lm, tokens, node="sink", head=2)
    assert np.allclose(cards["sink"].figure.data[0].z, share)


@pytest.mark.parametrize(("name", "layer"), [("mistral", 0), ("llama4", 0), ("gemma3", 0), ("llama4", 3), ("llama", 0)])
def test_the_edge_parts_what_is_seen_from_what_only_a_causal_mask_would_show(name, layer):
    lm, tokens = opened(name)
    s = scene(lm, tokens, layer=layer)
    x, y = window.edge(s)
    n = len(tokens)
    visible, causal = seen(s, np.arange(n), np.arange(n)), np.tri(n, dtype=bool)
    assert (len(x) > 0) == bool((causal & ~visible).any()) and ("dotted" in window.words(s)) == (len(x) > 0)
    for i in range(0, len(x) - 1):
        if x[i] == x[i + 1]:  # an upright stretch: to its right seen, to its left not, in every row that it passes
            for query in range(round(min(y[i], y[i + 1]) + 0.5), round(max(y[i], y[i + 1]) + 0.5)):
                key = round(x[i] + 0.5)
                assert visible[query, key] and not visible[query, key - 1]


def test_a_soft_cap_is_drawn_before_against_after():
    lm, tokens = opened("gemma2")
    cards = shown(lm, tokens, node="capped")
    assert cards["scores"].title.startswith("Soft-capped logits")
    counts, curve = cards["cap"].figure.data
    assert counts.customdata.sum() == len(tokens) * (len(tokens) + 1) / 2
    assert np.allclose(curve.y, 50 * np.tanh(curve.x / 50), atol=1e-5)
    assert "cap" not in shown(*opened("llama"), node="logits")


@pytest.mark.parametrize("name", ["olmo2", "gemma2", "gemma3"])
def test_raw_output_against_contribution(name):
    lm, tokens = opened(name)
    for node, half, tap in (
        ("attn_module_out", "attn", "attn_out"),
        ("ln2_post", "mlp", "mlp_out"),
        ("mlp_out", "mlp", "mlp_out"),
    ):
        lines = shown(lm, tokens, node=node)["raw-added"].figure.data
        for line, path in zip(lines, (f"{half}.hook_module_out", f"hook_{tap}"), strict=True):
            rms = np.sqrt(np.mean(captured(lm, tokens, f"blocks.1.{path}") ** 2, -1))
            assert np.allclose(line.y, rms, rtol=1e-4)
    assert "raw-added" not in shown(*opened("llama"), node="attn_out")


def test_latents_and_the_rotary_key():
    lm, tokens = opened("deepseek-v3")
    for node, tap in (("q_latent", "hook_q_latent"), ("kv_latent", "hook_kv_latent"), ("k_rope", "hook_k_rope")):
        cards = shown(lm, tokens, node=node)
        main = next(iter(cards.values()))
        assert np.array_equal(main.figure.data[0].z, captured(lm, tokens, f"blocks.1.attn.{tap}"))
        assert ("kept per token", "28") in cards["kept"].table
    before, after = (trace.y for trace in shown(lm, tokens, node="k_rope")["length"].figure.data[::2])
    assert np.allclose(before, after, rtol=1e-5)  # a rotation keeps lengths


@pytest.mark.parametrize("name", ["deepseek-v2", "deepseek-v3", "gptj", "gemma3", "qwen3"])
def test_the_logit_lies_on_the_curve_of_score_against_distance(name):
    lm, tokens = opened(name)
    for head, token in ((0, 9), (4, -1)):
        caption = shown(lm, tokens, node="rope", head=head, token=token)["rope-distance"].caption
        off = re.search(r"at the true distance, ([\d.e−-]+) off", caption)[1]
        assert float(off) < 2e-5, caption


def test_rotate_then_norm_has_its_arrows():
    lm, tokens = opened("llama4")
    cards = shown(lm, tokens, node="rope", layer=0)
    assert "attn.hook_q →" in cards["rope-planes"].caption and "rope-distance" not in cards
    for card in cards.values():
        check(card)


def test_a_norm_on_the_stream_reads_the_sum():
    lm, tokens = opened("2017")
    for node, taps, words in (
        ("ln1", ("resid_pre", "attn_out"), "after attention is added"),
        ("ln2", ("resid_mid", "mlp_out"), "after the MLP is added"),
    ):
        cards = shown(lm, tokens, node=node, token=6)
        before = cards["norm-vector"].figure.data[0].y
        both = [captured(lm, tokens, f"blocks.1.hook_{tap}")[6] for tap in taps]
        assert np.allclose(before, both[0] + both[1], rtol=1e-5) and words in cards["norm-vector"].title
        assert f"hook_{taps[0]} + hook_{taps[1]} →" in cards["norm-vector"].caption and "norm-both" in cards
    assert "before attention and MLP" in shown(*opened("palm"), node="ln1")["norm-vector"].title
    assert "on the query latent" in shown(*opened("deepseek-v3"), node="attn.q_norm")["norm-vector"].title
