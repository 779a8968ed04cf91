"""Files of the designs beside Llama's: every spelling of GPT-2's keys, fused and turned matrices, prefixes, nested Gemmas."""

import json

import pytest
import torch
from designs import design_json
from folders import refusal
from reference import SIZES, build, prompt
from safetensors.torch import save_file

from model import load
from model.checkpoints import open_folder

S = 64  # rows of the causal mask that old files carry


def write(folder, tensors, case, **changes):
    (folder / "config.json").write_text(json.dumps(design_json(case) | changes))
    save_file({name: t.clone().contiguous() for name, t in tensors.items()}, folder / "model.safetensors")
    return folder


def run(folder):
    return load(folder, device="cpu", dtype=torch.float32).forward(prompt())


@pytest.fixture(scope="module")
def made():
    """case -> (transformers' model, its tensors by name without a tied head, its logits)."""
    kept = {}

    def get(case):
        if case not in kept:
            model = build(design_json(case))
            state = dict(model.state_dict())
            if model.config.tie_word_embeddings:
                state.pop("lm_head.weight")
            with torch.no_grad():
                kept[case] = model, state, model(torch.tensor([prompt()])).logits
        return kept[case]

    return get


def renamed(state, old, new):
    return {new + name.removeprefix(old) if name.startswith(old) else name: t for name, t in state.items()}


# ---- GPT-2 ----------------------------------------------------------------------------------------------------------

MASKS = {f"h.{i}.attn.bias": torch.ones(1, 1, S, S).tril() for i in range(3)}
MASKED = {f"h.{i}.attn.masked_bias": torch.tensor(-1e4) for i in range(3)}


def spellings(state):
    bare = renamed(state, "transformer.", "")
    return {
        "no prefix": bare,
        "prefix": state,
        "no prefix, masks": bare | MASKS,
        "prefix, masks": state | {f"transformer.{name}": t for name, t in (MASKS | MASKED).items()},
        "masks as booleans": bare | {name: t.bool() for name, t in MASKS.items()} | MASKED,
        "prefix and a copy of the head": state | {"lm_head.weight": state["transformer.wte.weight"]},
        "no prefix and a copy of the head": bare | {"lm_head.weight": state["transformer.wte.weight"]},
    }


@pytest.mark.parametrize(
    "spelling",
    ["no prefix", "prefix", "no prefix, masks", "prefix, masks", "masks as booleans", "prefix and a copy of the head",
     "no prefix and a copy of the head"],
)  # fmt: skip
def test_every_spelling_of_gpt2_gives_the_same_logits(spelling, tmp_path, made):
    _, state, logits = made("gpt2")
    folder = write(tmp_path, spellings(state)[spelling], "gpt2")
    torch.testing.assert_close(run(folder), logits, rtol=1e-5, atol=1e-6)
    notes = " | ".join(open_folder(folder).report)
    assert ("attn.bias" in notes) == ("masks" in spelling) and ("lm_head.weight" in notes) == ("copy" in spelling)


def test_a_mask_buffer_is_never_a_bias(tmp_path, made):
    _, state, _ = made("gpt2")
    tensors = open_folder(write(tmp_path, spellings(state)["prefix, masks"], "gpt2")).tensors
    assert torch.equal(tensors.read("blocks.1.attn.k_proj.bias"), state["transformer.h.1.attn.c_attn.bias"][42:84])
    assert len(tensors) == len(expected_names(3))


def expected_names(layers):
    leaves = [f"attn.{n}_proj.{leaf}" for n in "qkvo" for leaf in ("weight", "bias")]
    leaves += [f"{part}.{leaf}" for part in ("ln1", "ln2", "mlp.up_proj", "mlp.down_proj") for leaf in ("weight", "bias")]
    outer = ["embed.weight", "positions.weight", "ln_final.weight", "ln_final.bias", "unembed.weight"]
    return {f"blocks.{i}.{leaf}" for i in range(layers) for leaf in leaves} | set(outer)


def test_fused_and_turned_matrices_are_views_of_the_file(tmp_path, made):
    """q, k and v of one c_attn: nothing is copied, and every entry is where the formula has it."""
    _, state, _ = made("gpt2")
    tensors = open_folder(write(tmp_path, state, "gpt2")).tensors
    assert set(tensors) == expected_names(3)
    fused = state["transformer.h.2.attn.c_attn.weight"]
    for n, name in enumerate(("q_proj", "k_proj", "v_proj")):
        part = tensors.read(f"blocks.2.attn.{name}.weight")
        assert torch.equal(part, fused[:, 42 * n : 42 * (n + 1)].T) and part._is_view()
        assert tensors.shape(f"blocks.2.attn.{name}.weight") == (42, 42)
    assert torch.equal(tensors.read("blocks.0.mlp.up_proj.weight"), state["transformer.h.0.mlp.c_fc.weight"].T)


