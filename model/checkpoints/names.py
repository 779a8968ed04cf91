"""Which tensors of the files make which parameter of the model: prefixes, and what is missing, misshapen or surplus."""

import re
from collections.abc import Collection, Iterable, Mapping

import torch

from model.checkpoints.families.common import Family
from model.checkpoints.fields import listed
from model.checkpoints.quantised import EIGHT_BITS
from model.checkpoints.recipes import Recipe, Shape, Stored
from model.checkpoints.sources import DTYPES, Source
from model.checkpoints.tensors import Parameter
from model.errors import BlockscopeError
from model.lm import Decoder

MOST_EXPERTS = 1 << 17  # of all layers together; the largest published models have some 25,000
BUFFERS = re.compile(r"(^|\.)rotary_emb\.(inv_freq|cos_cached|sin_cached)$")  # tables that old files carry along
ACTIVATIONS = re.compile(r"\.(input|output|[qkv])_scale$")  # scales of what a quantised run would round, beside the weights
OTHER_TOWERS = re.compile(
    r"^(model\.)?(vision_tower|vision_model|visual|multi_modal_projector|audio_tower|image_newline)(\.|$)"
)


def expected(config: Decoder.Config) -> dict[str, Shape]:
    """The shape of every parameter of this model, by our names. Nothing is allocated."""
    with torch.device("meta"):
        model = config.build()
    return {name: tuple(p.shape) for name, p in model.named_parameters(remove_duplicate=False)}


def recipe_of(ours: str, family: Family, prefix: str) -> Recipe:
    """Our parameter in the names of files with this prefix: blocks.3.ln1.weight -> model.layers.3.input_layernorm.weight."""
    path, _, leaf = ours.rpartition(".")
    if path == "unembed":
        return Stored(head_name(family, prefix, leaf))
    layer = re.match(r"blocks\.(\d+)\.", ours)
    number = layer.group(1) if layer else ""
    row = re.sub(r"^blocks\.\d+\.", "blocks.{i}.", ours)
    if row not in family.names:
        row = row.removesuffix(leaf) + "{leaf}"
    return family.names[row].filled(prefix, {"i": number, "leaf": leaf})


def head_name(family: Family, prefix: str, leaf: str = "weight") -> str:
    return f"{family.prefixes[prefix]}{family.head}.{leaf}"


def match(
    config: Decoder.Config, family: Family, found: Mapping[str, Source], where: str, settings: str = "config.json"
) -> tuple[dict[str, Parameter], list[str]]:
    """(how every parameter is read, by our name; notes). Refuses files that are not exactly the model of the config.

    `where` names the model and `settings` what describes it, for errors.
    """
    prefix = find_prefix(found, family, where)
    _check_size(config, len(found), where, settings)
    shapes = expected(config)
    recipes = {ours: recipe_of(ours, family, prefix).chosen(found, shape) for ours, shape in shapes.items()}
    if config.tied:
        recipes["unembed.weight"] = recipes["embed.weight"]
    wants = {ours: recipe.wants(shapes[ours]) for ours, recipe in recipes.items()}
    used = {name: shape for each in wants.values() for name, shape in each.items()}
    if missing := [name for name in used if name not in found]:
        raise BlockscopeError(_missing(missing, found, family, prefix, where))
    for name, shape in used.items():
        _check(found[name], shape, where, settings)
    notes = _judge_the_rest(config, family, prefix, [name for name in found if name not in used], where)
    parameters = {}
    for ours, recipe in recipes.items():
        sources = tuple(found[name] for name in wants[ours])
        if len({source.reads for source in sources}) > 1:
            odd = next(source for source in sources if source.reads != sources[0].reads)
            raise BlockscopeError(
                f"{where} stores {sources[0].name} as {sources[0].dtype} but {odd.name}, of the same parameter, as "
                f"{odd.dtype}; save the model in one dtype"
            )
        parameters[ours] = Parameter(recipe, sources, shapes[ours])
    return parameters, notes


