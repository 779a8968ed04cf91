"""config.json -> model config: sizes, heads, norms, biases, windows, defaults and refusals of each family."""

import copy
import random
import time
import tracemalloc

import pytest
import torch
from configs import attn, config, notes, refusal, values

from model.checkpoints.families import FAMILIES, config_of
from model.errors import BlockscopeError
from model.masks import Causal, Sliding
from model.norms import RMSNorm

# ---- which model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["gemma4_text", "LLAMA", "", 7, ["llama"], {"a": 1}])
def test_unknown_model_type_is_named_with_the_supported_list(given):
    sentence = refusal(given)
    assert repr(given) in sentence
    assert all(name in sentence for name in FAMILIES)


def test_missing_model_type_is_said():
    assert "model_type is missing" in refusal(without=["model_type"])


@pytest.mark.parametrize("name", ["vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"])
@pytest.mark.parametrize("value", [None, 0, -1, 2.5, 8.0, "8", True, [8], 10**9, 10**400])
def test_a_size_must_be_a_sensible_whole_number(name, value):
    assert name in refusal(**{name: value})


def test_absurd_sizes_are_refused_at_once_and_allocate_nothing():
    tracemalloc.start()
    start = time.perf_counter()
    for name in ("num_hidden_layers", "hidden_size", "vocab_size", "head_dim", "intermediate_size"):
        assert name in refusal(**{name: 10**9})
    assert time.perf_counter() - start < 5
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_encoder_decoders_and_quantised_weights_are_refused():
    assert "is_encoder_decoder" in refusal(is_encoder_decoder=True)
    assert "quantised" in refusal(quantization_config={"quant_method": "gptq", "bits": 4})


# ---- heads ----------------------------------------------------------------------------------------------------------


def test_head_dim_is_independent_and_null_and_absent_mean_the_quotient():
    sizes = {"hidden_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2}
    wide = attn(config(**sizes, head_dim=16))
    assert wide.d_head == wide.rope.d == 16
    assert wide.build().q_proj.weight.shape == (64, 40) and wide.build().o_proj.weight.shape == (40, 64)
    assert attn(config(**sizes, head_dim=None)).d_head == attn(config(without=["head_dim"], **sizes)).d_head == 10
    narrow = attn(config(**sizes, head_dim=6))
    assert narrow.build().o_proj.weight.shape == (40, 24)


def test_qwen3_heads_are_128_unless_said():
    assert attn(config("qwen3", without=["head_dim"])).d_head == 128
    assert "head_dim is not given: 128" in notes("qwen3", without=["head_dim"])
    assert attn(config("qwen3", head_dim=None, hidden_size=48)).d_head == 8


def test_odd_heads_are_refused_because_coordinates_turn_in_pairs():
    assert "head_dim is 7" in refusal(head_dim=7)
    assert "head_dim is 7" in refusal(without=["head_dim"])  # 42 / 6
    assert "add it" in refusal(without=["head_dim"], hidden_size=43)


@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "qwen3", "olmo2"])
def test_kv_heads_absent_or_null_are_the_query_heads(model_type):
    for model in (
        config(model_type, without=["num_key_value_heads"], num_attention_heads=4),
        config(model_type, num_attention_heads=4, num_key_value_heads=None),
    ):
        assert attn(model).n_kv_heads == 4


@pytest.mark.parametrize("count", [0, 3, 8, -2, 2.0, "2"])
def test_kv_heads_that_do_not_divide_are_refused(count):
    sentence = refusal(num_attention_heads=4, num_key_value_heads=count)
    assert "num_key_value_heads" in sentence and repr(count) in sentence


# ---- norms, biases, activation --------------------------------------------------------------------------------------


def test_eps_comes_from_the_file():
    x = torch.full((1, 1, 4), 1e-3)
    for eps, expected in ((1e-5, 0.30151137), (1e-6, 0.70710677)):
        model = config("qwen3", rms_norm_eps=eps, head_dim=4)
        block = model.blocks[0]
        for norm in (block.ln1, block.ln2, model.ln_final, block.attn.q_norm, block.attn.k_norm):
            assert norm.eps == eps
        out = RMSNorm.Config(d=4, eps=block.ln1.eps).build()(x)
        torch.testing.assert_close(out, torch.full_like(out, expected), rtol=1e-6, atol=0)


