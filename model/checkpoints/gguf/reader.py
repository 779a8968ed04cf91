"""Open a GGUF file: llama.cpp's and Ollama's, with its settings, its tokenizer and, split or not, its tensors."""

import os
import re
from pathlib import Path

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.families import FAMILIES, understand
from model.checkpoints.fields import Field, listed, shown
from model.checkpoints.gguf.architectures import ARCHITECTURES
from model.checkpoints.gguf.header import Header, read_header
from model.checkpoints.gguf.names import family
from model.checkpoints.gguf.settings import words_of
from model.checkpoints.gguf.tokenizer import tokenizer_of
from model.checkpoints.gguf.weights import Weights, sources
from model.checkpoints.names import match
from model.checkpoints.sources import Source
from model.checkpoints.tensors import Tensors
from model.checkpoints.vocabulary import judge_tokens
from model.errors import BlockscopeError
from model.files import readable

FREQS = "rope_freqs.weight"
SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


def open_gguf(path: str | Path) -> Checkpoint:
    """Check a GGUF file and open it; of a split one, any part opens the whole."""
    path = Path(path)
    where = f"{path.resolve().parent.name}/{path.name}"
    with readable(where):
        headers = {file: read_header(file) for file in _parts(path)}
        first = next(iter(headers.values()))
        found = _all_tensors(headers, where)
        freqs = found.get(FREQS)
        table = Weights(freqs.file, headers[freqs.file]).get_tensor(FREQS).numpy() if freqs else None
        entries = {name: entry for header in headers.values() for name, entry in header.tensors.items()}
        words = words_of(first.settings, entries, table, where)
        understood = understand(words.values, where, words.origins)
        names = ARCHITECTURES[words.arch].names
        table = family(names, understood.config, FAMILIES[words.values["model_type"]].read)
        parameters, unread = match(understood.config, table, found, where, "its settings")
        tokenizer, about_tokens = tokenizer_of(first.settings, where)
        tensors = Tensors(parameters)
    return Checkpoint(
        name=str(path.stem),
        path=path,
        config=understood.config,
        tensors=tensors,
        tokenizer=tokenizer,
        report=(*understood.notes, *_formats(found), *unread, *judge_tokens(tokenizer, understood.config), *about_tokens),
        format="gguf",
        files=tuple(headers),
        stored=found,
        settings=(*understood.settings, *_others(first, words.taken, where)),
    )


def _parts(path: Path) -> list[Path]:
    """Every part of a split model, by its file names; a file that is not split is its only part."""
    if not (hit := SPLIT.fullmatch(path.name)):
        return [path]
    stem, _, total = hit.groups()
    files = [path.with_name(f"{stem}-{n:05d}-of-{total}.gguf") for n in range(1, int(total) + 1)]
    if absent := [file.name for file in files if not os.path.lexists(file)]:
        raise BlockscopeError(
            f"{path.parent.name} lacks {len(absent)} of the {int(total)} parts of this model ({listed(absent)}); download them"
        )
    return files


def _all_tensors(headers: dict[Path, Header], where: str) -> dict[str, Source]:
    found: dict[str, Source] = {}
    for file, header in headers.items():
        for name, source in sources(file, header).items():
            if name in found:
                raise BlockscopeError(
                    f"{where}: {shown(name)} is in two parts, {found[name].file.name} and {file.name}; download both again"
                )
            found[name] = source
    return found


def _formats(found: dict[str, Source]) -> list[str]:
    quantised = sorted({source.dtype for source in found.values() if source.dtype != source.reads})
    return [f"stored as {listed(quantised)}, expanded to fp32 when a layer is read"] if quantised else []


def _others(header: Header, taken: set[str], where: str) -> list[Field]:
    """Settings that describe no block: the file's own, the tokenizer's, and those that the architecture implies."""
    return [
        Field(key, value if isinstance(value, str | int | float | bool) else f"{len(value):,} entries", "unused", where)
        for key, value in header.settings.items()
        if key not in taken and not key.startswith("tokenizer.")
    ]
