"""The numbers themselves, a stretch of a tensor at a time: not finite, all zero, stored twice, gains far from one."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.fields import listed
from model.doctor.finding import NOTE, WARNING, Finding
from model.norms import Norm, OffsetRMSNorm
from model.pages import drop, mapped

STRETCH = 1 << 23  # entries looked at together
SMALL_GAIN, LARGE_GAIN = 0.02, 1000.0  # medians of |gain|; Gemma 3's norms on outputs reach 150
HEAD = "unembed.weight"


@dataclass(frozen=True)
class Values:
    """Of one parameter: how many entries, which of them are not finite or zero, and its finite ones; `digest` of its bytes."""

    count: int
    nan: int
    inf: int
    zero: int
    low: float
    high: float
    rms: float
    digest: str


def measure(checkpoint: Checkpoint, report: Callable[[int, int, str], None]) -> dict[str, Values]:
    """Every parameter of the model, read once in order; a tied unembedding is the embedding and is not read again."""
    tensors, found = checkpoint.tensors, {}
    names = [name for name in tensors if not (checkpoint.config.tied and name == HEAD)]
    sizes = [torch.Size(tensors.shape(name)).numel() for name in names]
    done, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        report(done, total, name)
        found[name] = look(tensors.read(name))
        done += size
    report(total, total, "all tensors")
    return found


def look(x: Tensor) -> Values:
    """One pass over x; pages of a file are handed back as it goes."""
    digest, from_file, flat = hashlib.blake2b(digest_size=16), mapped(x), x.reshape(-1)
    nan = inf = zero = 0
    low, high, squares = torch.inf, -torch.inf, 0.0
    for start in range(0, flat.numel(), STRETCH):
        piece = flat[start : start + STRETCH]
        digest.update(memoryview(piece.contiguous().view(torch.uint8).numpy()))
        y = piece.float()
        if not torch.isfinite(y.sum()):
            nan, inf = nan + int(y.isnan().sum()), inf + int(y.isinf().sum())
            y = y[y.isfinite()]
        zero += int((y == 0).sum())
        if y.numel():
            low, high = min(low, float(y.amin())), max(high, float(y.amax()))
            squares += float(torch.linalg.vector_norm(y)) ** 2
        if from_file:
            drop(piece)
    finite = flat.numel() - nan - inf
    rms = (squares / finite) ** 0.5 if finite else float("nan")
    return Values(flat.numel(), nan, inf, zero, low, high, rms, digest.hexdigest())


def judge(checkpoint: Checkpoint, found: dict[str, Values]) -> list[Finding]:
    return [*_not_numbers(found), *_empty(checkpoint, found), *_twice(checkpoint, found), *_gains(checkpoint)]


def _not_numbers(found: dict[str, Values]) -> list[Finding]:
    return [
        Finding(WARNING, "finite", f"{name} holds {v.nan:,} NaN and {v.inf:,} infinite of {v.count:,} numbers")
        for name, v in found.items()
        if v.nan or v.inf
    ]


def _empty(checkpoint: Checkpoint, found: dict[str, Values]) -> list[Finding]:
    """Matrices, and gains that multiply: all zero, they switch their part off."""
    silent = {name for name, v in found.items() if v.zero == v.count}
    gains = {name for name, offset in norms(checkpoint) if not offset and name.endswith(".weight")}
    dead = [name for name in silent if len(checkpoint.tensors.shape(name)) > 1 or name in gains]
    if not dead:
        return []
    return [Finding(WARNING, "zero", f"all zero: {listed(sorted(dead))}; that part of the model does nothing")]


def _twice(checkpoint: Checkpoint, found: dict[str, Values]) -> list[Finding]:
    """Matrices with the same bytes under two names."""
    same: dict[tuple, list[str]] = {}
    for name, v in found.items():
        if len(checkpoint.tensors.shape(name)) > 1 and v.zero < v.count:
            same.setdefault((v.digest, checkpoint.tensors.shape(name)), []).append(name)
    findings = []
    for names in (names for names in same.values() if len(names) > 1):
        if set(names) == {"embed.weight", HEAD}:
            sentence = "the unembedding is a copy of the embedding, yet the config does not tie them: harmless, stored twice"
            findings.append(Finding(NOTE, "head", sentence))
        else:
            findings.append(Finding(WARNING, "twice", f"the same numbers under {len(names)} names: {listed(names)}"))
    head = "tied to the embedding" if checkpoint.config.tied else "a matrix of its own"
    return [*findings, Finding(NOTE, "head", f"the unembedding is {head}")]


def _gains(checkpoint: Checkpoint) -> list[Finding]:
    findings = []
    for name, offset in norms(checkpoint):
        gain = checkpoint.tensors.read(name).float() + (1.0 if offset else 0.0)
        middle = float(gain.abs().median())
        if name.endswith(".bias") or not torch.isfinite(gain).all() or SMALL_GAIN <= middle <= LARGE_GAIN:
            continue
        hint = "; these may be offsets from 1, as Gemma stores them" if middle < SMALL_GAIN and not offset else ""
        findings.append((name, middle, hint))
    if not findings:
        return []
    name, middle, hint = findings[0]
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return [Finding(WARNING, "gains", f"the gains of {name}{more} are far from 1: median |gain| {middle:.3g}{hint}")]


def norms(checkpoint: Checkpoint) -> list[tuple[str, bool]]:
    """Parameters of norms by name, and whether they are offsets from 1."""
    with torch.device("meta"):
        net = checkpoint.config.build()
    return [
        (f"{path}.{leaf}", isinstance(module, OffsetRMSNorm))
        for path, module in net.named_modules()
        if isinstance(module, Norm)
        for leaf, _ in module.named_parameters(recurse=False)
    ]
