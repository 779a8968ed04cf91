"""config.json of GPT-2, GPT-J and OLMo 2 -> model config; and what all designs beside Llama's have in common."""

import copy
import json
import math
import random

import pytest
from configs import LLAMA31, attn, config, notes, refusal, values
from designs import DESIGNS, design_json, new_spelling

from model.block import OutputNorm, Parallel, PreNorm, Sandwich
from model.checkpoints import save_folder
from model.checkpoints.families import config_of
from model.embedding import LearnedPositions
from model.errors import BlockscopeError
from model.mlp import MLP
from model.norms import FullPrecisionRMSNorm, LayerNorm, OffsetRMSNorm
from model.positions import FullPrecisionRope

TYPES = ("gpt2", "gptj", "olmo2", "gemma", "gemma2", "gemma3_text")


# ---- what each design is --------------------------------------------------------------------------------------------


def test_each_type_has_its_wiring_and_norms():
    wirings = {
        "gpt2": PreNorm,
        "gptj": Parallel,
        "olmo2": OutputNorm,
        "gemma": PreNorm,
        "gemma2": Sandwich,
        "gemma3_text": Sandwich,
    }
    norms = {"gpt2": LayerNorm, "gptj": LayerNorm, "olmo2": FullPrecisionRMSNorm}
    for kind, wiring in wirings.items():
        model, norm = config(kind), norms.get(kind, OffsetRMSNorm)
        parts = [p for b in model.blocks for p in vars(b).values()] + [attn(model).q_norm, attn(model).k_norm, model.ln_final]
        assert all(type(block) is wiring.Config for block in model.blocks)
        assert {type(part) for part in parts if hasattr(part, "eps")} == {norm.Config}, kind
        assert {part.eps for part in parts if hasattr(part, "eps")} == {model.ln_final.eps}


def test_qk_norm_spans_the_projection_in_olmo2_and_each_head_in_gemma3():
    olmo, gemma = attn(config("olmo2")), attn(config("gemma3_text"))
    assert (olmo.qk_norm_over, olmo.q_norm.d, olmo.k_norm.d) == ("projection", 60, 30)
    assert (gemma.qk_norm_over, gemma.q_norm.d, gemma.k_norm.d) == ("head", 10, 10)
    assert attn(config("gemma2")).q_norm is None is attn(config("gemma")).q_norm


def test_biases_by_family():
    def biases(kind, **changes):
        model = config(kind, **changes)
        return attn(model).qkv_bias, attn(model).o_bias, model.blocks[0].mlp.bias, model.unembed_bias

    assert biases("gpt2") == (True, True, True, False)
    assert biases("gptj") == (False, False, True, True)
    assert biases("olmo2") == biases("gemma2") == biases("gemma3_text") == (False,) * 4
    for kind in ("olmo2", "gemma", "gemma2", "gemma3_text"):
        assert biases(kind, attention_bias=True) == (True, True, False, False)
    assert "mlp_bias" in refusal("olmo2", mlp_bias=True) and "mlp_bias" in refusal("gemma2", mlp_bias=True)


def test_tied_by_default_or_not():
    assert [config(kind, without=["tie_word_embeddings"]).tied for kind in TYPES] == [True, False, False, True, True, True]
    assert not config("gpt2", tie_word_embeddings=False).tied and config("gptj", tie_word_embeddings=True).tied


def test_olmo2_rotates_in_full_precision():
    assert type(attn(config("olmo2")).rope) is FullPrecisionRope.Config
    scaled = attn(config("olmo2", rope_scaling=LLAMA31)).rope
    assert type(scaled) is FullPrecisionRope.Config and scaled.scaling.factor == 8
    assert type(attn(config("gemma2")).rope) is not FullPrecisionRope.Config


# ---- GPT-2 and GPT-J ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "gptj"])
def test_sizes_go_by_two_names_and_must_agree(kind):
    twins = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    twins["n_positions"] = "max_position_embeddings"
    whole = values(kind)
    renamed = {twins.get(name, name): value for name, value in whole.items()}
    assert config_of(renamed)[0] == config_of(whole)[0] == config_of(whole | renamed)[0]
    for old, new in twins.items():
        sentence = refusal(kind, **{new: 12})
        assert f"{old} is" in sentence and f"{new} is 12" in sentence
    assert "n_ctx is 32" in refusal(kind, n_ctx=32) and config(kind, n_ctx=64) == config(kind)
    assert "n_head 11" in refusal(kind, n_head=11) and "multiple" in refusal(kind, n_head=11)


@pytest.mark.parametrize("kind", ["gpt2", "gptj"])
def test_n_inner_null_or_absent_is_four_times_the_width(kind):
    width = values(kind)["n_embd"]
    assert config(kind, n_inner=None).blocks[0].mlp.d_mlp == config(kind, without=["n_inner"]).blocks[0].mlp.d_mlp == 4 * width
    assert config(kind, n_inner=99).blocks[0].mlp.d_mlp == 99
    for bad in (0, -1, 2.5, "4"):
        assert "n_inner" in refusal(kind, n_inner=bad)


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("gelu_new", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu", "gelu"),
        ("relu", "relu"),
    ],
)
def test_activations_by_name(named, meant):
    for kind in ("gpt2", "gptj"):
        mlp = config(kind, activation_function=named).blocks[0].mlp
        assert isinstance(mlp, MLP.Config) and mlp.activation == meant
    assert "activation_function is not given: gelu_new" in notes("gpt2", without=["activation_function"])


