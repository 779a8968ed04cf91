"""Open Meta's own download of a model: params.json, consolidated.*.pth or .safetensors split by rank, tokenizer.model."""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.families import understand
from model.checkpoints.fields import LARGEST_CONFIG, Field, Fields, listed, read_json
from model.checkpoints.meta import pickled
from model.checkpoints.meta.params import FAMILIES, adjacent, values_of
from model.checkpoints.names import match
from model.checkpoints.shards import tensors_of
from model.checkpoints.sources import Made, Source
from model.checkpoints.tensors import Tensors
from model.checkpoints.vocabulary import OLD_TOKENIZER, TOKENIZER, find_tokenizer
from model.errors import BlockscopeError
from model.files import has, readable

PARAMS, EMBEDDING, GATE = "params.json", "tok_embeddings.weight", "layers.0.feed_forward.w1.weight"
RANK = re.compile(r"consolidated\.(\d+)\.(pth|safetensors)")
ALONE = "consolidated.safetensors"  # Mistral's
ROWS = re.compile(r"(attention\.w[qkv]|feed_forward\.w[13]|output)\.(weight|bias)$")  # ranks hold rows of these,
COLUMNS = re.compile(r"(attention\.wo|feed_forward\.w2)\.weight$")  # columns of these, and all else is in each whole


def open_meta(path: str | Path) -> Checkpoint:
    """Check Meta's folder and open it. Raises BlockscopeError: one sentence, what is wrong and what to do."""
    path = Path(path)
    name = path.resolve().name
    where = f"{name}/{PARAMS}"
    with readable(name):
        params = Fields(read_json(path / PARAMS, LARGEST_CONFIG), where)
        files = _files(path, name)
        found = _joined([_tensors(file) for file in files], params.raw("dim"), name)
        rows, width = (found[n].shape[0] if n in found and found[n].shape else 0 for n in (EMBEDDING, GATE))
        values, origins = values_of(params, rows, width)
        understood = understand(values, where, origins)
        config = adjacent(understood.config)
        parameters, unread = match(config, FAMILIES[values["model_type"]], found, name, PARAMS)
        tokenizer, about_tokens = find_tokenizer(path, config)
        tensors = Tensors(parameters)
    beside = [path / file for file in (PARAMS, TOKENIZER, OLD_TOKENIZER) if (path / file).is_file()]
    ranks = [f"joined from the files of {len(files)} ranks"] if len(files) > 1 else []
    return Checkpoint(
        name=name,
        path=path,
        config=config,
        tensors=tensors,
        tokenizer=tokenizer,
        report=(*params.notes, *understood.notes, *ranks, *unread, *about_tokens),
        format="meta",
        files=(*beside, *files),
        stored=found,
        settings=(*understood.settings, *_left(params, origins, {field.name for field in understood.settings})),
    )


def _left(params: Fields, origins: Mapping[str, str], told: set[str]) -> list[Field]:
    """Fields of params.json that are not told under a name of config.json already."""
    named = " ".join(origins.values())
    return [field for field in params.settings() if field.name not in told and field.name not in named]


def _files(path: Path, name: str) -> list[Path]:
    """The file of every rank, in their order."""
    ranks = {int(hit[1]): file for file in sorted(path.iterdir()) if (hit := RANK.fullmatch(file.name))}
    if not ranks and has(path, ALONE):
        return [path / ALONE]
    if not ranks:
        raise BlockscopeError(f"{name} has {PARAMS} but no weights: expected consolidated.00.pth and so on; download them")
    if absent := [
        f"consolidated.{n:02d}.{RANK.fullmatch(ranks[max(ranks)].name)[2]}" for n in range(max(ranks)) if n not in ranks
    ]:
        raise BlockscopeError(f"{name} lacks {listed(absent)} of the {max(ranks) + 1} parts of its weights; download them")
    return [ranks[n] for n in sorted(ranks)]


def _tensors(file: Path) -> dict[str, Source]:
    return tensors_of(file) if file.suffix == ".safetensors" else pickled.sources(file)


def _joined(ranks: list[dict[str, Source]], dim: object, name: str) -> dict[str, Source]:
    """Every tensor of the model, put together from what each rank holds of it."""
    first = ranks[0]
    if len(ranks) == 1:
        return first
    for number, rank in enumerate(ranks[1:], 1):
        if odd := sorted(set(rank) ^ set(first)):
            raise BlockscopeError(
                f"{name}: {listed(odd, 3)} is in some parts of the weights only (part {number}); download again"
            )
    return {key: _join(key, [rank[key] for rank in ranks], dim, name) for key in first}


def _join(key: str, parts: list[Source], dim: object, name: str) -> Source:
    axis = _axis(key, parts[0], dim)
    if axis is None:
        return parts[0]
    shapes = {part.shape[:axis] + part.shape[axis + 1 :] for part in parts}
    if len(shapes) > 1 or len({part.dtype for part in parts}) > 1 or axis >= len(parts[0].shape):
        raise BlockscopeError(
            f"{name}: the parts of {key} do not fit together ({listed(p.shape for p in parts)}); download again"
        )
    shape = list(parts[0].shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    return Made(
        file=parts[0].file, name=key, dtype=parts[0].dtype, shape=tuple(shape), reads=parts[0].reads, of=tuple(parts),
        make=partial(_cat, axis),
    )  # fmt: skip


def _cat(axis: int, *parts: torch.Tensor) -> torch.Tensor:
    return torch.cat(parts, dim=axis)


def _axis(key: str, part: Source, dim: object) -> int | None:
    """Along which axis the ranks share a tensor. The embedding is cut by columns up to Llama 2 and by rows from 3 on."""
    if ROWS.search(key):
        return 0
    if COLUMNS.search(key):
        return 1
    if key == EMBEDDING:
        return 0 if part.shape[-1:] == (dim,) else 1
    return None
