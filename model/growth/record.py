"""One run as one file: what was measured at each probe, for every layer and head, and everything that decided the numbers.

A record is a safetensors file. Its tensors are the arrays of `Record` (attention patterns as their lower triangles, row by row:
no mask here shows a later key); its metadata has the format number and one JSON object.
"""

import csv
import io
import json
import math
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from model.checkpoints.fields import shown
from model.checkpoints.header import Entry, read_header
from model.errors import BlockscopeError
from model.growth.quantities import QUANTITIES

FORMAT = 1
SHIPPED = Path(__file__).parents[2] / "assets" / "growth"
LARGEST_FILE, LARGEST_META = 256 << 20, 1 << 20  # bytes
MOST = {"probe": 100_000, "layer": 1024, "head": 1024, "snap": 1000, "pos": 1024}
TEXTS = ("name", "arm", "group", "label", "ended")  # every record has these; the rest of `meta` is the trainer's to give
TYPES = {
    "config": dict, "architecture": dict, "recipe": dict, "corpus": dict, "also": list, "seed": int, "threads": int,
    "parameters": int, "seconds": float, "torch": str, "python": str, "code": str, "bytes_per_token": float,
}  # fmt: skip
VALUE = "value."  # before the names of measured quantities


@dataclass(frozen=True, kw_only=True, eq=False)
class Record:
    """One run. A probe is a step at which everything was measured, before that step's update.

    `meta`: name, arm ("off"), group ("stress"), label (plain words), ended ("finished", "stopped at step n", "not finite at
    step n"), and where the run was trained here: config (config.json's values, or absent where no model_type says it),
    architecture and recipe (path -> value), seed, torch, python, threads, code (sha256), corpus, parameters, seconds.
    `also`: further groups that the run belongs to. bytes_per_token: where the tokens are known to have one length in bytes,
    1 for runs on bytes, whose losses are then nats per byte as well as per token.
    """

    meta: dict
    step: np.ndarray  # int64 [probe], rising
    train_loss: np.ndarray  # float64 [probe], mean since the last probe, nats per token; NaN at the first
    validation_loss: np.ndarray  # float64 [probe], nats per token
    values: dict[str, np.ndarray]  # quantity of model.growth.measure -> float32 [probe, layer, head]
    bound: np.ndarray  # float32 [probe, layer], the largest logit that the gains allow; NaN where nothing bounds it
    snapshot_step: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # int64 [snap]
    patterns: np.ndarray | None = None  # uint8 [snap, layer, head, query_pos, key_pos], 255 * weight, rounded
    snapshot_tokens: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))  # int64 [pos], the text of the patterns

    @property
    def name(self) -> str:
        return self.meta["name"]

    @property
    def loss_unit(self) -> str:
        """Nats per byte where a token is a byte: all that is trained here, also before records said bytes_per_token."""
        one = self.meta.get("bytes_per_token", 1.0 if self.meta.get("recipe") and self.meta.get("corpus") else None)
        return "nats per byte" if one == 1 else "nats per token"

    def worst(self, quantity: str) -> np.ndarray:
        """The largest over the heads of each layer [probe, layer]; NaN heads (a layer that has fewer) are passed over."""
        with np.errstate(invalid="ignore"):
            return np.fmax.reduce(self.values[quantity], axis=-1)

    def write(self, path: str | Path) -> Path:
        """The file appears under its name only when it is whole. A record that could not be read back is not written."""
        path, tensors = Path(path), self._tensors()
        text = json.dumps(self.meta, allow_nan=False)
        _check(self.meta, {name: a.shape for name, a in tensors.items()}, path.name)
        _check_steps(self.step, self.snapshot_step, path.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(save(tensors, metadata={"blockscope_growth": str(FORMAT), "meta": text}))
        os.replace(part, path)
        return path

    @classmethod
    def read(cls, path: str | Path) -> "Record":
        """Raises BlockscopeError: one sentence, what is wrong with this file and what to do."""
        path = Path(path)
        meta, entries = _opened(path)
        _check(meta, {name: entry.shape for name, entry in entries.items()}, path.name)
        for name, entry in entries.items():
            if entry.dtype != _dtype(name):
                raise BlockscopeError(f"{path.name} stores {shown(name)} as {entry.dtype}; expected {_dtype(name)}")
        try:
            found = load_file(path)
        except (SafetensorError, OSError) as error:
            raise BlockscopeError(f"{path.name} cannot be read ({shown(str(error))}); copy or train it again") from None
        values = {name.removeprefix(VALUE): found.pop(name) for name in sorted(found, key=_place) if name.startswith(VALUE)}
        triangles = found.pop("patterns", None)
        record = cls(meta=meta, values=values, **found)
        _check_steps(record.step, record.snapshot_step, path.name)
        return record if triangles is None else replace(record, patterns=_square(triangles, len(record.snapshot_tokens)))

    def csv(self) -> str:
        """One row for each probe, layer and head."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["step", "train_loss", "validation_loss", "layer", "head", *self.values, "bound"])
        probes, layers, heads = next(iter(self.values.values())).shape
        for p in range(probes):
            run = [int(self.step[p]), _number(self.train_loss[p]), _number(self.validation_loss[p])]
            for layer in range(layers):
                for head in range(heads):
                    row = [_number(value[p, layer, head]) for value in self.values.values()]
                    writer.writerow([*run, layer, head, *row, _number(self.bound[p, layer])])
        return out.getvalue()

    def _tensors(self) -> dict[str, np.ndarray]:
        tensors = {VALUE + name: value for name, value in self.values.items()}
        tensors |= {name: getattr(self, name) for name in ARRAYS if name != "patterns"}
        if self.patterns is not None:
            rows, columns = np.tril_indices(self.patterns.shape[-1])
            tensors["patterns"] = self.patterns[..., rows, columns]
        return {name: np.ascontiguousarray(a, NUMPY[_dtype(name)]) for name, a in tensors.items()}


NUMPY = {"I64": np.int64, "F64": np.float64, "F32": np.float32, "U8": np.uint8}
ARRAYS = {  # stored name -> (number format, axes)
    "step": ("I64", ("probe",)),
    "train_loss": ("F64", ("probe",)),
    "validation_loss": ("F64", ("probe",)),
    "bound": ("F32", ("probe", "layer")),
    "snapshot_step": ("I64", ("snap",)),
    "snapshot_tokens": ("I64", ("pos",)),
    "patterns": ("U8", ("snap", "layer", "head", "triangle")),
}
MEASURED = ("F32", ("probe", "layer", "head"))


def shipped(folder: Path = SHIPPED) -> list[Path]:
    """The records that come with Blockscope, by name."""
    return sorted(folder.glob("*.safetensors"))


def index(folder: Path = SHIPPED) -> list[dict]:
    """The metadata of every record of a folder, and its file name as "file"; no array is read."""
    return [{**_opened(path)[0], "file": path.name} for path in shipped(folder)]


def _opened(path: Path) -> tuple[dict, dict[str, Entry]]:
    """Metadata and array descriptions of a file that is known to be a record of this format."""
    name = path.name
    if not path.is_file():
        raise BlockscopeError(f"there is no record {shown(name)}; a record is a .safetensors file that a Growth run wrote")
    if path.stat().st_size > LARGEST_FILE:
        raise BlockscopeError(f"{name} has {path.stat().st_size:,} bytes; a record of a run has at most {LARGEST_FILE:,}")
    entries = read_header(path)
    with path.open("rb") as file:
        raw = json.loads(file.read(int.from_bytes(file.read(8), "little"))).get("__metadata__")
    if not isinstance(raw, dict) or "blockscope_growth" not in raw:
        raise BlockscopeError(f"{name} is a safetensors file but not the record of a Growth run")
    if raw["blockscope_growth"] != str(FORMAT):
        said = shown(raw["blockscope_growth"])
        raise BlockscopeError(
            f"{name} is a record of format {said}, and this version reads format {FORMAT}: train the run again"
        )
    text = raw.get("meta")
    if not isinstance(text, str) or len(text) > LARGEST_META:
        raise BlockscopeError(f"{name} is damaged: its description is missing or longer than {LARGEST_META:,} characters")
    try:
        meta = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise BlockscopeError(f"{name} is damaged: its description is not JSON; copy or train it again") from None
    return _described(meta, name), entries


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _described(meta: object, name: str) -> dict:
    if not isinstance(meta, dict):
        raise BlockscopeError(f"{name} is damaged: its description is {shown(meta)}, not an object")
    for key in TEXTS:
        if not isinstance(meta.get(key), str) or not meta[key] or len(meta[key]) > 500:
            raise BlockscopeError(f"{name} is damaged: {key} is {shown(meta.get(key))}; expected a short text")
    for key, kind in TYPES.items():
        value = meta.get(key)
        if value is not None and (type(value) is bool or not isinstance(value, (int, float) if kind is float else kind)):
            raise BlockscopeError(f"{name} is damaged: {key} is {shown(value)}; expected {kind.__name__}")
    return meta


def _place(stored: str) -> tuple[int, str]:
    """Measured quantities in the order in which they are shown."""
    known, name = list(QUANTITIES), stored.removeprefix(VALUE)
    return (known.index(name) if name in known else len(known), name)


def _dtype(name: str) -> str:
    return (MEASURED if name.startswith(VALUE) else ARRAYS[name])[0]


def _check(meta: dict, shapes: dict[str, tuple[int, ...]], name: str) -> None:
    """Every array is known, and one axis has one length in all of them."""
    _described(meta, name)
    sizes: dict[str, int] = {}
    for key, shape in shapes.items():
        if not key.startswith(VALUE) and key not in ARRAYS:
            raise BlockscopeError(f"{name} holds {shown(key)}, which is no part of a record")
        axes = (MEASURED if key.startswith(VALUE) else ARRAYS[key])[1]
        if len(shape) != len(axes):
            raise BlockscopeError(f"{name}: {shown(key)} has shape {list(shape)}; expected the axes {' '.join(axes)}")
        for axis, size in zip(axes, shape, strict=True):
            if sizes.setdefault(axis, size) != size:
                raise BlockscopeError(f"{name}: {shown(key)} has {size} along {axis}, another array {sizes[axis]}")
    if missing := [key for key in (*ARRAYS, VALUE + "max_logit") if key not in shapes and key != "patterns"]:
        raise BlockscopeError(f"{name} lacks {', '.join(missing)}: it is damaged, copy or train it again")
    for axis, most in MOST.items():
        least = 0 if axis in ("snap", "pos") else 1
        if not least <= sizes[axis] <= most:
            raise BlockscopeError(f"{name} has {sizes[axis]:,} along {axis}; expected {least} to {most:,}")
    if "triangle" in sizes and sizes["triangle"] != sizes["pos"] * (sizes["pos"] + 1) // 2:
        raise BlockscopeError(f"{name}: patterns of {sizes['triangle']} entries do not belong to {sizes['pos']} tokens")


def _check_steps(step: np.ndarray, snapshot_step: np.ndarray, name: str) -> None:
    for steps in (step, snapshot_step):
        if len(steps) and (steps[0] < 0 or (np.diff(steps) <= 0).any()):
            raise BlockscopeError(f"{name} is damaged: its steps do not rise from 0 on")


def _square(triangles: np.ndarray, pos: int) -> np.ndarray:
    square = np.zeros((*triangles.shape[:-1], pos, pos), np.uint8)
    rows, columns = np.tril_indices(pos)
    square[..., rows, columns] = triangles
    return square


def _number(value: float) -> str:
    """Nothing where there is no number; inf is a number that overflowed."""
    return "" if math.isnan(value) else f"{value:.6g}"