@pytest.mark.parametrize("bad", ["GELU", "tanh", "mish", "quick_gelu", 1, ["gelu"], {}])
def test_activations_that_are_not_known_are_refusal(bad):
    assert "activation_function" in refusal("gpt2", activation_function=bad)
    assert "hidden_act" in refusal("olmo2", hidden_act=bad)
    assert "hidden_activation" in refusal("gemma2", hidden_activation=bad)


def test_eps_has_another_name_here():
    for kind in ("gpt2", "gptj"):
        assert config(kind, layer_norm_epsilon=1e-6).ln_final.eps == 1e-6
        assert config(kind, without=["layer_norm_epsilon"]).ln_final.eps == 1e-5
        assert "layer_norm_epsilon is not given" in notes(kind, without=["layer_norm_epsilon"])
        assert "rms_norm_eps" in refusal(kind, rms_norm_eps=1e-6)
    assert config("olmo2", without=["rms_norm_eps"]).ln_final.eps == 1e-5
    assert config("gemma2", without=["rms_norm_eps"]).ln_final.eps == 1e-6


def test_gpt2_positions_are_as_many_as_its_context():
    model = config("gpt2", n_positions=8)
    assert model.context == 8 and model.positions == LearnedPositions.Config(context=8, d_model=42)
    assert attn(model).rope is None and config("gptj").positions is None


def test_gpt2_scales_of_attention():
    scales = [[b.attn.logit_scale for b in config("gpt2", **changes).blocks] for changes in (
        {}, {"scale_attn_weights": False}, {"scale_attn_by_inverse_layer_idx": True},
    )]  # fmt: skip
    root = 7**-0.5
    assert scales == [[root] * 3, [1.0] * 3, [root, root / 2, root / 3]]
    assert "rounding" in notes("gpt2", reorder_and_upcast_attn=True)
    assert "add_cross_attention" in refusal("gpt2", add_cross_attention=True)
    for name in ("scale_attn_weights", "scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        assert name in refusal("gpt2", **{name: "yes"})


def test_gptj_turns_a_part_of_each_head_as_adjacent_pairs():
    rope = attn(config("gptj")).rope
    assert (rope.d, rope.base, rope.pairing) == (4, 10_000, "interleaved")
    for bad in (3, 12, 0, -2, None, "4", 2.0):
        assert "rotary_dim" in refusal("gptj", rotary_dim=bad)
    assert "rotary_dim is 64" in refusal("gptj", without=["rotary_dim"])  # the default, wider than these heads
    assert "rotary_dim is not given: 64" in notes("gptj", without=["rotary_dim"], n_embd=128, n_head=2)
    assert "rotary" in refusal("gptj", rotary=False) and config("gptj", rotary=True) == config("gptj")
    assert "scale_attn_weights" in refusal("gptj", scale_attn_weights=False)
    assert config("gptj", scale_attn_weights=True) == config("gptj")


# ---- unknown fields and spellings -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TYPES)
def test_fields_of_other_designs_are_refused_by_name(kind):
    foreign = {
        "num_experts": 8, "kv_lora_rank": 512, "attention_chunk_size": 8, "use_qk_norm": True, "clip_qkv": 8.0,
        "residual_multiplier": 0.22, "alibi": True, "partial_rotary_factor": 0.5, "attention_sinks": True,
    }  # fmt: skip
    for name, value in foreign.items():
        assert name in refusal(kind, **{name: value})
    if kind != "gemma2":
        assert "attn_logit_softcapping" in refusal(kind, attn_logit_softcapping=50.0)
    if not kind.startswith("gemma"):
        assert "final_logit_softcapping" in refusal(kind, final_logit_softcapping=50.0)


@pytest.mark.parametrize("case", DESIGNS)
def test_what_transformers_saves_reads_as_what_it_was_values(case, tmp_path):
    assert config_of(new_spelling(case, tmp_path))[0] == config_of(json.loads(json.dumps(design_json(case))))[0]


ODD = [
    None,
    True,
    False,
    0,
    -1,
    3,
    1 << 70,
    0.5,
    1e308,
    math.nan,
    "",
    "x",
    "gelu",
    [],
    [1],
    {},
    [None] * 3,
    ["full_attention"] * 4,
]
ODD += [{"rope_type": "yarn"}, {"full_attention": {}}, {"sliding_attention": {"rope_theta": "1"}}, {"full_attention": [1]}]


@pytest.mark.parametrize("kind", TYPES)
def test_any_value_in_any_field_opens_or_is_refused_in_one_sentence(kind):
    dice = random.Random(kind)
    names = [
        *values(kind),
        "rope_parameters",
        "rope_scaling",
        "rope_local_base_freq",
        "layer_types",
        "hidden_activation",
        "n_ctx",
    ]
    names += ["sliding_window_pattern", "n_inner", "rotary", "hidden_size", "attention_bias", "final_logit_softcapping"]
    for _ in range(500):
        given = values(kind)
        for name in dice.sample(names, dice.randint(1, 3)):
            given[name] = copy.deepcopy(dice.choice(ODD))
        try:
            config_of(given)
        except BlockscopeError as error:
            assert str(error) and "\n" not in str(error) and len(str(error)) < 400


@pytest.mark.parametrize("kind", TYPES)
def test_designs_that_saving_has_no_words_for_are_refused_before_a_file_is_written(kind, tmp_path):
    with pytest.raises(BlockscopeError, match="no Hugging Face model_type"):
        save_folder(tmp_path / "out", config(kind), {})
    assert not (tmp_path / "out").exists()


def test_the_list_of_types_is_said():
    assert "gemma3" in refusal("gemma4") and "olmo2" in refusal("gemma4")
