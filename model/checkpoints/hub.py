"""Models of the Hugging Face hub by their id: which files are needed, fetched once into huggingface_hub's own cache.

org/name    org/name@revision    org/name/file.gguf
"""

import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from model.checkpoints.downloads import Download, Stopped, Told, explained, is_local
from model.checkpoints.fields import listed, shown
from model.errors import BlockscopeError

ID = re.compile(r"([A-Za-z0-9][\w.-]{0,95})/([A-Za-z0-9_][\w.-]{0,95})(?:/([\w./-]{1,200}\.gguf))?(?:@([\w./-]{1,100}))?")
INDEX = "model.safetensors.index.json"
TOKENIZERS = ("tokenizer.json", "tokenizer.model")
CONSOLIDATED = re.compile(r"consolidated(\.\d+)?\.(pth|safetensors)")
PICKLES = ("*.bin", "*.pth", "*.pt", "*.ckpt", "*.h5", "*.msgpack")


@dataclass(frozen=True)
class Fetched:
    """`path`: what to open, in the cache; `note`: what was taken from where."""

    path: Path
    note: str


def is_id(source: str) -> bool:
    """Whether this can be a hub id. A folder here of the first part's name says that a path was meant."""
    hit = ID.fullmatch(source)
    return bool(hit) and ".." not in source and not os.path.lexists(hit.group(1))


def cached(source: str) -> Path | None:
    """Where an earlier visit left this model; None where nothing is here. The hub is not asked."""
    hit = ID.fullmatch(source)
    found = _cached(f"{hit[1]}/{hit[2]}", hit[4], hit[3]) if hit else None
    return found and found.path


def fetch(source: str, progress: Told | None = None) -> Fetched:
    """Download what a model needs and nothing else. Without a connection, what is in the cache is used.

    `progress` is called with (file on its way, bytes done, bytes in all), many times a file; an error that it raises ends the
    download and is raised here, and no half file is left to be used. The terminal shows bars of its own.
    """
    hit = ID.fullmatch(source)
    if not hit:
        raise BlockscopeError(
            f"{shown(source, 200)} is not a hub id; expected org/name, such as org/name@revision or org/name/file.gguf"
        )
    repo, file, revision = f"{hit[1]}/{hit[2]}", hit[3], hit[4]
    from huggingface_hub import HfApi, constants, errors  # takes half a second; most models lie on disk

    cache = Path(constants.HF_HUB_CACHE)
    try:
        info = HfApi().model_info(repo, revision=revision, files_metadata=True, timeout=10)
        sizes = {one.rfilename: one.size or 0 for one in info.siblings or ()}
        download = Download(repo, revision)
        shards = _shards(download.get([INDEX], sizes) / INDEX) if INDEX in sizes and file is None else frozenset()
        wanted = needed(sizes, shards, file, repo)
        _check_room(sum(sizes[name] for name in wanted), cache, repo)
        folder = download.get(sorted(wanted, key=lambda name: (sizes[name], name)), sizes, progress)
    except BlockscopeError:
        raise
    except Stopped as stopped:
        raise stopped.error from None
    except errors.GatedRepoError:
        raise BlockscopeError(
            f"{repo} asks for its licence to be accepted on the hub: do so, then `hf auth login` here"
        ) from None
    except errors.RepositoryNotFoundError:
        raise BlockscopeError(
            f"{repo} is no folder here, and the hub has no public model of that name; check the spelling, or `hf auth login` "
            "if it is private"
        ) from None
    except errors.RevisionNotFoundError:
        raise BlockscopeError(f"the hub's {repo} has no revision {shown(revision)}; leave it out for the newest") from None
    except Exception as error:  # httpx, socket and OS errors, and offline mode
        if not is_local(error) and (fetched := _cached(repo, revision, file)):
            return fetched
        raise explained(repo, error, cache) from None
    return Fetched(folder / file if file else folder, f"fetched from the Hugging Face hub: {repo}, revision {info.sha[:8]}")


def needed(sizes: Mapping[str, int], shards: frozenset[str], file: str | None, repo: str) -> set[str]:
    """Which of a repository's files a model needs: its config, tokenizer and one copy of its weights."""
    theirs = f"the hub's {repo}"
    if file is not None:
        if file not in sizes:
            raise BlockscopeError(
                f"the hub's {repo} has no file {shown(file)}; name one that it has: {listed(_ggufs(sizes)) or 'no GGUF at all'}"
            )
        return _parts(file, sizes)
    tokenizer = {next((name for name in TOKENIZERS if name in sizes), "")} - {""}
    if "config.json" in sizes and INDEX in sizes:
        return {"config.json", INDEX, *tokenizer, *(shards & set(sizes))}
    if "config.json" in sizes and "model.safetensors" in sizes:
        return {"config.json", "model.safetensors", *tokenizer}
    if "params.json" in sizes and (
        weights := {n for n in sizes if re.fullmatch(r"consolidated(\.\d+)?\.(pth|safetensors)", n)}
    ):
        safe = {name for name in weights if name.endswith(".safetensors")}
        return {"params.json", *tokenizer, *(safe or weights)}
    if ggufs := _ggufs(sizes):
        if len(ggufs) > 1:
            raise BlockscopeError(f"{theirs} has several models ({listed(ggufs)}); name one, such as {repo}/{ggufs[0]}")
        return _parts(ggufs[0], sizes)
    if pickles := [name for name in sizes if any(fnmatch(name, pattern) for pattern in PICKLES)]:
        raise BlockscopeError(
            f"the hub's {repo} has its weights as {listed(pickles)} only, which can run code and are not opened; choose a "
            "repository that has safetensors or GGUF"
        )
    raise BlockscopeError(
        f"the hub's {repo} holds no model that can be opened: no config.json with safetensors, and no GGUF file; choose "
        "a repository that has one of these"
    )


def _ggufs(sizes: Mapping[str, int]) -> list[str]:
    """GGUF files, of a split model the first part."""
    return sorted(n for n in sizes if n.endswith(".gguf") and ("-of-" not in n or "-00001-of-" in n))


def _parts(file: str, sizes: Mapping[str, int]) -> set[str]:
    hit = re.fullmatch(r"(.+)-\d{5}-of-(\d{5})\.gguf", file)
    return {name for name in sizes if hit and re.fullmatch(rf"{re.escape(hit[1])}-\d{{5}}-of-{hit[2]}\.gguf", name)} or {file}


def _shards(index: Path) -> frozenset[str]:
    """The files that an index names; whether they make a whole model is settled when it is opened."""
    try:
        placed = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return frozenset()
    return frozenset(name for name in placed if isinstance(name, str))


def _check_room(bytes_: int, cache: Path, repo: str) -> None:
    place = next(parent for parent in (cache, *cache.parents) if parent.exists())
    free = shutil.disk_usage(place).free
    if bytes_ > free:
        raise BlockscopeError(
            f"{repo} needs {bytes_ / 1e9:,.1f} GB and {place} has {free / 1e9:,.1f} GB free; make room or set HF_HOME elsewhere"
        )


def _cached(repo: str, revision: str | None, file: str | None) -> Fetched | None:
    """What an earlier visit left."""
    from huggingface_hub import try_to_load_from_cache

    for name in [file] if file else ["config.json", "params.json"]:
        if isinstance(place := try_to_load_from_cache(repo, name, revision=revision), str):
            folder = Path(place).parents[len(Path(name).parts) - 1]
            note = f"from the cache of the Hugging Face hub, which did not answer: {repo}, revision {folder.name[:8]}"
            return Fetched(Path(place) if file else folder, note)
    return None