def test_missing_eps_is_the_default_and_reported():
    assert config(without=["rms_norm_eps"]).ln_final.eps == 1e-6
    assert "rms_norm_eps is not given: 1e-06 is used" in notes(without=["rms_norm_eps"])
    for bad in (-1e-5, 1, "1e-5", True):
        assert "rms_norm_eps" in refusal(rms_norm_eps=bad)


def test_llama_rule_casts_before_the_gain():
    norm = RMSNorm.Config(d=4, eps=config().ln_final.eps).build()
    norm.weight.data = torch.tensor([1, 1.5, 1, 1])
    out = norm.to(torch.bfloat16)(torch.tensor([1, 1.0078125, 0.5, 2], dtype=torch.bfloat16))
    assert out.dtype == torch.bfloat16 and out[1].item() == 1.203125


def test_biases_by_family():
    def biases(model_type, **changes):
        block = config(model_type, **changes).blocks[0]
        return block.attn.qkv_bias, block.attn.o_bias, block.mlp.bias

    assert biases("llama") == (False, False, False)
    assert biases("llama", attention_bias=True) == (True, True, False)
    assert biases("llama", mlp_bias=True) == (False, False, True)
    assert biases("qwen2") == biases("qwen2", attention_bias=False) == (True, False, False)
    assert biases("qwen3") == biases("mistral") == biases("mistral", attention_bias=False) == (False, False, False)
    assert biases("qwen3", attention_bias=True) == (True, True, False)
    assert "attention_bias" in refusal("mistral", attention_bias=True)
    assert "mlp_bias" in refusal("qwen3", mlp_bias=True)
    assert "attention_bias" in refusal(attention_bias="yes")


def test_only_silu_is_known():
    assert config(hidden_act="silu") == config(hidden_act="swish") == config(hidden_act=None)
    for other in ("gelu", "gelu_pytorch_tanh", "relu", "SiLU", 1):
        assert "hidden_act" in refusal(hidden_act=other) and repr(other) in refusal(hidden_act=other)


def test_qk_norm_is_qwen3_only_and_per_head():
    qwen3, llama = attn(config("qwen3")), attn(config("llama"))
    assert qwen3.q_norm.d == qwen3.k_norm.d == qwen3.d_head and qwen3.qk_norm_over == "head"
    assert llama.q_norm is llama.k_norm is None


def test_tied_or_not():
    assert config(tie_word_embeddings=True).tied and not config(tie_word_embeddings=False).tied
    assert not config(without=["tie_word_embeddings"]).tied
    assert "tie_word_embeddings" in refusal(tie_word_embeddings="true")


# ---- windows --------------------------------------------------------------------------------------------------------


def rows(mask, length):
    position = torch.arange(length)
    return mask(position, position).sum(1).tolist()


def test_a_window_counts_the_token_itself():
    assert rows(attn(config("mistral", sliding_window=3)).mask, 5) == [1, 2, 3, 3, 3]
    assert rows(attn(config("mistral", sliding_window=3)).mask, 8) == [1, 2, 3, 3, 3, 3, 3, 3]


@pytest.mark.parametrize("window", [None, 0, -1, 100])
def test_windows_that_hide_nothing(window):
    mask = attn(config("mistral", sliding_window=window)).mask
    assert rows(mask, 4) == [1, 2, 3, 4]
    assert isinstance(mask, Sliding) == (window == 100)
    assert ("read as no window" in notes("mistral", sliding_window=window)) == (window in (0, -1))


