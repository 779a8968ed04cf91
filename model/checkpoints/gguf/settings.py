"""The settings of a GGUF file in the words of a config.json, so that one reader understands both.

Each architecture of llama.cpp becomes the model_type whose block it is. What a file has no field for, because llama.cpp
knows it from the architecture, is stated with where it comes from.
"""

from collections.abc import Mapping

import numpy as np

from model.checkpoints.fields import listed, shown
from model.checkpoints.gguf import names
from model.checkpoints.gguf.architectures import ARCHITECTURES, SIZES
from model.checkpoints.gguf.header import Entry
from model.checkpoints.gguf.rope import scaling
from model.checkpoints.gguf.words import INSTEAD, Words
from model.errors import BlockscopeError

NO_EFFECT = {  # read elsewhere, or about llama.cpp's own memory layout
    "attention.value_length", "attention.causal", "pooling_type", "rope.dimension_count", "rope.dimension_count_swa",
    "rope.scaling.finetuned", "tensor_data_layout", "vocab_size", "attention.key_length_swa",
    "attention.value_length_swa", "expert_shared_feed_forward_length", "rope.scaling.yarn_ext_factor",
}  # fmt: skip
OTHER_TOWERS = ("vision.", "mm.", "mm_", "audio.")  # Ollama keeps them in the language model's file
UNDEFINED = 4294967295  # what a converter writes for "none"


def architecture(settings: Mapping[str, object], where: str) -> str:
    arch = settings.get("general.architecture")
    if not isinstance(arch, str) or arch not in ARCHITECTURES:
        said = "is missing" if arch is None else f"is {shown(arch)}"
        raise BlockscopeError(
            f"{where}: general.architecture {said}; those that can be opened are {listed(ARCHITECTURES, 99)}: {INSTEAD}"
        )
    return arch


def words_of(settings: Mapping[str, object], tensors: Mapping[str, Entry], freqs: np.ndarray | None, where: str) -> Words:
    """The file's settings as config.json's. `freqs`: the table rope_freqs.weight, where the file has one."""
    arch = architecture(settings, where)
    words, kind = Words(settings, tensors, arch, where), ARCHITECTURES[arch]
    words.put("model_type", kind.model_type, "general.architecture")
    words.take(SIZES | kind.keys)
    for name in [name for name, value in words.values.items() if value == UNDEFINED]:
        del words.values[name]
    kind.more(words)
    _vocabulary(words)
    _heads(words)
    scaling(words, freqs)
    for key, value in settings.items():  # what is left is judged like an unknown field of a config.json
        rest = key.removeprefix(f"{arch}.")
        other = key in words.taken or rest in NO_EFFECT or rest.startswith(OTHER_TOWERS)
        if key.startswith(f"{arch}.") and not other:
            words.put(key, value.tolist() if isinstance(value, np.ndarray) else value, key)
    return words


def _vocabulary(words: Words) -> None:
    entry = words.tensors.get("token_embd.weight")
    if entry is None or len(entry.shape) != 2:
        raise words.fail("token_embd.weight is missing or not a matrix; download the file again")
    words.put("vocab_size", entry.shape[0], "the rows of token_embd.weight")
    tied = f"{names.HEAD}.weight" not in words.tensors
    words.put("tie_word_embeddings", tied, f"{names.HEAD}.weight is {'not there' if tied else 'there'}")


def _heads(words: Words) -> None:
    """Keys and values of one width, all of it rotated, as the blocks here have them; attention is causal."""
    if words.get("attention.causal") is False:
        raise words.fail(f"{words.arch}.attention.causal is false; only causal attention is known here: open another model")
    if words.arch in ("deepseek2", "gpt2"):
        return
    width = words.values.get("head_dim")
    for key in ("attention.value_length", "rope.dimension_count"):
        other = words.whole(key, 0)
        if width is None and key == "rope.dimension_count":
            d_model, heads = words.get("embedding_length"), words.get("attention.head_count")
            width = d_model // heads if type(d_model) is type(heads) is int and heads > 0 else None
        if other and width and other != width:
            raise words.fail(
                f"{words.arch}.{key} is {other} but a head is {width} wide; blocks of this architecture rotate whole heads, "
                f"and their keys and values are equally wide: {INSTEAD}"
            )
