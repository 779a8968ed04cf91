"""Configs made for a test: a valid one with some fields changed, and the refusal that a bad one must give."""

import pytest
from designs import DESIGNS, design_json
from reference import SIZES

from model.checkpoints.families import config_of
from model.errors import BlockscopeError

LLAMA31 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def values(model_type="llama", without=(), **changes):
    """A valid config.json with some fields changed or left out."""
    whole = design_json(model_type) if str(model_type) in DESIGNS else {"model_type": model_type, **SIZES}
    return {key: value for key, value in whole.items() if key not in without} | changes


def config(model_type="llama", without=(), **changes):
    return config_of(values(model_type, without, **changes))[0]


def notes(model_type="llama", without=(), **changes):
    return " | ".join(config_of(values(model_type, without, **changes))[2])


def refusal(model_type="llama", without=(), **changes) -> str:
    with pytest.raises(BlockscopeError) as caught:
        config_of(values(model_type, without, **changes))
    sentence = str(caught.value)
    assert sentence.startswith("config.json") and "\n" not in sentence and len(sentence) < 400
    return sentence


def attn(model, layer=0):
    return model.blocks[layer].attn


def frequencies(model, length=1):
    return attn(model).rope.frequencies(length)
