"""Records as plain tables: the end of a run layer by layer, or the runs of a folder one below the other."""

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from model.checkpoints.fields import shown
from model.errors import BlockscopeError
from model.growth.record import Record, shipped

COLUMNS = ("name", "label", "lr", "seed", "step", "validation_loss", "max_logit", "peak", "entropy", "one_hot", "ended")


def show(path: Path, form: str = "table") -> str:
    """`form`: "table", "json" or "csv"; of a record or of every record in a folder."""
    if path.is_dir():
        files = shipped(path)
        if not files:
            raise BlockscopeError(f"{shown(path.name or str(path))} holds no records (.safetensors)")
        rows = [summary(Record.read(file)) for file in files]
        return FORMS[form](COLUMNS, rows)
    record = Record.read(path)
    if form == "csv":
        return record.csv().rstrip("\n")
    rows = layers(record)
    if form == "json":
        return json.dumps({**record.meta, "final": [_plain(row) for row in rows]}, indent=1)
    return f"{heading(record)}\n\n{_table(tuple(rows[0]), rows)}"


def heading(record: Record) -> str:
    meta, recipe = record.meta, record.meta.get("recipe") or {}
    told = [f"{name} {recipe[name]}" for name in ("lr", "steps", "batch", "context", "seed") if recipe.get(name) is not None]
    loss, at = _last(record.validation_loss), record.step[-1]
    lines = [f"{meta['name']}: {meta['label']} ({meta['ended']})", ", ".join(told)]
    known = (
        "no validation loss" if np.isnan(record.validation_loss).all() else f"validation loss {_cell(loss)} {record.loss_unit}"
    )
    lines.append(f"step {at}: {known}; of each layer the largest head (entropy: the lowest)")
    return "\n".join(line for line in lines if line)


def layers(record: Record) -> list[dict]:
    """Each layer at the last probe: the largest value of its heads, of the entropy the lowest."""
    found = {name: record.worst(name)[-1] for name in record.values}
    if "entropy" in record.values:
        found["entropy"] = np.fmin.reduce(record.values["entropy"][-1], axis=-1)
    columns = {**found, "bound": record.bound[-1]}
    return [{"layer": i, **{name: float(value[i]) for name, value in columns.items()}} for i in range(record.bound.shape[1])]


def summary(record: Record) -> dict:
    """One run in one row: at its last probe over all layers and heads, and `peak`, the largest logit of the whole run."""
    recipe, rows = record.meta.get("recipe") or {}, layers(record)
    values = {
        "name": record.name, "label": record.meta["label"], "lr": recipe.get("lr"), "seed": recipe.get("seed"),
        "step": int(record.step[-1]), "validation_loss": _last(record.validation_loss),
        "max_logit": float(np.fmax.reduce([row["max_logit"] for row in rows])),
        "peak": float(np.fmax.reduce(record.values["max_logit"], axis=None)),
        "entropy": float(np.fmin.reduce([row.get("entropy", math.nan) for row in rows])),
        "one_hot": float(np.fmax.reduce([row.get("one_hot", math.nan) for row in rows])),
        "ended": record.meta["ended"],
    }  # fmt: skip
    return values


def _last(losses: np.ndarray) -> float:
    """The last one that was measured; of a run that ended in NaN, that."""
    return float(losses[-1])


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.5g}" if isinstance(value, float) else str(value)


def _plain(row: dict) -> dict:
    """JSON has no NaN and no infinity: they are null and a text."""
    return {k: (None if v != v else str(v)) if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}


def _table(columns: Sequence[str], rows: Sequence[dict]) -> str:
    cells = [list(columns), *([_cell(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    texts = {i for i, name in enumerate(columns) if isinstance(rows[0][name], str)}
    lines = [[cell.ljust(w) if i in texts else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths, strict=True))]
             for line in cells]  # fmt: skip
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _csv(columns: Sequence[str], rows: Sequence[dict]) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: "" if row[name] != row[name] else row[name] for name in columns} for row in rows)
    return out.getvalue().rstrip("\n")


def _json(columns: Sequence[str], rows: Sequence[dict]) -> str:
    return json.dumps([_plain(row) for row in rows], indent=1)


FORMS = {"table": _table, "csv": _csv, "json": _json}
