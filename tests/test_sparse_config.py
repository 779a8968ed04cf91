"""config.json of models with experts: as published (the very presets), as transformers saves it, and refused."""

import json

import pytest
from sparse_cases import SPARSE, build_sparse, sparse_json

from model import PRESETS
from model.checkpoints.families import config_of
from model.errors import BlockscopeError
from model.masks import Causal, Chunked, Sliding
from model.moe import MoE
from model.routing import SoftmaxTopK, TopKSoftmax

SAID = {"attention_dropout": 0.0, "hidden_act": "silu", "initializer_range": 0.02, "torch_dtype": "bfloat16", "use_cache": True}
SAID |= {"bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False, "output_router_logits": False}
DEEPSEEK = {
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekConfig"}, "attention_bias": False, "aux_loss_alpha": 0.001,
    "ep_size": 1, "kv_lora_rank": 512, "max_position_embeddings": 163840, "moe_layer_freq": 1, "num_attention_heads": 128,
    "num_key_value_heads": 128, "pretraining_tp": 1, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-06, "rope_theta": 10000, "seq_aux": True, "v_head_dim": 128,
    "rope_scaling": {
        "beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096, "type": "yarn",
    },
}  # fmt: skip
SIXES = ["sliding_attention", "full_attention"]
GPT_OSS = {
    "attention_bias": True, "experts_per_token": 4, "head_dim": 64, "hidden_size": 2880, "initial_context_length": 4096,
    "intermediate_size": 2880, "max_position_embeddings": 131072, "model_type": "gpt_oss", "num_attention_heads": 64,
    "num_experts_per_tok": 4, "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 150000,
    "rope_scaling": {
        "beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0, "original_max_position_embeddings": 4096, "rope_type": "yarn",
        "truncate": False,
    },
    "router_aux_loss_coef": 0.9, "sliding_window": 128, "swiglu_limit": 7.0, "vocab_size": 201088,
}  # fmt: skip
PUBLISHED = {  # preset -> its config.json
    "mixtral-8x7b": {
        "hidden_size": 4096, "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mixtral",
        "num_attention_heads": 32, "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "num_local_experts": 8, "rms_norm_eps": 1e-05, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02,
        "sliding_window": None, "vocab_size": 32000,
    },
    "qwen3-30b-a3b": {
        "attention_bias": False, "decoder_sparse_step": 1, "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144,
        "max_position_embeddings": 40960, "max_window_layers": 48, "mlp_only_layers": [], "model_type": "qwen3_moe",
        "moe_intermediate_size": 768, "norm_topk_prob": True, "num_attention_heads": 32, "num_experts": 128,
        "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": None,
        "use_sliding_window": False, "vocab_size": 151936,
    },
    "llama4-scout": {
        "model_type": "llama4", "boi_token_index": 200080, "image_token_index": 200092, "vision_config": {"hidden_size": 1408},
        "tie_word_embeddings": False,
        "text_config": {
            "attention_bias": False, "attention_chunk_size": 8192, "attn_scale": 0.1, "attn_temperature_tuning": 4,
            "floor_scale": 8192, "for_llm_compressor": False, "head_dim": 128, "hidden_act": "silu", "hidden_size": 5120,
            "interleave_moe_layer_step": 1, "intermediate_size": 8192, "intermediate_size_mlp": 16384,
            "max_position_embeddings": 262144, "model_type": "llama4_text", "no_rope_layers": [], "num_attention_heads": 40,
            "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8, "num_local_experts": 16,
            "rms_norm_eps": 1e-05, "rope_theta": 500000.0, "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
            "rope_scaling": {
                "factor": 16.0, "high_freq_factor": 1.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
                "rope_type": "llama3",
            },
            "use_qk_norm": True, "vocab_size": 202048,
        },
    },
    "gpt-oss-20b": GPT_OSS | {"num_hidden_layers": 24, "num_local_experts": 32, "layer_types": SIXES * 12},
    "gpt-oss-120b": GPT_OSS | {"num_hidden_layers": 36, "num_local_experts": 128},
    "deepseek-v2": DEEPSEEK
    | {
        "first_k_dense_replace": 1, "hidden_size": 5120, "intermediate_size": 12288, "model_type": "deepseek_v2",
        "moe_intermediate_size": 1536, "n_group": 8, "n_routed_experts": 160, "n_shared_experts": 2, "norm_topk_prob": False,
        "num_experts_per_tok": 6, "num_hidden_layers": 60, "routed_scaling_factor": 16.0, "scoring_func": "softmax",
        "topk_group": 3, "topk_method": "group_limited_greedy", "vocab_size": 102400,
    },
    "deepseek-v3": DEEPSEEK
    | {
        "first_k_dense_replace": 3, "hidden_size": 7168, "intermediate_size": 18432, "model_type": "deepseek_v3",
        "moe_intermediate_size": 2048, "n_group": 8, "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": True,
        "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_nextn_predict_layers": 1, "routed_scaling_factor": 2.5,
        "scoring_func": "sigmoid", "topk_group": 4, "topk_method": "noaux_tc", "vocab_size": 129280,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_file_is_the_preset(name):
    given = PUBLISHED[name] if "text_config" in PUBLISHED[name] else SAID | PUBLISHED[name]
    config, _, notes = config_of(given)
    assert config == PRESETS[name]
    assert all("auto_map" in note or "language model" in note for note in notes), notes


@pytest.mark.parametrize("case", SPARSE)
def test_what_transformers_saves_reads_as_what_it_was_given(case, tmp_path):
    build_sparse(sparse_json(case)).config.save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "config.json").read_text())
    assert "rope_parameters" in saved and config_of(saved)[0] == config_of(sparse_json(case))[0]


def read(case: str, without: tuple[str, ...] = (), **changes):
    return config_of({name: v for name, v in (sparse_json(case) | changes).items() if name not in without})[0]


def moes(config) -> list[int]:
    return [i for i, block in enumerate(config.blocks) if isinstance(block.mlp, MoE.Config)]


def test_which_layers_have_experts():
    assert moes(read("qwen3_moe")) == [0, 2] and moes(read("qwen3_moe-normed")) == [1]
    assert moes(read("qwen3_moe", mlp_only_layers=None)) == [0, 1, 2]
    assert moes(read("qwen3_moe", mlp_only_layers=[2], decoder_sparse_step=3)) == []
    assert moes(read("deepseek_v3")) == [1, 2] and moes(read("deepseek_v3", first_k_dense_replace=0)) == [0, 1, 2]
    assert moes(read("deepseek_v3", first_k_dense_replace=9)) == []
    assert moes(read("llama4_text")) == [1, 3] and moes(read("llama4_text-128")) == [0, 2]
    assert moes(read("llama4_text", interleave_moe_layer_step=3)) == [2] and moes(read("llama4_text", moe_layers=[])) == []
    widths = [block.mlp.d_mlp for block in read("llama4_text").blocks]
    assert widths == [66, 22, 66, 22]  # intermediate_size_mlp, intermediate_size


def test_which_layers_rotate_and_what_they_see():
    config = read("llama4_text")
    assert [b.attn.rope is not None for b in config.blocks] == [True, True, False, True]
    assert [type(b.attn.mask) for b in config.blocks] == [Chunked, Chunked, Causal, Chunked]
    assert [b.attn.temperature is not None for b in config.blocks] == [False, False, True, False]
    assert [b.attn.q_norm is not None for b in config.blocks] == [True, True, False, True]
    every = read("llama4_text", no_rope_layers=[1, 1, 1, 1], layer_types=["full_attention"] * 4)
    assert {type(b.attn.mask) for b in every.blocks} == {Causal} and all(b.attn.rope for b in every.blocks)


def test_gpt_oss_layers_slide_from_the_first_on():
    config = read("gpt_oss", num_hidden_layers=4)
    assert [type(b.attn.mask) for b in config.blocks] == [Sliding, Causal, Sliding, Causal]
    explicit = read("gpt_oss", layer_types=["full_attention", "sliding_attention", "sliding_attention"])
    assert [type(b.attn.mask) for b in explicit.blocks] == [Causal, Sliding, Sliding]


def test_norm_topk_prob_both_ways():
    assert isinstance(read("qwen3_moe").blocks[0].mlp.routing, SoftmaxTopK)
    assert isinstance(read("qwen3_moe", norm_topk_prob=True).blocks[0].mlp.routing, TopKSoftmax)
    assert read("deepseek_v3").blocks[1].mlp.routing.normalise and not read("deepseek_v3-half").blocks[1].mlp.routing.normalise


def test_absent_rotary_settings_of_gpt_oss_are_its_own_yarn():
    config = read("gpt_oss", without=("rope_scaling", "rope_theta"))
    assert config.blocks[0].attn.rope.scaling == PRESETS["gpt-oss-20b"].blocks[0].attn.rope.scaling
    assert config.blocks[0].attn.rope.base == 150_000.0
    plain = read("gpt_oss-plain")
    assert plain.blocks[0].attn.rope.scaling is None and plain.blocks[0].attn.rope.base == 10_000.0


REFUSED = [  # (case, changes, what the sentence must name)
    ("mixtral", {"num_experts_per_tok": 8}, ("num_experts_per_tok is 8", "7 experts")),
    ("mixtral", {"num_local_experts": 0}, ("num_local_experts is 0",)),
    ("mixtral", {"num_experts": 6}, ("num_local_experts is 7", "num_experts is 6")),
    ("mixtral", {"attention_bias": True}, ("attention_bias",)),
    ("mixtral", {"layer_types": ["sliding_attention"] * 3}, ("layer_types",)),
    ("mixtral", {"router_bias": True}, ("router_bias",)),
    ("qwen3_moe", {"mlp_only_layers": [3]}, ("mlp_only_layers", "0 to 2")),
    ("qwen3_moe", {"mlp_only_layers": 1}, ("mlp_only_layers is 1",)),
    ("qwen3_moe", {"decoder_sparse_step": 0}, ("decoder_sparse_step is 0",)),
    ("qwen3_moe", {"norm_topk_prob": "yes"}, ("norm_topk_prob",)),
    ("qwen3_moe", {"shared_expert_intermediate_size": 8}, ("shared_expert_intermediate_size",)),
    ("deepseek_v2", {"norm_topk_prob": True}, ("norm_topk_prob is True",)),
    ("deepseek_v2", {"topk_method": "noaux_tc"}, ("topk_method",)),
    ("deepseek_v2", {"scoring_func": "sigmoid"}, ("scoring_func",)),
    ("deepseek_v2", {"num_experts_per_tok": None}, ("num_experts_per_tok is missing",)),
    ("deepseek_v2", {"n_group": None}, ("n_group is missing",)),
    ("deepseek_v2", {"n_shared_experts": None}, ("n_shared_experts is null",)),
    ("deepseek_v2", {"rope_interleave": False}, ("rope_interleave",)),
    ("deepseek_v2", {"moe_layer_freq": 2}, ("moe_layer_freq is 2",)),
    ("deepseek_v3", {"n_group": 5}, ("n_group is 5", "12 experts")),
    ("deepseek_v3", {"n_group": 12, "topk_group": 6}, ("n_group is 12", "needs as many")),
    ("deepseek_v3", {"topk_group": 5}, ("topk_group is 5", "n_group is 4")),
    ("deepseek_v3", {"num_experts_per_tok": 7}, ("num_experts_per_tok is 7", "topk_group 2")),
    ("deepseek_v3", {"qk_rope_head_dim": 7}, ("qk_rope_head_dim is 7", "even")),
    ("deepseek_v3", {"qk_head_dim": 21}, ("qk_head_dim is 21", "20")),
    ("deepseek_v3", {"num_key_value_heads": 3}, ("num_key_value_heads is 3", "num_attention_heads is 6")),
    ("deepseek_v3", {"kv_lora_rank": 0}, ("kv_lora_rank is 0",)),
    ("deepseek_v3", {"quantization_config": {"quant_method": "awq"}}, ("quantization_config",)),
    ("llama4_text", {"attention_chunk_size": 0}, ("attention_chunk_size is 0",)),
    ("llama4_text", {"no_rope_layers": [1, 0]}, ("no_rope_layers", "4 layers")),
    ("llama4_text", {"no_rope_layers": [1, 2, 1, 1]}, ("no_rope_layers",)),
    ("llama4_text", {"moe_layers": [4]}, ("moe_layers", "0 to 3")),
    ("llama4_text", {"floor_scale": 0}, ("floor_scale is 0",)),
    ("llama4_text", {"attn_temperature_tuning": "on"}, ("attn_temperature_tuning",)),
    ("llama4_text-128", {"layer_types": ["chunked_attention"] * 3}, ("layer_types", "attention_chunk_size is null")),
    ("gpt_oss", {"swiglu_limit": 5.0}, ("swiglu_limit is 5.0",)),
    ("gpt_oss", {"swiglu_alpha": 1.0}, ("swiglu_alpha",)),
    ("gpt_oss", {"experts_per_token": 2}, ("num_experts_per_tok is 3", "experts_per_token is 2")),
    ("gpt_oss", {"initial_context_length": 100}, ("initial_context_length is 100", "512")),
    ("gpt_oss", {"layer_types": ["chunked_attention"] * 3}, ("layer_types", "chunked_attention")),
]


@pytest.mark.parametrize(("case", "changes", "words"), REFUSED, ids=[f"{c}: {next(iter(d))}" for c, d, _ in REFUSED])
def test_what_contradicts_itself_is_refused_by_name(case, changes, words):
    with pytest.raises(BlockscopeError) as caught:
        read(case, **changes)
    sentence = str(caught.value)
    assert sentence.startswith("config.json") and "\n" not in sentence and len(sentence) < 400
    assert all(word in sentence for word in words), sentence
