"""Gemma 3 270M, real weights, against transformers: every tap of every layer, past its window, and how a sentence goes on.

tests/real_models.py writes the folder; BLOCKSCOPE_REAL_MODELS says where. Without it these tests are skipped, and CI
refuses the skip.
"""

from pathlib import Path

import pytest
import torch
from recorder import record
from reference import difference, faults

from model import load
from model.block import Sandwich
from model.masks import Causal, Sliding

NAME = "gemma3-270m"
LAYERS = 18
TOLERANCE = 2e-4  # of the largest value, through 18 layers in fp32
PROMPT = "def add(a, b):\n    return a + b\n\nThe capital of France is Paris, and the capital of"
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folder(real_model) -> Path:
    return real_model(NAME)


@pytest.fixture(scope="module")
def lm(folder):
    return load(folder, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def reference(folder):
    """transformers' model, eager attention, fp32."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()


@pytest.fixture(scope="module")
def theirs(reference, lm):
    return record(reference, lm.encode(PROMPT))


@pytest.fixture(scope="module")
def ours(lm, theirs):
    return lm.capture(lm.encode(PROMPT), taps=list(theirs))


def test_it_is_the_model_it_claims_to_be(lm):
    config, local = lm.config, lm.config.blocks[0].attn
    assert (config.n_layers, config.d_model, config.d_vocab, config.tied) == (LAYERS, 640, 262_144, True)
    assert (local.n_heads, local.n_kv_heads, local.d_head, local.scale) == (4, 1, 256, 256**-0.5)
    assert all(isinstance(block, Sandwich.Config) for block in config.blocks)
    kinds = [(block.attn.mask, block.attn.rope.base) for block in config.blocks]
    assert kinds == ([(Sliding(window=512), 1e4)] * 5 + [(Causal(), 1e6)]) * 3
    assert config.embed_scale == pytest.approx(25.298221) and config.blocks[0].mlp.activation == "gelu_tanh"
    assert lm.parameters == 268_098_176
    assert lm.report == ()


def test_tokens_equal_transformers(folder, lm):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in (PROMPT, "a\U0001f642 b", "  spaces\t and 漢字"):
        assert lm.encode(text) == tokenizer.encode(text)


@pytest.mark.parametrize("layer", range(LAYERS))
def test_every_layer_matches_transformers(layer, ours, theirs):
    wanted = {tap: value for tap, value in theirs.items() if tap.startswith(f"blocks.{layer}.")}
    assert len(wanted) == 41
    assert not (wrong := faults(ours, wanted, TOLERANCE)), "\n".join(map(str, wrong))


def test_logits_match_transformers(lm, ours, theirs):
    for logits in (lm.forward(lm.encode(PROMPT)), ours["logits"]):
        apart = difference("logits", logits, theirs["logits"])
        assert apart.worst <= TOLERANCE, str(apart)


def test_a_text_longer_than_the_window_matches_transformers(lm, reference):
    """At 600 tokens the local layers, which see 512, differ from the global ones."""
    ids, kept = lm.encode(" ".join(map(str, range(300))))[:600], {}
    assert len(ids) == 600
    hooks = [
        reference.model.layers[i].register_forward_hook(lambda m, args, out, i=i: kept.setdefault(i, out)) for i in (4, 5, 17)
    ]
    with torch.no_grad():
        logits = reference(torch.tensor([ids]), logits_to_keep=1).logits[0, -1]
    for hook in hooks:
        hook.remove()
    ours = lm.capture(ids, taps=[f"blocks.{i}.hook_resid_post" for i in kept])
    for i, theirs in kept.items():
        apart = difference(f"blocks.{i}", ours[f"blocks.{i}.hook_resid_post"], theirs)
        assert apart.worst <= TOLERANCE, str(apart)
    assert [token for token, _, _ in lm.next_tokens(ids, 5)] == logits.topk(5).indices.tolist()


def test_the_capital_of_france_goes_on_as_in_transformers(lm, reference):
    ids = lm.encode("The capital of France is")
    theirs = reference.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)[0, len(ids) :].tolist()
    assert lm.generate(ids, 12)[: len(theirs)] == theirs
