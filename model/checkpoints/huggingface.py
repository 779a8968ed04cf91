"""Open a Hugging Face folder: config.json, safetensors in one file or in shards, tokenizer.json.

Everything is checked here, from the config and the headers alone; no weight is read before the model needs it.
"""

import os
from dataclasses import replace
from pathlib import Path, PurePosixPath, PureWindowsPath

import torch

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.families import Understood, understand
from model.checkpoints.families.common import Family
from model.checkpoints.fields import LARGEST_CONFIG, listed, read_json, shown
from model.checkpoints.header import read_header
from model.checkpoints.names import find_prefix, head_name, match, recipe_of
from model.checkpoints.sources import Source
from model.checkpoints.tensors import Parameter, Tensors
from model.errors import BlockscopeError
from model.lm import Decoder
from model.tokens import Tokenizer

CONFIG, WEIGHTS, INDEX, TOKENIZER = "config.json", "model.safetensors", "model.safetensors.index.json", "tokenizer.json"
LARGEST_INDEX = 64 << 20  # bytes
PICKLES = ("*.bin", "*.pth", "*.pt", "*.ckpt", "*.pkl")


def open_folder(path: str | Path) -> Checkpoint:
    """Check a Hugging Face folder and open it. Raises BlockscopeError: one sentence, what is wrong and what to do."""
    if not os.path.isdir(path):  # False too for what cannot be a path
        raise BlockscopeError(f"there is no folder {shown(str(path), 200)}; expected one that holds {CONFIG}")
    path = Path(path)
    name = path.resolve().name
    try:
        if not (path / CONFIG).exists():
            raise BlockscopeError(f"{name} has no {CONFIG}; expected a folder as Hugging Face models are downloaded")
        understood = _read_config(path / CONFIG)
        found, ignored = _find_weights(path, name)
        config, head = settle_head(understood.config, understood.family, found, name)
        parameters, unread = match(config, understood.family, found, name)
        tokenizer, about_tokens = find_tokenizer(path, config)
        tensors = Tensors(parameters)
    except OSError as error:
        raise BlockscopeError(f"{name} cannot be read: {error.strerror or error}") from None
    return Checkpoint(
        name=name,
        path=path,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        report=(*understood.notes, *ignored, *unread, *head, *about_tokens),
        files=tuple(path / file for file in _files(path, found)),
        stored=found,
        settings=understood.settings,
    )


def _files(path: Path, found: dict[str, Source]) -> list[str]:
    """Every file that the model is read from, the weights last."""
    weights = sorted({file.name for source in found.values() for file in source.files})
    return [file for file in (CONFIG, INDEX, TOKENIZER) if (path / file).is_file()] + weights


def read_config(file: str | Path) -> Decoder.Config:
    """The model that a config.json describes, from that file alone."""
    return _read_config(Path(file)).config


def _read_config(file: Path) -> Understood:
    return understand(read_json(file, LARGEST_CONFIG), f"{file.resolve().parent.name}/{file.name}")


def _find_weights(path: Path, name: str) -> tuple[dict[str, Source], list[str]]:
    """Every tensor of the model's files by its name there. The index, where there is one, decides which files count."""
    present = sorted(p.name for p in path.glob("*.safetensors"))
    if (path / INDEX).exists():
        placed = _read_index(path, name)
        shards = sorted(set(placed.values()))
        found = _read_shards(path, name, placed, shards)
    elif (path / WEIGHTS).exists():
        shards = [WEIGHTS]
        found = {
            key: Source(path / WEIGHTS, key, entry.dtype, entry.shape) for key, entry in read_header(path / WEIGHTS).items()
        }
    else:
        raise BlockscopeError(_no_weights(path, name, present))
    ignored = [file for file in present if file not in shards]
    return found, [f"weight files that are not part of the model are not read: {listed(ignored)}"] if ignored else []


