"""Surveys as text: a table of layers or of models, or every layer and head as CSV or JSON."""

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence

import numpy as np

from model.growth.quantities import QUANTITIES
from model.growth.survey import STAGES, Survey

Found = Sequence[tuple[int | None, Survey]]  # the training step, where it is known, and what was measured


def cells(survey: Survey) -> dict[str, np.ndarray]:
    """Column -> float32 [layer, head]: every stage and quantity, gains and bound repeated for the heads of their layer.

    max_capped is what the stage "masked" says already.
    """
    heads = survey.values["max_logit"].shape[1]
    layers = {f"gain_{part}": found for part, found in survey.gains.items()} | {"bound": survey.bound}
    return {
        **{stage.replace(" ", "_"): value for stage, value in survey.stages.items()},
        **{q: value for q, value in survey.values.items() if q != "max_capped"},
        **{name: np.repeat(value[:, None], heads, 1) for name, value in layers.items()},
    }  # fmt: skip


def worst(name: str, value: np.ndarray, axis: int | None = None) -> np.ndarray:
    """Over heads, or over everything: the largest, of the entropy the lowest, of overflows the sum; NaN where all are."""
    if name == "overflow":
        return np.nansum(value, axis=axis)
    return (np.fmin if name == "entropy" else np.fmax).reduce(value, axis=axis)


def table(found: Found) -> str:
    """One model: a row for each layer. Several: a row for each. A column that is empty in all rows is left out."""
    if len(found) == 1:
        survey = found[0][1]
        columns = {name: worst(name, value, 1) for name, value in cells(survey).items()}
        rows = [{"layer": str(i), **{n: c[i] for n, c in columns.items()}} for i in range(len(survey.bound))]
    else:
        rows = [
            {"model": s.name if step is None else str(step), **{n: worst(n, v) for n, v in cells(s).items()}}
            for step, s in found
        ]
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if any(filled(row.get(n, math.nan)) for row in rows)]
    body = [names, *([cell(row.get(name, math.nan)) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip() for row in body]
    return "\n".join([*heading(found), "", *lines])


def heading(found: Found) -> list[str]:
    """What was measured on, one line where it was the same for all, and how the rows are reduced."""
    said = {s.name: f"{s.tokens[0]} x {s.tokens[1]} tokens, run in {s.dtype}, measured in fp32" for _, s in found}
    lines = [f"{name}: {words}" for name, words in said.items()] if len(set(said.values())) > 1 else [next(iter(said.values()))]
    over = "layer the worst head" if len(found) == 1 else "model the worst layer and head"
    name = f"{found[0][1].name}, " if len(found) == 1 else ""
    return [name + line for line in lines] + [
        f"of each {over}: the largest value, of the entropy the lowest, of overflows the sum"
    ]


def filled(value: object) -> bool:
    return isinstance(value, str) or not math.isnan(value)


def cell(value: object) -> str:
    return value if isinstance(value, str) else "" if math.isnan(value) else f"{value:.4g}"


def rows(found: Found) -> Iterator[dict]:
    """One row for each model, layer and head."""
    for step, survey in found:
        columns = cells(survey)
        layers, heads = survey.values["max_logit"].shape
        for layer in range(layers):
            for head in range(heads):
                at = {"model": survey.name, "step": step, "layer": layer, "head": head}
                yield at | {name: float(value[layer, head]) for name, value in columns.items()}


def as_csv(found: Found) -> str:
    names = list(dict.fromkeys(["model", "step", "layer", "head", *(n for _, s in found for n in cells(s))]))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({n: "" if v is None or v != v else v for n, v in row.items()} for row in rows(found))
    return out.getvalue().rstrip("\n")


def as_json(found: Found) -> str:
    """JSON has no NaN and no infinity: they are null and a text."""
    meanings = {**{stage.replace(" ", "_"): meaning for stage, meaning in STAGES.items()}, **QUANTITIES}
    models = [
        {
            "model": s.name, "step": step, "texts": s.tokens[0], "tokens": s.tokens[1], "dtype": s.dtype,
            "values": {name: [[plain(x) for x in line] for line in value] for name, value in cells(s).items()},
        }
        for step, s in found
    ]  # fmt: skip
    return json.dumps({"axes": ["layer", "head"], "meanings": meanings, "models": models}, allow_nan=False)


def plain(x: float) -> float | str | None:
    return None if math.isnan(x) else float(f"{x:.7g}") if math.isfinite(x) else str(float(x))


FORMS = {"table": table, "json": as_json, "csv": as_csv}
