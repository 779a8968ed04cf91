"""A record that somebody brings: a .safetensors file, or the CSV of one. Read strictly; what is wrong is a sentence."""

import base64
import binascii
import csv
import io
import math
import re
import secrets
import tempfile
from pathlib import Path

import numpy as np

from model.errors import BlockscopeError
from model.growth.quantities import QUANTITIES
from model.growth.record import Record
from model.growth.sweeps import Sweep

LARGEST = 16 << 20  # bytes of one file
FIXED = ("step", "train_loss", "validation_loss", "layer", "head")
MOST_ROWS, MOST_LAYERS, MOST_HEADS = 2_000_000, 1024, 1024


def read_sent(name: object, data: object) -> tuple[str, Record]:
    """A file name and its bytes as base64 -> an unguessable key and the record."""
    name = re.sub(r"[^\w.\- ]", "_", Path(name).name)[-80:] if isinstance(name, str) and name else "record.safetensors"
    if not isinstance(data, str):
        raise BlockscopeError("no file was sent: choose a .safetensors or .csv record.")
    if len(data) > LARGEST * 4 / 3 + 4:
        raise BlockscopeError(f"{name} has more than {LARGEST >> 20} MB; a record of a run is far smaller.")
    try:
        body = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BlockscopeError(f"{name} did not arrive whole: send it again.") from None
    if name.lower().endswith(".csv"):
        return secrets.token_urlsafe(16), from_csv(body, name)
    if not name.lower().endswith(".safetensors"):
        raise BlockscopeError(f"{name} is not a record: those are .safetensors or .csv files that a run or LogitMonitor wrote.")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name.lstrip(".")
        path.write_bytes(body)
        try:
            record = Record.read(path)
        except BlockscopeError as error:  # where it was put here is nobody's business
            raise BlockscopeError(str(error).replace(f"{Path(folder).name}/", "")) from None
    if not np.isfinite(record.values["max_logit"]).any():
        raise BlockscopeError(f"{name} holds no finite logit, so there is nothing to draw.")
    return secrets.token_urlsafe(16), record


def from_csv(body: bytes, name: str) -> Record:
    """What Record.csv() wrote: one row for each probe, layer and head. A CSV carries no description: its name stands for it."""
    try:
        reader = csv.reader(io.StringIO(body.decode("utf-8-sig")))
        head = next(reader, [])
        quantities = [column for column in head if column in QUANTITIES]
        if tuple(head[:5]) != FIXED or "max_logit" not in quantities or set(head) - {*FIXED, *QUANTITIES, "bound"}:
            raise BlockscopeError(f"{name} is not the CSV of a record: its columns must begin with {', '.join(FIXED)}.")
        rows = []
        for row in reader:
            if len(row) != len(head) or len(rows) >= MOST_ROWS:
                raise BlockscopeError(f"{name}, line {reader.line_num}: expected {len(head)} values, got {len(row)}.")
            rows.append([float(cell) if cell else math.nan for cell in row])
    except UnicodeDecodeError:
        raise BlockscopeError(f"{name} is not text: a CSV record is.") from None
    except (ValueError, csv.Error) as error:
        if isinstance(error, BlockscopeError):
            raise
        raise BlockscopeError(f"{name}, line {reader.line_num}: a value is not a number.") from None
    if not rows:
        raise BlockscopeError(f"{name} holds no rows.")
    table = {column: np.array(values) for column, values in zip(head, zip(*rows, strict=True), strict=True)}
    return _assembled(table, quantities, name)


def _assembled(table: dict[str, np.ndarray], quantities: list[str], name: str) -> Record:
    for column, most in (("step", 1e12), ("layer", MOST_LAYERS - 1), ("head", MOST_HEADS - 1)):
        values = table[column]
        if not (
            np.isfinite(values).all() and (values == np.floor(values)).all() and (values >= 0).all() and (values <= most).all()
        ):
            raise BlockscopeError(f"{name}: {column} must be whole numbers from 0 to {most:,.0f}.")
    steps, probe = np.unique(table["step"].astype(np.int64), return_inverse=True)
    layer, head = table["layer"].astype(int), table["head"].astype(int)
    shape = (len(steps), int(layer.max()) + 1, int(head.max()) + 1)
    if math.prod(shape) > 4 * len(layer) + 4096:
        raise BlockscopeError(f"{name}: most of its {' x '.join(map(str, shape))} probes, layers and heads are missing.")
    values = {}
    for quantity in quantities:
        values[quantity] = np.full(shape, np.nan, np.float32)
        values[quantity][probe, layer, head] = table[quantity]
    bound = np.full(shape[:2], np.nan, np.float32)
    if "bound" in table:
        bound[probe, layer] = table["bound"]
    losses = {loss: np.full(len(steps), np.nan) for loss in ("train_loss", "validation_loss")}
    for loss, found in losses.items():
        found[probe] = table[loss]
    meta = {"name": name, "arm": "csv", "group": "opened", "label": name, "ended": f"at step {int(steps[-1])}"}
    return Record(meta=meta, step=steps, values=values, bound=bound, **losses)


def as_json(record: Record) -> dict:
    """A record without its patterns, for people who call an endpoint rather than open the page."""
    names = ("step", "train_loss", "validation_loss", "values", "bound", "snapshot_step")
    return {"meta": record.meta} | {name: getattr(record, name) for name in names}


def sweep_json(sweep: Sweep) -> dict:
    rows = [{"series": r.series, "x": r.x, "loss": r.loss, "max_logit": r.max_logit, "entropy": r.entropy} for r in sweep.rows]
    return {"label": sweep.label, "axis": sweep.axis, "rows": rows}
