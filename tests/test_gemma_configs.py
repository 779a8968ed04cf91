"""config.json of Gemma 1, 2 and 3 -> model config: which layers slide, soft-caps, divisor, activation, two rotations."""

import math

import pytest
import torch
from configs import attn, config, notes, refusal, values

from model.checkpoints.families import config_of
from model.errors import BlockscopeError
from model.masks import Causal, Sliding
from model.mlp import GLU
from model.positions import Linear


def kinds(kind, **changes):
    return [isinstance(b.attn.mask, Sliding) for b in config(kind, **changes).blocks]


def test_which_layers_slide():
    assert kinds("gemma2") == [True, False, True, False]
    slides = kinds("gemma3_text", without=["sliding_window_pattern"], num_hidden_layers=12)
    assert [i for i, slide in enumerate(slides) if not slide] == [5, 11]
    assert "sliding_window_pattern is not given: 6" in notes("gemma3_text", without=["sliding_window_pattern"])
    assert kinds("gemma3_text", sliding_window_pattern=3) == [True, True, False, True]
    assert kinds("gemma3_text", sliding_window_pattern=1) == [False] * 4
    with_underscore = {"without": ["sliding_window_pattern"], "_sliding_window_pattern": 3}
    assert kinds("gemma3_text", **with_underscore) == [True, True, False, True]
    assert "sliding_window_pattern is 2 but _sliding" in refusal("gemma3_text", _sliding_window_pattern=3)
    for bad in (0, -1, 2.5, "2", True):
        assert "sliding_window_pattern" in refusal("gemma3_text", sliding_window_pattern=bad)


@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text"])
def test_explicit_layer_types_win_and_must_fit(kind):
    explicit = ["full_attention", "full_attention", "sliding_attention", "sliding_attention"]
    assert kinds(kind, layer_types=explicit) == [False, False, True, True]
    assert ("layer_types is used" in notes(kind, layer_types=explicit)) == (kind == "gemma3_text")
    assert "layer_types has 3 entries" in refusal(kind, layer_types=explicit[:3])
    assert "'chunked_attention'" in refusal(kind, layer_types=[*explicit[:3], "chunked_attention"])
    assert "layer_types" in refusal("gemma", layer_types=explicit) and "layer_types" in refusal(
        "olmo2", layer_types=explicit[:3]
    )


@pytest.mark.parametrize("kind", ["gemma2", "gemma3_text"])
def test_windows(kind):
    assert attn(config(kind)).mask == Sliding(window=5)
    assert attn(config(kind, without=["sliding_window"])).mask == Sliding(window=4096)
    assert "sliding_window is not given: 4096" in notes(kind, without=["sliding_window"])
    for nothing in (None, 0, -1):
        assert attn(config(kind, sliding_window=nothing)).mask == Causal()
    assert "sliding_window" in refusal(kind, sliding_window=-2)


def test_soft_caps():
    plain, named = config("gemma2", attn_logit_softcapping=None, final_logit_softcapping=None), config("gemma2")
    assert (attn(plain).softcap, plain.softcap) == (None, None)
    assert (attn(named).softcap, named.softcap) == (1.5, 0.1)
    absent = config("gemma2", without=["attn_logit_softcapping", "final_logit_softcapping"])
    assert (attn(absent).softcap, absent.softcap) == (50.0, 30.0)
    assert "attn_logit_softcapping is not given: 50" in notes("gemma2", without=["attn_logit_softcapping"])
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        for bad in (0, 0.0, -30.0, math.nan, math.inf, "30", True):
            assert name in refusal("gemma2", **{name: bad})


def test_gemma3_caps_the_output_if_asked_and_attention_never():
    assert config("gemma3_text").softcap is None is attn(config("gemma3_text")).softcap
    assert config("gemma3_text", final_logit_softcapping=30.0).softcap == 30
    assert "QK-norm" in refusal("gemma3_text", attn_logit_softcapping=50.0)


@pytest.mark.parametrize(("scalar", "expected"), [(144, 0.0833333), (168, 0.0771517), (256, 0.0625), (224, 0.0668153)])
def test_the_divisor_of_attention_is_its_own_field(scalar, expected):
    for kind in ("gemma2", "gemma3_text"):
        model = config(kind, query_pre_attn_scalar=scalar, head_dim=128)
        assert attn(model).logit_scale == pytest.approx(expected, abs=1e-7)
    assert attn(config("gemma", head_dim=128)).logit_scale == pytest.approx(0.0883883, abs=1e-7)


def test_the_divisor_must_be_a_positive_number():
    assert attn(config("gemma2", without=["query_pre_attn_scalar"])).scale == 1 / 16
    assert "query_pre_attn_scalar is not given: 256" in notes("gemma2", without=["query_pre_attn_scalar"])
    for bad in (0, -1, "256", math.nan):
        assert "query_pre_attn_scalar" in refusal("gemma2", query_pre_attn_scalar=bad)


