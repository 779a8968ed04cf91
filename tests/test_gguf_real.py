"""The two real GGUF files: the logits of their bf16 folders and of transformers' own GGUF loader, and the same tokens.

tests/real_models.py writes both; BLOCKSCOPE_REAL_MODELS says where.
"""

import pytest
import torch

from model import load
from model.checkpoints import open_checkpoint, open_folder

TEXT = "def add(a, b):\n    return a + b\n\nThe capital of France is Paris, and 12345 caf\u00e9s \U0001f642"
pytestmark = pytest.mark.real


@pytest.fixture(scope="module", params=["smollm2-135m", "gemma3-270m"])
def pair(request, real_model):
    """(model from the GGUF file, its weights as stored, its folder)."""
    folder = real_model(request.param)
    file = folder / "source.gguf"
    return load(file, device="cpu", dtype=torch.float32), open_checkpoint(file).tensors, folder


def test_every_weight_rounds_to_that_of_the_folder(pair):
    _, ours, folder = pair
    theirs = open_folder(folder).tensors
    assert ours.names() == theirs.names()
    for name in theirs.names()[1:80]:
        assert torch.equal(ours.read(name).bfloat16(), theirs.read(name)), name


def test_tokens_are_those_of_the_folder(pair):
    lm, _, folder = pair
    tokenizer = open_folder(folder).tokenizer
    for text in (TEXT, "  two  spaces\n\n\tand 漢字", "<|im_start|>user\nHi<|im_end|>", "<bos>x", ""):
        assert lm.encode(text) == tokenizer.encode(text)
        assert lm.decode(lm.encode(text)) == tokenizer.decode(tokenizer.encode(text))


def test_logits_of_the_folder_and_of_transformers_gguf_loader(pair):
    """The folder is itself what transformers' GGUF loader read, rounded; its loader takes a minute for Gemma's vocabulary, so
    its unrounded logits are asked for the small one alone."""
    lm, _, folder = pair
    ids = lm.encode(TEXT)
    ours = lm.forward(ids)
    from_folder = load(folder, device="cpu", dtype=torch.float32).forward(ids)
    largest = from_folder.abs().max()
    assert (ours - from_folder).abs().max() < 0.03 * largest  # weights rounded to bf16, 2^-9, through 18 or 30 layers
    assert torch.equal(ours.argmax(-1), from_folder.argmax(-1))
    if "smollm2" not in folder.name:
        return
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(
        folder, gguf_file="source.gguf", dtype=torch.float32, attn_implementation="eager"
    )
    with torch.no_grad():
        wanted = theirs.eval()(torch.tensor([ids])).logits
    assert (ours - wanted).abs().max() < 1e-4 * wanted.abs().max()
