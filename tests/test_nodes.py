"""What every node of the diagram shows in every state, of every architecture, whatever the numbers and words are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import make_lm, tiny_config
from pictures import NODES, check, poisoned, scene, shown, texts

from model import PRESETS, load
from model.run import LM
from viz import nodes
from viz.nodes import attention
from viz.nodes.find import BY_AXES, FALLBACK, find
from viz.pages.answers import block_nodes
from viz.state import UiState
from viz.theme import DARK, LIGHT

# ---- every node -------------------------------------------------------------------------------------------------------

STATES = [
    {},
    {"log": 1, "hide_first": 1, "neurons": "sorted", "stage": "pattern", "token": 5},
    {"qk": "head", "stage": "raw", "token": 0},
    {"qk": "projection", "stage": "masked", "head": 10**6, "layer": 10**6, "token": 10**6, "hide_first": 1},
]


@pytest.mark.parametrize("state", STATES)
def test_every_node_in_every_state(lm, tokens, state):
    for node in NODES:
        found = list(shown(lm, tokens, node=node, **state).values())
        assert found[0].role == "main" and [card.role for card in found].count("main") == 1, node
        for card in found:
            check(card)


def test_one_token_one_layer_one_head():
    config = tiny_config(layers=1)
    attn = replace(config.blocks[0].attn, n_heads=1, n_kv_heads=1)
    lm = make_lm(replace(config, blocks=(replace(config.blocks[0], attn=attn),)))
    for state in ({}, {"hide_first": 1, "log": 1, "neurons": "sorted"}):
        for node in NODES:
            for card in shown(lm, [7], DARK, node=node, **state).values():
                check(card)


@pytest.mark.parametrize("preset", [name for name in PRESETS if name.startswith("tiny-")])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_every_architecture_has_pictures(preset):
    lm, tokens = load(preset, device="cpu"), list(b"def f(x): return x")
    for layer in sorted({lm.config.blocks.index(block) for block in lm.config.blocks}):  # one of each kind of block
        for node in block_nodes(lm.config.blocks[layer]):
            for card in shown(lm, tokens, node=node.id, layer=layer, head=3).values():
                check(card)


def test_nodes_are_found_by_their_axes(lm):
    taps = scene(lm, [1, 2]).block_taps
    assert find("gate", taps) == ("neurons", "mlp.hook_pre") and find("ln2", taps) == ("norm", "ln2")
    assert find("v", taps) == ("heads", "attn.hook_v") and find("rope", taps) == ("rope", "attn.rope")
    assert find("no such node", taps) == FALLBACK
    latent = scene(load("tiny-deepseek-v3", device="cpu"), [1, 2], layer=0).block_taps
    assert find("qk_norm", latent) == ("norm", "attn.q_norm") and find("attn.kv_norm", latent) == ("norm", "attn.kv_norm")


def test_nothing_but_one_block_runs_after_the_first_run(tokens, monkeypatch):
    lm, ran = make_lm(tiny_config("head")), []
    step = LM.step
    monkeypatch.setattr(LM, "step", lambda self, stage, *rest: ran.append(stage) or step(self, stage, *rest))
    lm.views(tokens, nodes.requests_for_run(lm, tokens, UiState(layer=0)))
    assert sorted(ran) == [-1, 0, 1, 2]
    for layer in range(3):
        for node in NODES:
            ran.clear()
            shown(lm, tokens, node=node, layer=layer)
            logits = [3] if node == "resid_post" and layer == 2 else []
            assert ran in ([layer, *logits], logits), (node, layer)
            ran.clear()
            shown(lm, tokens, node=node, layer=layer)
            assert ran == logits


@pytest.mark.parametrize("node", ["logits", "gate", "q", "rope", "ln1", "resid_mid"])
def test_a_long_prompt_of_a_wide_model_stays_small(wide, node):
    lm, tokens = wide
    for state in ({"log": 1}, {"hide_first": 1, "neurons": "sorted"}):
        for card in shown(lm, tokens, node=node, head=17, **state).values():
            check(card)


@pytest.fixture(scope="module")
def wide():
    """512 tokens, 32 heads, 14,336 neurons."""
    config = tiny_config(layers=2)
    block = config.blocks[0]
    attn = replace(block.attn, n_heads=32, n_kv_heads=8)
    block = replace(block, attn=attn, mlp=replace(block.mlp, d_mlp=14_336))
    tokens = torch.randint(131, (512,), generator=torch.Generator().manual_seed(0)).tolist()
    return make_lm(replace(config, blocks=(block,) * 2, context=1024)), tokens


# ---- bad numbers, hostile words ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("part", "value"),
    [("blocks.1.attn.q_proj.weight", np.nan), ("blocks.1.mlp.up_proj.weight", np.inf), ("embed.weight", np.nan)],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_bad_weights_are_shown_and_counted(tokens, part, value):
    lm = poisoned(part, value)
    tokens = [0, *tokens]
    for node in NODES:
        for card in shown(lm, tokens, node=node, head=0).values():
            check(card)
    at = {"blocks.1.attn.q_proj.weight": "q", "blocks.1.mlp.up_proj.weight": "up", "embed.weight": "resid_pre"}[part]
    main = next(iter(shown(lm, tokens, node=at, head=0).values()))
    assert ("NaN (drawn magenta)" in main.caption or "inf (drawn" in main.caption) and len(main.figure.data) == 2
    assert "not all finite" in shown(lm, tokens, node="resid_post", layer=2)["next-token"].caption


def test_hostile_tokens_are_shown_literally():
    lm = load("tiny-qwen3", device="cpu")
    tokens = lm.encode("<b>x</b> <img src=x onerror=alert(1)> ${alert(1)} %{x} <s>")
    for node in NODES:
        for card in shown(lm, tokens, node=node).values():
            for text in texts(card.figure.to_plotly_json() if card.figure is not None else {}):
                clean = text.replace("<b>", "").replace("</b>", "").replace("<br>", "").replace("<extra></extra>", "")
                assert "<" not in clean and not clean.startswith("${"), text


def test_captions_say_tensor_formula_dtype_and_what_was_pooled(lm, tokens):
    caption = shown(lm, tokens)["scores"].caption
    assert (
        caption
        == "blocks.1.attn.hook_logits = q·k/√10, fp32 · 23 × 23, nothing pooled · future keys are not attended and left empty"
    )
    assert "shown before that scale" in shown(lm, tokens, stage="raw")["scores"].caption
    assert shown(lm, tokens, node="gate")["neurons-mlp.hook_pre"].caption.startswith(
        "blocks.1.mlp.hook_pre (gate before the activation"
    )
    assert attention.formula(scene(lm, tokens), "pattern") == "softmax(q·k/√10) over the visible keys"


def test_themes_change_colours_and_nothing_else(lm, tokens):
    for node in ("logits", "gate", "rope"):
        light, dark = (shown(lm, tokens, theme, node=node) for theme in (LIGHT, DARK))
        assert [card.caption for card in light.values()] == [card.caption for card in dark.values()]
        for a, c in zip(light.values(), dark.values(), strict=True):
            if a.figure is not None and a.figure.data[0].type == "heatmap":
                assert np.array_equal(a.figure.data[0].z, c.figure.data[0].z, equal_nan=True)


def test_the_table_of_nodes_is_complete():
    assert {*BY_AXES.values(), "norm", "rope", "qk_norm", "tensor"} == set(nodes.NODES)
