"""Which tensor of the files is which parameter of the model: prefixes, and what is missing, misshapen or surplus."""

import re
from collections.abc import Mapping

import torch

from model.checkpoints.families import Family
from model.checkpoints.fields import listed
from model.checkpoints.tensors import DTYPES, Source
from model.errors import BlockscopeError
from model.lm import Decoder

PREFIXES = {  # what stands before "layers.0..." in the files of one and the same model -> the name of its unembedding
    "model.": "lm_head.weight",
    "": "lm_head.weight",
    "language_model.model.": "language_model.lm_head.weight",
    "model.language_model.": "lm_head.weight",
}
BUFFERS = re.compile(r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$")  # tables that old files carry along
OTHER_TOWERS = re.compile(
    r"^(model\.)?(vision_tower|vision_model|visual|multi_modal_projector|audio_tower|image_newline)(\.|$)"
)


def expected(config: Decoder.Config) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter of this model, by our names. Nothing is allocated."""
    with torch.device("meta"):
        model = config.build()
    return {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}


def file_name(ours: str, family: Family, prefix: str) -> str:
    """Our parameter as files with this prefix name it: blocks.3.ln1.weight -> model.layers.3.input_layernorm.weight."""
    path, _, leaf = ours.rpartition(".")
    if path == "unembed":
        return PREFIXES[prefix]
    layer = re.search(r"\.(\d+)\.", path)
    number = layer.group(1) if layer else ""
    pattern = path.replace(f".{number}.", ".{i}.", 1) if layer else path
    return f"{prefix}{family.names[pattern].format(i=number)}.{leaf}"


def match(
    config: Decoder.Config, family: Family, found: Mapping[str, Source], where: str
) -> tuple[dict[str, Source], list[str]]:
    """(source of every parameter by our name, notes). Refuses files that are not exactly the model of the config."""
    prefix = find_prefix(found, where)
    shapes = expected(config)
    theirs = {ours: file_name(ours, family, prefix) for ours in shapes}
    embedding = theirs["embed.weight"]
    if config.tied:
        theirs["unembed.weight"] = embedding
    if missing := [name for name in theirs.values() if name not in found]:
        raise BlockscopeError(_missing(missing, found, embedding, prefix, where))
    for ours, name in theirs.items():
        source = found[name]
        if source.shape != shapes[ours]:
            raise BlockscopeError(
                f"{name} in {source.file.name} has shape {list(source.shape)}, but {where}/config.json asks for "
                f"{list(shapes[ours])}; config and weights belong to different models"
            )
        if source.dtype not in DTYPES:
            raise BlockscopeError(
                f"{name} in {source.file.name} is stored as {source.dtype}; expected {', '.join(DTYPES)}: "
                "save the model unquantised first"
            )
    rest = [name for name in found if name not in set(theirs.values())]
    if config.tied and PREFIXES[prefix] in rest:
        rest.remove(PREFIXES[prefix])  # found to be a copy, in huggingface.py
    harmless = [name for name in rest if BUFFERS.search(name) or OTHER_TOWERS.match(name)]
    if surplus := [name for name in rest if name not in harmless]:
        raise BlockscopeError(
            f"{where} holds {len(surplus)} tensor{'s' if len(surplus) > 1 else ''} that the model of its config.json "
            f"does not have: {listed(surplus)}; config and weights belong to different models"
        )
    notes = [f"tensors that are not part of the model's blocks are not read: {listed(harmless)}"] if harmless else []
    return {ours: found[name] for ours, name in theirs.items()}, notes


def find_prefix(found: Mapping[str, Source], where: str) -> str:
    """The one prefix under which the files hold a decoder."""
    hits = {
        prefix: next((name for name in found if name.startswith((f"{prefix}layers.", f"{prefix}embed_tokens."))), None)
        for prefix in PREFIXES
    }
    hits = {prefix: name for prefix, name in hits.items() if name}
    if len(hits) > 1:
        raise BlockscopeError(
            f"{where} holds more than one language model ({listed(hits.values())}); keep the tensors of one"
        )
    if not hits:
        raise BlockscopeError(
            f"{where} holds none of the model's tensors: expected names like model.layers.0.input_layernorm.weight, "
            f"found {listed(found, 3)}; config and weights belong to different models"
        )
    return next(iter(hits))


def _missing(names: list[str], found: Mapping[str, Source], embedding: str, prefix: str, where: str) -> str:
    sentence = f"{where} lacks {len(names)} of the model's tensors: {listed(names)}"
    if names == [PREFIXES[prefix]] and embedding in found:
        return f"{sentence}; if the model ties it to the embedding, set tie_word_embeddings to true in config.json"
    return f"{sentence}; download the missing part, or correct config.json"