def test_windows_by_family():
    assert attn(config("mistral", without=["sliding_window"])).mask == Sliding(window=4096)
    assert "sliding_window is not given: 4096" in notes("mistral")
    for bad in (-2, 2.5, "4096", True):
        assert "sliding_window" in refusal("mistral", sliding_window=bad)
    assert "sliding_window" in refusal("llama", sliding_window=4096)
    assert config(sliding_window=None) == config()
    assert config(use_sliding_window=False, sliding_window=4096, max_window_layers=21) == config()
    assert attn(config("qwen2", sliding_window=4096)).mask == Causal()  # off unless use_sliding_window
    assert attn(config("qwen2", use_sliding_window=True, sliding_window=None)).mask == Causal()


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3"])
def test_which_layers_slide(model_type):
    on = {"use_sliding_window": True, "sliding_window": 5}

    def slides(**changes):
        return [isinstance(b.attn.mask, Sliding) for b in config(model_type, **on, **changes).blocks]

    assert slides(max_window_layers=1) == [False, True, True]
    assert slides(max_window_layers=0) == [True] * 3
    assert slides() == [False] * 3  # from layer 28 on
    explicit = ["sliding_attention", "full_attention", "full_attention"]
    assert slides(max_window_layers=1, layer_types=explicit) == [True, False, False]
    assert "layer_types has 2 entries" in refusal(model_type, **on, layer_types=explicit[:2])
    assert "'chunked_attention'" in refusal(model_type, **on, layer_types=[*explicit[:2], "chunked_attention"])
    assert "layer_types" in refusal(model_type, layer_types=explicit)  # slides, but no window is on
    assert "max_window_layers" in refusal(model_type, **on, max_window_layers=-1)
    assert "layer_types" in refusal(model_type, **on, layer_types="sliding_attention")


def test_layer_types_must_fit_families_without_a_choice():
    assert config(layer_types=["full_attention"] * 3) == config()
    assert "layer_types" in refusal(layer_types=["full_attention", "sliding_attention", "full_attention"])
    assert "layer_types" in refusal("mistral", layer_types=["full_attention"] * 3, sliding_window=5)


# ---- the other fields -----------------------------------------------------------------------------------------------


def test_fields_without_effect_pass_in_silence():
    quiet = notes(
        pretraining_tp=2,
        attention_dropout=0.1,
        use_cache=False,
        torch_dtype="bfloat16",
        initializer_range=0.5,
        architectures=["LlamaForCausalLM"],
        transformers_version="4.40.0",
        rope_theta=1e4,
    )
    assert quiet == ""


def test_unknown_fields_are_listed_or_refused():
    assert "my_remark" in notes(my_remark="hello", rope_theta=1e4)
    off = {"attn_logit_softcapping": None, "use_qk_norm": False, "num_experts": 0, "residual_multiplier": 1.0}
    assert config(**off) == config() and notes(**off) == notes()
    for name, value in {
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
        "query_pre_attn_scalar": 144,
        "attention_multiplier": 0.0078125,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
        "logit_scale": 0.0625,
        "num_experts": 8,
        "num_local_experts": 8,
        "use_qk_norm": True,
        "qk_layernorm": True,
        "no_rope_layers": [1, 1, 0],
        "attention_chunk_size": 8192,
        "clip_qkv": 8,
        "alibi": True,
        "parallel_attn": True,
        "kv_lora_rank": 512,
        "rope_local_base_freq": 10_000,
        "rope_interleaved": True,
    }.items():
        assert name in refusal(**{name: value}), name


def test_auto_map_is_never_run_and_said():
    assert "not run" in notes(auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})


def test_hostile_text_in_a_config_stays_text_and_short():
    evil = "<img src=x onerror=alert(1)>" * 20
    assert len(refusal(hidden_act=evil)) < 250
    assert len(notes(**{evil: 1})) < 500


def test_any_value_in_any_field_opens_or_is_refused_in_one_sentence():
    dice = random.Random(0)
    names = [*values("qwen3"), "rope_theta", "rope_scaling", "rope_parameters", "layer_types", "sliding_window"]
    names += ["use_sliding_window", "max_window_layers", "attention_bias", "mlp_bias", "hidden_act", "anything"]
    odd = [None, True, False, 0, -1, 3, 1 << 70, 0.5, 1e308, "", "x", "linear", [], [1], ["full_attention"] * 3, {}]
    odd += [{"type": "yarn"}, {"rope_type": "llama3", "factor": 8}, {"factor": []}, {"rope_theta": "1"}, [None] * 3]
    for _ in range(3000):
        given = values(dice.choice([*FAMILIES, "other"]))
        for name in dice.sample(names, dice.randint(1, 3)):
            given[name] = copy.deepcopy(dice.choice(odd))
        try:
            config_of(given)
        except BlockscopeError as error:
            assert str(error) and "\n" not in str(error)