def test_a_square_matrix_is_turned_although_both_ways_fit(tmp_path, made):
    """c_proj with one entry, 7 at [0, 1], stored input first: output feature 1 receives 7 times input 0."""
    _, state, _ = made("gpt2")
    proj = torch.zeros(42, 42)
    proj[0, 1] = 7
    lm = load(write(tmp_path, state | {"transformer.h.0.attn.c_proj.weight": proj}, "gpt2"), device="cpu", dtype=torch.float32)
    taps = lm.capture(prompt(), taps=["blocks.0.attn.hook_z", "blocks.0.hook_attn_out"])
    out = taps["blocks.0.hook_attn_out"] - state["transformer.h.0.attn.c_proj.bias"]
    torch.testing.assert_close(out[..., 1], 7 * taps["blocks.0.attn.hook_z"].flatten(-2)[..., 0], rtol=1e-5, atol=1e-5)
    assert out[..., 0].abs().max() < 1e-6


def test_missing_surplus_and_misshapen_tensors_of_a_fused_file_are_named_once(tmp_path, made):
    _, state, _ = made("gpt2")
    fused = "transformer.h.1.attn.c_attn.weight"
    sentence = refusal(write(tmp_path, {k: t for k, t in state.items() if k != fused}, "gpt2"))
    assert "lacks 1 of" in sentence and sentence.count(fused) == 1

    sentence = refusal(write(tmp_path, state | {fused: state[fused][:, :125]}, "gpt2"))
    assert fused in sentence and "[42, 125]" in sentence and "[42, 126]" in sentence

    turned = "transformer.h.0.mlp.c_fc.weight"
    sentence = refusal(write(tmp_path, state | {turned: state[turned].T}, "gpt2"))
    assert turned in sentence and "[168, 42]" in sentence and "[42, 168]" in sentence

    sentence = refusal(write(tmp_path, state | {"transformer.h.3.ln_1.weight": torch.ones(42)}, "gpt2"))
    assert "transformer.h.3.ln_1.weight" in sentence and "does not have" in sentence

    sentence = refusal(write(tmp_path, state | {"transformer.h.0.crossattention.bias": torch.ones(42)}, "gpt2"))
    assert "crossattention.bias" in sentence

    sentence = refusal(
        write(tmp_path, state | {"transformer.h.0.attn.c_proj.weight": torch.zeros(42, 42, dtype=torch.int8)}, "gpt2")
    )
    assert "stored as I8" in sentence

    sentence = refusal(write(tmp_path, {f"gpt.{k}": t for k, t in state.items()}, "gpt2"))
    assert "transformer.h.0.ln_1.weight" in sentence and "found gpt.transformer." in sentence


def test_two_gpt2s_in_one_folder_are_refused(tmp_path, made):
    _, state, _ = made("gpt2")
    assert "more than one language model" in refusal(write(tmp_path, state | renamed(state, "transformer.", ""), "gpt2"))


def test_a_prompt_longer_than_the_learned_positions(tmp_path, made):
    _, state, _ = made("gpt2")
    short = state | {"transformer.wpe.weight": state["transformer.wpe.weight"][:8]}
    lm = load(write(tmp_path, short, "gpt2", n_positions=8), device="cpu", dtype=torch.float32)
    assert lm.forward(prompt(8)).shape == (1, 8, 131)
    for ids, word in ((prompt(9), "9 tokens exceed the 8 learned positions"), ([], "token")):
        with pytest.raises(Exception, match=word) as caught:
            lm.forward(ids)
        assert type(caught.value).__name__ == "BlockscopeError"
    with pytest.raises(Exception, match="learned positions"):  # also one token at a time
        lm.generate(prompt(7), 3)


def test_the_bias_of_keys_alone_moves_no_weight_of_a_model_without_rotation(tmp_path, made):
    """It adds the same number to a whole row of logits, so it is visible at hook_k and in no pattern."""
    _, state, logits = made("gpt2")
    name = "transformer.h.0.attn.c_attn.bias"
    dropped = state[name].clone()
    dropped[42:84] = 0
    without = run(write(tmp_path, state | {name: dropped}, "gpt2"))
    torch.testing.assert_close(without, logits, rtol=1e-4, atol=1e-5)


