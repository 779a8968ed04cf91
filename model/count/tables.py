"""The tables of the Anatomy page for a terminal: each as rows of text, and as plain values for --json."""

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

from model.anatomy import budget, equations, facts, ladder, parameters, shapes
from model.anatomy.described import Described
from model.anatomy.designs import designs
from model.anatomy.kinds import kinds
from model.anatomy.writing import several
from model.cost import amount
from model.counting import count_config

Rows = list[list[str]]


@dataclass(frozen=True)
class Asked:
    """Models by name, the text that is counted for, and bytes a number."""

    models: Mapping[str, Described]
    context: int
    itemsize: int
    width: str = "matched"


def plain_words(text: str) -> str:
    """ "Attn_{GQA, RoPE} e^{s_{ij}}" -> "Attn_GQA_RoPE e^s_ij"; an exponent of several terms is put in brackets."""
    while (inner := re.search(r"([_^])\{([^{}]*)\}", text)) is not None:
        mark, said = inner[1], inner[2].replace(", ", "_").replace(" ", "_")
        said = f"({said})" if re.search(r"[+/*−]", said) else said
        text = f"{text[: inner.start()]}{mark}{said}{text[inner.end() :]}"
    return text


def lines(asked: Asked) -> Rows:
    """Side by side; a star marks a row in which the models differ."""
    found = _lines(asked)
    return [["", *asked.models], *([f"{'*' if x.differs else ' '} {x.group}: {x.name}", *x.values] for x in found)]


def _lines(asked: Asked) -> list[facts.Line]:
    configs = {name: told.config for name, told in asked.models.items()}
    return facts.side_by_side(configs, {name: told.origin for name, told in asked.models.items()}, asked.context)


def written(asked: Asked) -> Rows:
    """The equations of every kind of block."""
    rows = []
    for name, told in asked.models.items():
        rows += [[name, ""], *([plain_words(e.text), e.note] for e in equations.model_equations(told.config))]
        for kind in kinds(told.config):
            rows += [[f"{name}, layers {kind.where}", ""]]
            rows += [[plain_words(e.text), plain_words(e.note)] for e in equations.block_equations(kind.block)]
    return rows


def matrices(asked: Asked) -> Rows:
    """Every parameter with the product behind it."""
    rows = [["part", "parameter", "layers", "", "in all", "each"]]
    for name, told in asked.models.items():
        rows += [[name, "", "", "", "", ""]] if len(asked.models) > 1 else []
        for row in parameters.parameters(told.config):
            times = f"{row.times} x" if row.times > 1 else ""
            rows.append([row.part, row.name, row.where, times, f"{row.total:,}", row.formula])
    return rows


def sizes(asked: Asked) -> Rows:
    """The shape of every tensor of every kind of block, for one text of `context` tokens."""
    rows = [["tensor", "axes", "shape", "numbers"]]
    for name, told in asked.models.items():
        for kind in kinds(told.config):
            rows.append([f"{name}, layers {kind.where}", "", "", ""])
            for shape in shapes.block_shapes(kind.block, 1, asked.context):
                rows.append([shape.tap, " ".join(shape.dims), " x ".join(f"{n:,}" for n in shape.sizes), f"{shape.elements:,}"])
    return rows


def sums(asked: Asked) -> Rows:
    """Totals with the formula of each."""
    rows = []
    for name, told in asked.models.items():
        rows.append([name, "", ""])
        rows += [[n.name, n.text, n.formula] for n in budget.numbers(told.config, asked.context, itemsize=asked.itemsize)]
    return rows


def caches(asked: Asked) -> Rows:
    """KV-cache designs with the heads of each model."""
    rows = [["design", "a token", several(asked.context, "token"), "users in 80 GB", "kept for a token and layer"]]
    for name, told in asked.models.items():
        rows += [[name, "", "", "", ""]] if len(asked.models) > 1 else []
        for d in designs(told.config, asked.context, asked.itemsize):
            rows.append([d.name, amount(d.per_token, "B"), amount(d.cache, "B"), f"{d.users:,}", d.note])
    return rows


def rungs(asked: Asked) -> Rows:
    """The ladder at its common size; the models asked for do not matter."""
    rows = [["reached", "change", "parameters", "met by a token", "cache", "FLOPs", "attention of a block"]]
    for rung, config in ladder.climb(ladder.COMMON, asked.width):
        found = count_config(config)
        first = found.by_block[0]
        rows.append([
            rung.model, rung.change, f"{found.parameters:,}", f"{found.active:,}",
            amount(found.kv_cache_bytes(asked.context, asked.itemsize), "B"),
            amount(found.flops_per_token(asked.context), "FLOP"), f"{first.by_part['attention'] / first.parameters:.1%}",
        ])  # fmt: skip
    return rows


TABLES: dict[str, Callable[[Asked], Rows]] = {
    "lines": lines,
    "equations": written,
    "parameters": matrices,
    "shapes": sizes,
    "formulas": sums,
    "caches": caches,
    "ladder": rungs,
}


def as_values(name: str, asked: Asked) -> object:
    """A table for programs: side by side with its sources, the others as rows of named texts."""
    if name == "lines":
        return [asdict(line) for line in _lines(asked)]
    return TABLES[name](asked)