def _check_size(config: Decoder.Config, tensors: int, where: str, settings: str) -> None:
    """Before anything of the size of the config is made: no model has more layers than its files have tensors."""
    if config.n_layers > tensors:
        raise BlockscopeError(
            f"{where}/{settings} asks for {config.n_layers:,} layers, but the files hold {tensors:,} tensors in all; "
            "config and weights belong to different models: download both from one place"
        )
    if (experts := sum(getattr(block.mlp, "n_experts", 0) for block in config.blocks)) > MOST_EXPERTS:
        raise BlockscopeError(
            f"{where}/{settings} asks for {experts:,} experts; expected at most {MOST_EXPERTS:,} in all: download it again"
        )


def find_prefix(found: Collection[str], family: Family, where: str) -> str:
    """The one prefix under which the files hold a decoder."""
    first = [name for recipe in _rows(family) for name in recipe.wants((1, 1, 1))]
    landmarks = tuple({f"{name.split('.')[0]}." for name in first})
    hits = {
        prefix: next((name for name in found if name.startswith(tuple(prefix + mark for mark in landmarks))), None)
        for prefix in family.prefixes
    }
    hits = {prefix: name for prefix, name in hits.items() if name}
    if len(hits) > 1:
        raise BlockscopeError(f"{where} holds more than one language model ({listed(hits.values())}); keep the tensors of one")
    if not hits:
        like = next(iter(family.prefixes)) + first[-1].replace("{i}", "0").replace("{leaf}", "weight")
        raise BlockscopeError(
            f"{where} holds none of the model's tensors: expected names like {like}, "
            f"found {listed(found, 3)}; config and weights belong to different models: download both from one place"
        )
    return next(iter(hits))


def _rows(family: Family) -> list[Recipe]:
    """The embedding and the first parameter of a block: what a file of this family cannot lack."""
    return [family.names["embed.weight"], next(r for name, r in family.names.items() if name.startswith("blocks."))]


def _check(source: Source, shape: Shape, where: str, settings: str) -> None:
    if source.shape != shape:
        raise BlockscopeError(
            f"{source.name} in {source.file.name} has shape {list(source.shape)}, but {where}/{settings} asks for "
            f"{list(shape)}; config and weights belong to different models: download both from one place"
        )
    if source.reads not in DTYPES:
        scale = ", and there is no scale for it" if source.dtype in EIGHT_BITS else ""
        raise BlockscopeError(
            f"{source.name} in {source.file.name} is stored as {source.dtype}{scale}; expected {', '.join(DTYPES)}: "
            "save the model unquantised first"
        )


def _judge_the_rest(config: Decoder.Config, family: Family, prefix: str, rest: Iterable[str], where: str) -> list[str]:
    """Notes on tensors that nothing is made of; those that no pattern explains are refused."""
    head = head_name(family, prefix) if config.tied else None  # found to be a copy, in huggingface.py
    rest = [name for name in rest if name != head]
    harmless = [name for name in rest if _ignored(name, config, family, prefix)]
    if surplus := [name for name in rest if name not in harmless]:
        raise BlockscopeError(
            f"{where} holds {len(surplus)} tensor{'s' if len(surplus) > 1 else ''} that the model of its config.json "
            f"does not have: {listed(surplus)}; config and weights belong to different models: download both from one place"
        )
    return [f"tensors that are not part of the model's blocks are not read: {listed(harmless)}"] if harmless else []


def _ignored(name: str, config: Decoder.Config, family: Family, prefix: str) -> bool:
    if BUFFERS.search(name) or ACTIVATIONS.search(name) or OTHER_TOWERS.match(name):
        return True
    hits = [re.fullmatch(pattern, name.removeprefix(prefix)) for pattern in family.ignored if name.startswith(prefix)]
    return any(hit and int(hit.groupdict().get("beyond", config.n_layers)) >= config.n_layers for hit in hits)


def _missing(names: list[str], found: Mapping[str, Source], family: Family, prefix: str, where: str) -> str:
    sentence = f"{where} lacks {len(names)} of the model's tensors: {listed(names)}"
    if names == [head_name(family, prefix)] and recipe_of("embed.weight", family, prefix).of in found:
        return f"{sentence}; if the model ties it to the embedding, set tie_word_embeddings to true in config.json"
    return f"{sentence}; download the missing part, or correct config.json"
