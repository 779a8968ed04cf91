"""SmolLM2-135M, real weights, against transformers: the logits, the taps of every layer, and a sentence that ends right.

tests/real_models.py writes the folder; BLOCKSCOPE_REAL_MODELS says where. Without it these tests are skipped, and CI
refuses the skip.
"""

from pathlib import Path

import pytest
import torch
from recorder import record
from reference import difference, faults

from model import load

NAME = "smollm2-135m"
TOLERANCE = 2e-4  # of the largest value, through 30 layers in fp32
PROMPT = "def add(a, b):\n    return a + b\n\nThe capital of France is Paris, and the capital of"
ATTENTION = ("hook_q", "hook_k", "hook_rot_q", "hook_rot_k", "hook_pattern")
TAPS = ("hook_resid_pre", *(f"attn.{tap}" for tap in ATTENTION), "mlp.hook_pre", "mlp.hook_pre_linear", "hook_resid_post")
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def folder(real_model) -> Path:
    return real_model(NAME)


@pytest.fixture(scope="module")
def lm(folder):
    return load(folder, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def theirs(folder, lm):
    """transformers' own tensors on the same prompt, eager attention, fp32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32).eval()
    return record(model, lm.encode(PROMPT))


@pytest.fixture(scope="module")
def ours(lm):
    """The same taps of all layers, from one run."""
    return lm.capture(lm.encode(PROMPT), taps=[f"blocks.{i}.{leaf}" for i in range(30) for leaf in TAPS])


def test_it_is_the_model_it_claims_to_be(lm):
    block = lm.config.blocks[0]
    assert (lm.config.n_layers, lm.config.d_model, lm.config.d_vocab, lm.config.tied) == (30, 576, 49_152, True)
    assert (block.attn.n_heads, block.attn.n_kv_heads, block.attn.d_head) == (9, 3, 64)
    assert block.attn.rope.base == 100_000 and block.mlp.d_mlp == 1536
    assert lm.parameters == 134_515_008
    assert lm.report == ()


def test_tokens_equal_transformers(folder, lm):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    for text in (PROMPT, "a\U0001f642 b", "", "  spaces\t and 漢字", "<|im_start|>user\nHi<|im_end|>"):
        ids = lm.encode(text)
        assert ids == tokenizer.encode(text)
        assert lm.decode(ids) == text
        assert len(lm.pieces(ids)) == len(ids)


@pytest.mark.parametrize("layer", range(30))
def test_every_layer_matches_transformers(layer, ours, theirs):
    wanted = {tap: theirs[tap] for tap in (f"blocks.{layer}.{leaf}" for leaf in TAPS)}
    assert not (wrong := faults(ours, wanted, TOLERANCE)), "\n".join(map(str, wrong))


def test_logits_match_transformers(lm, theirs):
    ids = lm.encode(PROMPT)
    for logits in (lm.forward(ids), lm.capture(ids, taps=["logits"])["logits"]):
        apart = difference("logits", logits, theirs["logits"])
        assert apart.worst <= TOLERANCE, str(apart)


def test_the_capital_of_france_by_cached_decoding(lm):
    continuation = lm.decode(lm.generate(lm.encode("The capital of France is"), 12))
    assert "Paris" in continuation, continuation
