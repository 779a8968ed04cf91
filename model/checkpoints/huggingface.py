"""Open a Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer.json; or one of its files alone.

Everything is checked here, from the config and the headers alone; no weight is read before the model needs it.
"""

import os
from dataclasses import replace
from pathlib import Path

import torch

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.families import Understood, understand
from model.checkpoints.families.common import Family
from model.checkpoints.fields import LARGEST_CONFIG, listed, read_json, shown
from model.checkpoints.foreign import by_name
from model.checkpoints.names import find_prefix, head_name, match, recipe_of
from model.checkpoints.quantised import plain
from model.checkpoints.shards import INDEX, LARGEST_INDEX, find_weights, tensors_of
from model.checkpoints.sources import Source
from model.checkpoints.tensors import Parameter, Tensors
from model.checkpoints.vocabulary import OLD_TOKENIZER, TOKENIZER, find_tokenizer
from model.errors import BlockscopeError
from model.files import has, readable
from model.lm import Decoder

CONFIG = "config.json"


def open_folder(path: str | Path) -> Checkpoint:
    """Check a Hugging Face folder and open it. Raises BlockscopeError: one sentence, what is wrong and what to do."""
    if not os.path.isdir(path):  # False too for what cannot be a path
        raise BlockscopeError(f"there is no folder {shown(str(path), 200)}; expected one that holds {CONFIG}")
    path = Path(path)
    name = path.resolve().name
    with readable(name):
        if not has(path, CONFIG):
            raise BlockscopeError(_no_config(path, name))
        understood = _read_config(path / CONFIG)
        found, ignored = find_weights(path, name)
        return _assembled(path, name, understood, found, ignored)


def _no_config(path: Path, name: str) -> str:
    """What a folder without a config holds instead."""
    inside = sorted(path.iterdir())
    if not inside:
        return f"{name} is empty; download the model into it, or name another folder"
    if models := [one.name for one in inside if (one / CONFIG).is_file()]:
        return f"{name} holds models in folders of their own ({listed(models)}); name one of them"
    if others := [one for one in inside if by_name(one)]:
        return f"{name} has no {CONFIG}: {others[0].name} {by_name(others[0])}"
    return f"{name} has no {CONFIG}; expected a folder as Hugging Face models are downloaded"


def open_file(path: str | Path) -> Checkpoint:
    """Open one .safetensors file that holds a whole model, such as a step of a training run, by the config beside it."""
    path = Path(path)
    folder, name = path.parent, path.stem
    where = f"{path.resolve().parent.name}/{path.name}"
    with readable(where):
        found = tensors_of(path)
        if not has(folder, CONFIG):
            raise BlockscopeError(f"{where} has no {CONFIG} beside it, which says what its tensors mean; put one there")
        if has(folder, INDEX) and len(shards := _shards(folder)) > 1 and path.name in shards:
            raise BlockscopeError(f"{where} is one of the {len(shards)} parts of a model; open its folder instead")
        checkpoint = _assembled(folder, name, _read_config(folder / CONFIG), found, [])
        return replace(checkpoint, format="safetensors", path=path)


def _shards(folder: Path) -> set[str]:
    placed = read_json(folder / INDEX, LARGEST_INDEX).get("weight_map")
    return set(placed.values()) if isinstance(placed, dict) and all(isinstance(v, str) for v in placed.values()) else set()


def _assembled(path: Path, name: str, understood: Understood, found: dict[str, Source], ignored: list[str]) -> Checkpoint:
    """The checkpoint of a config and the tensors found for it, each checked against the other."""
    found, scales = plain(found, understood.quantised, name)
    config, head = settle_head(understood.config, understood.family, found, name)
    parameters, unread = match(config, understood.family, found, name)
    tokenizer, about_tokens = find_tokenizer(path, config)
    return Checkpoint(
        name=name,
        path=path,
        config=config,
        tensors=Tensors(parameters),
        tokenizer=tokenizer,
        report=(*understood.notes, *scales, *ignored, *unread, *head, *about_tokens),
        files=_files(path, found),
        stored=found,
        settings=understood.settings,
    )


def _files(path: Path, found: dict[str, Source]) -> tuple[Path, ...]:
    """Every file that the model is read from, the weights last."""
    tokenizer = TOKENIZER if (path / TOKENIZER).is_file() else OLD_TOKENIZER
    beside = [path / file for file in (CONFIG, INDEX, tokenizer) if (path / file).is_file()]
    return (*beside, *sorted({file for source in found.values() for file in source.files}))


def read_config(file: str | Path) -> Decoder.Config:
    """The model that a config.json describes, from that file alone."""
    return _read_config(Path(file)).config


def _read_config(file: Path) -> Understood:
    return understand(read_json(file, LARGEST_CONFIG), f"{file.resolve().parent.name}/{file.name}")


def settle_head(
    config: Decoder.Config, family: Family, found: dict[str, Source], name: str
) -> tuple[Decoder.Config, list[str]]:
    """A file may carry an unembedding although its config ties it: a copy is not read; another matrix unties the model,
    as transformers 5 does (4 used the embedding)."""
    prefix = find_prefix(found, family, name)
    head, embedding = found.get(head_name(family, prefix)), found.get(recipe_of("embed.weight", family, prefix).of)
    if not config.tied or head is None or embedding is None:
        return config, []
    if (head.shape, head.dtype) == (embedding.shape, embedding.dtype) and _same_bytes(head, embedding):
        return config, [f"{head.name} is a copy of the embedding, to which the config ties it; it is not read"]
    return replace(config, tied=False), [
        f"{head.name} differs from the embedding, to which the config ties it; the file's own is used, not the embedding"
    ]


def _same_bytes(head: Source, embedding: Source, rows: int = 4096) -> bool:
    """Compared in slices as bits (NaN equals itself), stopping at the first difference."""
    pair = Tensors({"head": Parameter.whole(head), "embedding": Parameter.whole(embedding)})
    a, b = (pair.read(name).view(torch.uint8) for name in pair)
    return all(torch.equal(a[i : i + rows], b[i : i + rows]) for i in range(0, len(a), rows))