@pytest.mark.parametrize("kind", ["gemma", "gemma2", "gemma3_text"])
def test_a_gemma_that_says_gelu_means_its_tanh_form(kind):
    def activation(**changes):
        return config(kind, without=["hidden_act", "hidden_activation"], **changes).blocks[0].mlp.activation

    assert activation(hidden_act="gelu", hidden_activation=None) == activation(hidden_act="gelu") == "gelu_tanh"
    assert "tanh form" in notes(kind, hidden_act="gelu", hidden_activation=None)
    assert (
        activation()
        == activation(hidden_act="gelu_pytorch_tanh")
        == activation(hidden_activation="gelu_pytorch_tanh")
        == "gelu_tanh"
    )
    assert activation(hidden_act="gelu", hidden_activation="gelu_pytorch_tanh") == "gelu_tanh"
    assert activation(hidden_activation="gelu") == "gelu"  # the newer field is taken at its word, as transformers does
    assert "hidden_act" in refusal(kind, hidden_act="silu") and isinstance(config(kind).blocks[0].mlp, GLU.Config)


def test_embeddings_are_scaled():
    for kind in ("gemma", "gemma2", "gemma3_text"):
        assert config(kind).embed_scale == math.sqrt(42)
    assert all(config(kind).embed_scale is None for kind in ("gpt2", "gptj", "olmo2"))


OLD = {"rope_local_base_freq": 10_000.0, "rope_theta": 1e6, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
NEW = {
    "rope_parameters": {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000},
    }
}


@pytest.mark.parametrize(
    "spelling", [OLD, NEW, OLD | NEW, {"rope_scaling": OLD["rope_scaling"]}], ids=["old", "new", "both", "defaults"]
)
def test_gemma3_has_two_rotations_and_scales_one(spelling):
    """head_dim 256: layer 0 is local, layer 5 global."""
    model = config(
        "gemma3_text", without=["rope_scaling", "sliding_window_pattern"], head_dim=256, num_hidden_layers=6, **spelling
    )
    local, full = (attn(model, i).rope for i in (0, 5))
    assert local.scaling is None and full.scaling == Linear(factor=8.0)
    torch.testing.assert_close(local.frequencies()[0][:2], torch.tensor([1.0, 0.930572]), atol=1e-6, rtol=0)
    torch.testing.assert_close(full.frequencies()[0][:2], torch.tensor([0.125, 0.112211]), atol=1e-6, rtol=0)


def test_gemma3_rotations_that_contradict_each_other_or_are_not_known():
    sentence = refusal("gemma3_text", rope_local_base_freq=20_000.0, **NEW)
    assert "rope_local_base_freq is 20000.0" in sentence and "rope_parameters.sliding_attention.rope_theta is 10000" in sentence
    sentence = refusal("gemma3_text", rope_theta=5e5, **NEW)
    assert "rope_theta is 500000.0" in sentence and "rope_parameters.full_attention.rope_theta is 1000000.0" in sentence
    assert "rope_theta" in refusal("gemma3_text", rope_parameters={"rope_theta": 1e6, "rope_type": "default"})
    assert "chunked_attention" in refusal("gemma3_text", rope_parameters=NEW["rope_parameters"] | {"chunked_attention": {}})
    assert "'su'" in refusal(
        "gemma3_text", without=["rope_scaling"], rope_parameters={"sliding_attention": {"rope_type": "su"}}
    )
    assert "full_attention" in refusal("gemma3_text", rope_parameters={"full_attention": 7})
    assert "rope_local_base_freq" in refusal("gemma2", rope_local_base_freq=10_000.0)
    assert "per layer type" in refusal("gemma2", **NEW)
    assert "for full_attention" in notes("gemma3_text") and "for sliding_attention" in notes("gemma3_text")


def test_only_causal_attention_is_known():
    for kind in ("gemma2", "gemma3_text"):
        assert "use_bidirectional_attention" in refusal(kind, use_bidirectional_attention=True)
        assert config(kind, use_bidirectional_attention=False) == config(kind)


def test_missing_heads_are_the_defaults_of_gemma_and_said():
    bare = ["num_attention_heads", "num_key_value_heads", "head_dim"]
    for kind, heads in {"gemma": (16, 16), "gemma2": (8, 4), "gemma3_text": (8, 4)}.items():
        a = attn(config(kind, without=bare))
        assert (a.n_heads, a.n_kv_heads, a.d_head) == (*heads, 256)
        assert all(f"{name} is not given" in notes(kind, without=bare) for name in bare)
    assert attn(config("gemma2", num_key_value_heads=None)).n_kv_heads == 6  # null: one for each query head


def test_a_gemma_that_sees_opens_as_its_language_model():
    text = values("gemma3_text")
    outer = {"model_type": "gemma3", "vision_config": {"hidden_size": 8}, "mm_tokens_per_image": 4, "image_token_index": 9}
    model, _, said = config_of(outer | {"text_config": text})
    assert model == config_of(text)[0] and "only the language model" in said[0]
    assert config_of(outer | {"text_config": {k: v for k, v in text.items() if k != "model_type"}})[0] == model
    assert not config_of(outer | {"tie_word_embeddings": False, "text_config": text})[0].tied
    for wrong, word in (
        (None, "text_config is None"), ([], "text_config is []"), (text | {"model_type": "gemma2"}, "'gemma2'"),
        (text | {"sliding_window": -7}, "config.json, text_config: sliding_window"),
        (text | {"tie_word_embeddings": True}, "text_config.tie_word_embeddings is True"),
    ):  # fmt: skip
        with pytest.raises(BlockscopeError) as caught:
            config_of(outer | {"tie_word_embeddings": False, "text_config": wrong})
        assert word in str(caught.value)
    with pytest.raises(BlockscopeError, match="quantised"):
        config_of(outer | {"text_config": text, "quantization_config": {"bits": 4}})