# ---- GPT-J ----------------------------------------------------------------------------------------------------------


def test_gptj_with_and_without_its_mask_buffers_and_prefix(tmp_path, made):
    _, state, logits = made("gptj")
    old = state | {f"transformer.{name}": t for name, t in (MASKS | MASKED).items()}
    for n, tensors in enumerate((state, old, renamed(state, "transformer.", ""))):
        (folder := tmp_path / str(n)).mkdir()
        torch.testing.assert_close(run(write(folder, tensors, "gptj")), logits, rtol=1e-5, atol=1e-5)
    for name, word in (("lm_head.bias", "lacks 1"), ("transformer.h.0.mlp.fc_in.bias", "lacks 1")):
        assert word in (sentence := refusal(write(tmp_path, {k: t for k, t in state.items() if k != name}, "gptj")))
        assert name in sentence
    assert "q_proj.bias" in refusal(write(tmp_path, state | {"transformer.h.0.attn.q_proj.bias": torch.ones(60)}, "gptj"))


# ---- norms whose keys have another place in another family ----------------------------------------------------------


def test_one_key_has_another_place_in_each_family(tmp_path, made):
    """post_attention_layernorm: before the MLP in Llama and Gemma 1; on attention's output in Gemma 2, 3 and OLMo 2."""
    key = "model.layers.1.post_attention_layernorm.weight"
    places = {"gemma": "ln2.offset", "gemma2": "ln1_post.offset", "gemma3_text": "ln1_post.offset", "olmo2": "ln1_post.weight"}
    for case, place in places.items():
        (folder := tmp_path / case).mkdir()
        _, state, _ = made(case)
        tensors = open_folder(write(folder, state, case)).tensors
        assert torch.equal(tensors.read(f"blocks.1.{place}"), state[key])
        norms = {"gemma": 2, "olmo2": 2, "gemma2": 4, "gemma3_text": 4}[case]
        assert sum(name.startswith("blocks.1.ln") for name in tensors) == norms
        lacking = {k: t for k, t in state.items() if k != key}
        assert key in refusal(write(folder, lacking, case))
    _, state, _ = made("gemma2")  # a file of one Gemma under the name of another
    assert "feedforward_layernorm" in refusal(write(tmp_path, state, "gemma"))
    assert "layers.0.self_attn.q_norm.weight" in refusal(write(tmp_path, state, "gemma3_text"))


# ---- Gemma inside a model that sees ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seeing():
    """A tiny Gemma 3 with a vision tower, as transformers builds it, every parameter random."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration

    text = {k: v for k, v in design_json("gemma3_text").items() if k != "model_type"}
    vision = {"hidden_size": 8, "intermediate_size": 9, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision |= {"image_size": 8, "patch_size": 4, "model_type": "siglip_vision_model"}
    config = Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4, image_token_index=130)
    config._attn_implementation = "eager"
    model = Gemma3ForConditionalGeneration(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if name != "lm_head.weight":
                noise = torch.randn(tensor.shape, generator=generator)
                tensor.copy_(0.3 * noise if tensor.ndim == 1 else noise / tensor.shape[-1] ** 0.5)
        return model, model(input_ids=torch.tensor([prompt()]) % 130).logits


def test_the_language_model_of_a_gemma_that_sees(tmp_path, seeing):
    model, logits = seeing
    model.save_pretrained(tmp_path)
    lm = load(tmp_path, device="cpu", dtype=torch.float32)
    torch.testing.assert_close(lm.forward([i % 130 for i in prompt()]), logits, rtol=1e-5, atol=1e-5)
    report = " | ".join(lm.report)
    assert "only the language model" in report and "vision_tower" in report and "multi_modal_projector" in report


@pytest.mark.parametrize("prefix", ["model.", "", "language_model.model.", "model.language_model."])
def test_gemmas_under_every_prefix(prefix, tmp_path, made):
    _, state, logits = made("gemma3_text")
    write(tmp_path, renamed(state, "model.", prefix) | {"vision_tower.patch.weight": torch.ones(3)}, "gemma3_text")
    torch.testing.assert_close(run(tmp_path), logits, rtol=1e-5, atol=1e-6)


# ---- a model that the file's own words decide -----------------------------------------------------------------------


def test_llama_shaped_olmo2_files_are_refused(tmp_path, made):
    """OLMo 2 under the name llama lacks input norms, and has norms that Llama has not."""
    _, state, _ = made("olmo2")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    save_file({name: t.clone() for name, t in state.items()}, tmp_path / "model.safetensors")
    assert "input_layernorm" in refusal(tmp_path)
