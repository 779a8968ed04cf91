"""Config files as published and as transformers saves them."""

import json

import pytest
from configs import LLAMA31, attn
from reference import CASES, build, config_json

from model.checkpoints.families import config_of

COMMON = {
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.40.0",
    "use_cache": True,
}
PUBLISHED = {  # (layers, heads, KV heads, head width, context) as the model cards give them
    "llama-2-7b": (
        (32, 32, 32, 128, 4096),
        {
            "_name_or_path": "meta-llama/Llama-2-7b-hf", "architectures": ["LlamaForCausalLM"], "bos_token_id": 1,
            "eos_token_id": 2, "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
            "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_scaling": None, "tie_word_embeddings": False,
            "vocab_size": 32000,
        },
    ),
    "llama-3.1-8b": (
        (32, 32, 8, 128, 131072),
        {
            "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 128000,
            "eos_token_id": [128001, 128008, 128009], "hidden_size": 4096, "intermediate_size": 14336,
            "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
            "rope_scaling": LLAMA31, "rope_theta": 500000.0, "tie_word_embeddings": False, "vocab_size": 128256,
        },
    ),
    "smollm2-135m": (
        (30, 9, 3, 64, 8192),
        {
            "architectures": ["LlamaForCausalLM"], "attention_bias": False, "bos_token_id": 1, "eos_token_id": 2,
            "hidden_size": 576, "intermediate_size": 1536, "is_llama_config": True, "max_position_embeddings": 8192,
            "mlp_bias": False, "model_type": "llama", "num_attention_heads": 9, "num_hidden_layers": 30,
            "num_key_value_heads": 3, "pad_token_id": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
            "rope_interleaved": False, "rope_scaling": None, "rope_theta": 100000, "tie_word_embeddings": True,
            "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}}, "vocab_size": 49152,
        },
    ),
    "mistral-7b-v0.1": (
        (32, 32, 8, 128, 32768),
        {
            "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 4096,
            "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
            "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
            "rope_theta": 10000.0, "sliding_window": 4096, "tie_word_embeddings": False, "vocab_size": 32000,
        },
    ),
    "mistral-nemo": (
        (40, 32, 8, 128, 131072),
        {
            "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "head_dim": 128,
            "hidden_size": 5120, "intermediate_size": 14336, "max_position_embeddings": 131072,
            "model_type": "mistral", "num_attention_heads": 32, "num_hidden_layers": 40, "num_key_value_heads": 8,
            "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
            "vocab_size": 131072,
        },
    ),
    "qwen2.5-0.5b": (
        (24, 14, 2, 64, 32768),
        {
            "architectures": ["Qwen2ForCausalLM"], "bos_token_id": 151643, "eos_token_id": 151645,
            "hidden_size": 896, "intermediate_size": 4864, "max_position_embeddings": 32768,
            "max_window_layers": 21, "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24,
            "num_key_value_heads": 2, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768,
            "tie_word_embeddings": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 151936,
        },
    ),
    "qwen3-0.6b": (
        (28, 16, 8, 128, 40960),
        {
            "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "bos_token_id": 151643,
            "eos_token_id": 151645, "head_dim": 128, "hidden_size": 1024, "intermediate_size": 3072,
            "max_position_embeddings": 40960, "max_window_layers": 28, "model_type": "qwen3",
            "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
            "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "tie_word_embeddings": True,
            "use_sliding_window": False, "vocab_size": 151936,
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_open_without_a_word(name):
    expected, given = PUBLISHED[name]
    model, _, said = config_of(COMMON | given)
    a = attn(model)
    assert (model.n_layers, a.n_heads, a.n_kv_heads, a.d_head, model.context) == expected
    assert said == [] or said == ["rope_theta is not given: 10000 is used (what these families default to)"]


@pytest.mark.parametrize("case", CASES)
def test_what_transformers_saves_reads_as_what_it_was_given(case, tmp_path):
    theirs = build({**config_json(case)}).config
    theirs.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in saved and "rope_theta" not in saved  # the new spelling, without the old keys
    assert config_of(saved)[0] == config_of(config_json(case))[0]
