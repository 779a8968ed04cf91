"""Config files of the designs beside Llama's, as they were published."""

import pytest
from configs import attn

from model import PRESETS
from model.checkpoints.families import config_of
from model.errors import BlockscopeError
from model.masks import Sliding
from model.positions import Linear

COMMON = {"initializer_range": 0.02, "torch_dtype": "bfloat16", "transformers_version": "4.42.4", "use_cache": True}
GEMMA2_9B = {
    "architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "attn_logit_softcapping": 50.0,
    "bos_token_id": 2, "cache_implementation": "hybrid", "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 3584,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 16,
    "num_hidden_layers": 42, "num_key_value_heads": 8, "pad_token_id": 0, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06,
    "rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096, "vocab_size": 256000,
}  # fmt: skip
PUBLISHED = {  # (layers, heads, KV heads, head width, context) as the model cards give them
    "gpt2": (
        (12, 12, 12, 64, 1024),
        {
            "activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "attn_pdrop": 0.1, "bos_token_id": 50256,
            "embd_pdrop": 0.1, "eos_token_id": 50256, "layer_norm_epsilon": 1e-05, "model_type": "gpt2", "n_ctx": 1024,
            "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "resid_pdrop": 0.1, "summary_activation": None,
            "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
            "vocab_size": 50257,
        },
    ),
    "gptj-6b": (
        (28, 16, 16, 256, 2048),
        {
            "activation_function": "gelu_new", "architectures": ["GPTJForCausalLM"], "attn_pdrop": 0.0, "bos_token_id": 50256,
            "embd_pdrop": 0.0, "eos_token_id": 50256, "gradient_checkpointing": False, "layer_norm_epsilon": 1e-05,
            "model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": None, "n_layer": 28, "n_positions": 2048,
            "resid_pdrop": 0.0, "rotary": True, "rotary_dim": 64, "scale_attn_weights": True, "summary_activation": None,
            "summary_first_dropout": 0.1, "summary_proj_to_labels": True, "summary_type": "cls_index",
            "summary_use_proj": True, "task_specific_params": {"text-generation": {"do_sample": True, "temperature": 1.0}},
            "tie_word_embeddings": False, "tokenizer_class": "GPT2Tokenizer", "vocab_size": 50400,
        },
    ),
    "olmo2-7b": (
        (32, 32, 32, 128, 4096),
        {
            "architectures": ["Olmo2ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "eos_token_id": 100257,
            "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "max_position_embeddings": 4096,
            "model_type": "olmo2", "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
            "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": None, "rope_theta": 500000,
            "tie_word_embeddings": False, "vocab_size": 100352,
        },
    ),
    "gemma2-9b": ((42, 16, 8, 256, 8192), {k: v for k, v in GEMMA2_9B.items() if k != "sliding_window_size"}),
    "gemma3-4b": (
        (34, 8, 4, 256, 131072),
        {
            "architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000,
            "eos_token_id": [1, 106], "image_token_index": 262144, "mm_tokens_per_image": 256, "model_type": "gemma3",
            "text_config": {
                "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
                "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304, "model_type": "siglip_vision_model",
                "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
            },
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_are_the_presets(name):
    assert config_of(COMMON | PUBLISHED[name][1])[0] == PRESETS[name]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_files_open(name):
    expected, values = PUBLISHED[name]
    model, _, said = config_of(COMMON | values)
    a = attn(model)
    assert (model.n_layers, a.n_heads, a.n_kv_heads, a.d_head, model.context) == expected
    loud = [note for note in said if "is not given" not in note]
    assert loud == (["of a gemma3 model only the language model is opened, from text_config"] if name == "gemma3-4b" else [])


def test_the_published_gemma3_is_filled_from_the_defaults_of_its_type():
    model = config_of(COMMON | PUBLISHED["gemma3-4b"][1])[0]
    slides = [isinstance(b.attn.mask, Sliding) for b in model.blocks]
    assert [i for i, slide in enumerate(slides) if not slide] == [5, 11, 17, 23, 29] and model.d_vocab == 262_208
    local, full = model.blocks[0].attn, model.blocks[5].attn
    assert (local.rope.base, full.rope.base, full.rope.scaling) == (1e4, 1e6, Linear(factor=8.0))
    assert local.mask == Sliding(window=1024) and local.rope.scaling is None


def test_a_field_that_gemma2_has_under_another_name_is_refusal():
    with pytest.raises(BlockscopeError, match="sliding_window_size"):
        config_of(COMMON | GEMMA2_9B)
