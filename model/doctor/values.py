"""The numbers themselves, a stretch of a tensor at a time: not finite, all zero or all equal, rows of zeros, stored twice."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from model.checkpoints.checkpoint import Checkpoint
from model.checkpoints.fields import listed
from model.doctor.finding import Check
from model.doctor.layers import layer_of
from model.norms import Norm, OffsetRMSNorm
from model.pages import drop, mapped

STRETCH = 1 << 23  # entries looked at together
BLOCK = 1 / 16  # a lost part of a matrix is at least this share of its rows or columns: one of 16 ranks
EMBEDDING, HEAD = "embed.weight", "unembed.weight"
TIE = "tie_word_embeddings"


@dataclass(frozen=True)
class Values:
    """Of one parameter: how many entries, which of them are not finite or zero, and its finite ones; `digest` of its bytes.

    `rows`, `columns`: of a matrix (of experts: the rows of all), of which so many are all zero; `zero_tail`: the last ones.
    """

    count: int
    nan: int
    inf: int
    zero: int
    low: float
    high: float
    rms: float
    digest: str
    rows: int = 0
    columns: int = 0
    zero_rows: int = 0
    zero_columns: int = 0
    zero_tail: int = 0

    @property
    def finite(self) -> bool:
        return not self.nan and not self.inf


def measure(checkpoint: Checkpoint, report: Callable[[int, int, str], None]) -> dict[str, Values]:
    """Every parameter of the model, read once in order; a tied unembedding is the embedding and is not read again."""
    tensors, found = checkpoint.tensors, {}
    names = [name for name in tensors if not (checkpoint.config.tied and name == HEAD)]
    sizes = [prod(tensors.shape(name)) for name in names]
    done, total = 0, sum(sizes)
    for name, size in zip(names, sizes, strict=True):
        report(done, total, name)
        found[name] = look(tensors.read(name))
        done += size
    report(total, total, "all tensors")
    return found


def look(x: Tensor) -> Values:
    """One pass over x, whole rows at a time; pages of a file are handed back as it goes."""
    digest, from_file, matrix = hashlib.blake2b(digest_size=16), mapped(x), x.ndim > 1
    width = x.shape[-1] if matrix else 1
    table = x.reshape(-1, width)
    nan = inf = zero = zero_rows = tail = 0
    low, high, squares = torch.inf, -torch.inf, 0.0
    silent = torch.full((width,), matrix)  # columns that were zero so far
    together = max(1, STRETCH // width)
    for start in range(0, len(table), together):
        piece = table[start : start + together]
        digest.update(memoryview(piece.contiguous().view(torch.uint8).reshape(-1).numpy()))
        y = piece.float()
        if not torch.isfinite(y.sum()):
            nan, inf = nan + int(y.isnan().sum()), inf + int(y.isinf().sum())
            y = y[y.isfinite()]
        zeros = int((y == 0).sum())
        zero += zeros
        if matrix:
            rows = (piece == 0).all(-1) if zeros >= width else torch.zeros(len(piece), dtype=torch.bool)
            zero_rows += int(rows.sum())
            tail = tail + len(rows) if rows.all() else int(rows.flip(0).cummin(0).values.sum())
            silent &= (piece == 0).all(0) if zeros >= len(piece) else torch.tensor(False)
        if y.numel():
            low, high = min(low, float(y.amin())), max(high, float(y.amax()))
            squares += float(torch.linalg.vector_norm(y)) ** 2
        if from_file:
            drop(piece)
    finite = x.numel() - nan - inf
    rms = (squares / finite) ** 0.5 if finite else float("nan")
    sizes = (len(table), width, zero_rows, int(silent.sum()), tail) if matrix else ()
    return Values(x.numel(), nan, inf, zero, low, high, rms, digest.hexdigest(), *sizes)


def judge(checkpoint: Checkpoint, found: dict[str, Values]) -> list[Check]:
    return [_head(checkpoint, found), _finite(found), _zero(checkpoint, found), _twice(checkpoint, found)]


def _finite(found: dict[str, Values]) -> Check:
    bad = [
        f"{name} holds {v.nan:,} NaN and {v.inf:,} infinite of {v.count:,} numbers; fetch or convert the file again"
        for name, v in found.items()
        if not v.finite
    ]
    return Check.of("finite", f"every number of {len(found):,} tensors, for NaN and infinity", bad)


def _zero(checkpoint: Checkpoint, found: dict[str, Values]) -> Check:
    """Matrices and gains that multiply: all zero, they switch their part off; all equal, they were never written."""
    gains = {name for name, offset in norms(checkpoint) if not offset and name.endswith(".weight")}
    matrices = {name: v for name, v in found.items() if v.rows}
    warnings, notes = [], []
    dead = [name for name in found if found[name].zero == found[name].count and (name in matrices or name in gains)]
    if dead:
        warnings.append(
            f"all zero: {listed(sorted(dead))}; that part of the model does nothing: fetch or convert the file again"
        )
    for name, v in matrices.items():
        if v.finite and v.low == v.high and v.low != 0 and v.count > 1:
            warnings.append(f"all {v.count:,} numbers of {name} are {v.low:.4g}; it was never written: convert the model again")
        if v.zero < v.count:
            level, sentence = _blocks(name, v)
            (warnings if level else notes).extend([sentence] if sentence else [])
    return Check.of("zero", f"{len(matrices):,} matrices, their rows and columns, {len(gains):,} gains", warnings, notes)


def _blocks(name: str, v: Values) -> tuple[bool, str]:
    """(whether to warn, sentence) on rows and columns of zeros; those at the end of a vocabulary are padding."""
    rows = v.zero_rows - v.zero_tail if name in (EMBEDDING, HEAD) else v.zero_rows
    for count, of, what in ((rows, v.rows, "rows"), (v.zero_columns, v.columns, "columns")):
        if count >= max(2, BLOCK * of):
            sentence = (
                f"{count:,} of {of:,} {what} of {name} are all zero: a part of it is missing, unless the model was pruned"
            )
            return True, f"{sentence}; convert it again"
    if name in (EMBEDDING, HEAD) and v.zero_tail:
        return False, f"the last {v.zero_tail:,} of {v.rows:,} rows of {name} are all zero: padding of the vocabulary, as usual"
    return False, f"{rows:,} of {v.rows:,} rows of {name} are all zero" if rows else ""


def _twice(checkpoint: Checkpoint, found: dict[str, Values]) -> Check:
    """Matrices with the same bytes under two names; a layer that stands twice is told once."""
    same: dict[tuple, list[str]] = {}
    for name, v in found.items():
        if v.rows and v.zero < v.count and v.low < v.high:
            same.setdefault((v.digest, checkpoint.tensors.shape(name)), []).append(name)
    layers: dict[tuple, list[str]] = {}
    warnings = []
    for names in (names for names in same.values() if len(names) > 1 and set(names) != {EMBEDDING, HEAD}):
        places = [layer_of(name) for name in names]
        if all(places) and len({leaf for _, leaf in places}) == 1:
            layers.setdefault(tuple(layer for layer, _ in places), []).append(places[0][1])
        else:
            warnings.append(f"the same numbers under {len(names)} names: {listed(names)}; convert the model again")
    for numbers, leaves in layers.items():
        sentence = f"layers {listed(numbers)} hold the same numbers in {listed(leaves, 8)}"
        warnings.append(f"{sentence}: written twice, unless the model was made by repeating layers; convert it again")
    return Check.of("twice", f"{sum(bool(v.rows) for v in found.values()):,} matrices, for the same bytes twice", warnings)


def _head(checkpoint: Checkpoint, found: dict[str, Values]) -> Check:
    """Tied or not, by the config and by the numbers."""
    tie = next((field for field in checkpoint.settings if field.name == TIE), None)
    if checkpoint.config.tied:
        return Check.of("head", "the unembedding is tied to the embedding")
    if tie is not None and tie.value is True:
        sentence = f"{TIE} is true, yet the files hold an unembedding that differs from the embedding, and it is used"
        cure = f"set {TIE} to false if it was trained apart, else remove it from the files"
        return Check.of("head", "the unembedding against the embedding", [f"{sentence}; {cure}"])
    notes = []
    if HEAD in found and found[HEAD].digest == found[EMBEDDING].digest:
        notes = ["the unembedding is a copy of the embedding, yet the config does not tie them: harmless, stored twice"]
    return Check.of("head", "the unembedding is a matrix of its own", notes=notes)


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