def _no_weights(path: Path, name: str, present: list[str]) -> str:
    if present:
        return f"{name} has {listed(present)} but no {INDEX} that says what they hold; download it too"
    if pickles := [p.name for pattern in PICKLES for p in sorted(path.glob(pattern))]:
        return (
            f"{name} has its weights as {listed(pickles)}: pickles, which can run code and are not opened; "
            f"convert them to {WEIGHTS}"
        )
    if ggufs := [p.name for p in sorted(path.glob("*.gguf"))]:
        return f"{name} has {listed(ggufs)} but no {WEIGHTS}; download the safetensors version of the model"
    return f"{name} has no weights: expected {WEIGHTS} or {INDEX} with its shards; download them"


def _read_index(path: Path, name: str) -> dict[str, str]:
    """weight_map of the index: tensor name -> shard, each a file name inside the folder."""
    placed = read_json(path / INDEX, LARGEST_INDEX).get("weight_map")
    if not isinstance(placed, dict) or not placed:
        raise BlockscopeError(f"{name}/{INDEX}: weight_map is {shown(placed)}; expected tensor names and their shards")
    for shard in set(placed.values()) if all(isinstance(v, str) for v in placed.values()) else [None]:
        if shard is None:
            raise BlockscopeError(f"{name}/{INDEX}: weight_map must name a file for every tensor; download it again")
        inside = not (PurePosixPath(shard).is_absolute() or PureWindowsPath(shard).anchor)
        if not inside or ".." in PureWindowsPath(shard).parts or not shard.strip() or "\0" in shard:
            raise BlockscopeError(f"{name}/{INDEX} names {shown(shard)}, which leaves the folder; it is not opened")
        if not shard.endswith(".safetensors"):
            raise BlockscopeError(f"{name}/{INDEX} names {shown(shard)}; expected .safetensors files")
    return placed


def _read_shards(path: Path, name: str, placed: dict[str, str], shards: list[str]) -> dict[str, Source]:
    if absent := [shard for shard in shards if not (path / shard).exists()]:
        lost = sum(shard in absent for shard in placed.values())
        raise BlockscopeError(
            f"{name} lacks {len(absent)} of its {len(shards)} shards ({listed(absent)}), which hold {lost} of "
            f"{len(placed)} tensors; download the missing files"
        )
    headers = {shard: read_header(path / shard) for shard in shards}
    holders: dict[str, list[str]] = {}
    for shard, entries in headers.items():
        for key in entries:
            holders.setdefault(key, []).append(shard)
    index = f"{name}/{INDEX}"
    for key, having in holders.items():
        if len(having) > 1:
            raise BlockscopeError(f"{name}: {key} is in two shards, {having[0]} and {having[1]}; keep one of the two")
        if key not in placed:
            raise BlockscopeError(f"{index} does not list {key}, which is in {having[0]}; correct the index")
        if placed[key] != having[0]:
            raise BlockscopeError(f"{index} says that {key} is in {placed[key]}, but {having[0]} has it; correct the index")
    if lost := [key for key in placed if key not in holders]:
        raise BlockscopeError(f"{index} says that {lost[0]} is in {placed[lost[0]]}, but no shard has it; download again")
    return {
        key: Source(path / shard, key, entry.dtype, entry.shape)
        for shard, entries in headers.items()
        for key, entry in entries.items()
    }


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


def find_tokenizer(path: Path, config: Decoder.Config) -> tuple[Tokenizer | None, list[str]]:
    """tokenizer.json where there is one; without it, tokens can still be given as numbers."""
    if not (path / TOKENIZER).exists():
        what = "a tokenizer.model, which is not read" if (path / "tokenizer.model").exists() else "none"
        return None, [f"there is no {TOKENIZER} (found: {what}): give the prompt as token numbers"]
    tokenizer = Tokenizer.from_file(path / TOKENIZER)
    return tokenizer, judge_tokens(tokenizer, config)


def judge_tokens(tokenizer: Tokenizer | None, config: Decoder.Config) -> list[str]:
    """What is to be said of a tokenizer beside the rows of the embedding."""
    if tokenizer is None:
        return []
    notes = list(tokenizer.notes)
    if tokenizer.size > config.d_vocab:
        notes.append(f"the tokenizer has {tokenizer.size} tokens but the model {config.d_vocab}: the others are refused")
    elif tokenizer.size < config.d_vocab:
        notes.append(f"{config.d_vocab - tokenizer.size} rows of the embedding have no token; they are shown as unused")
    return notes
