"""python -m model.count PRESET|config.json [--compare ...] [--show ...] [--context N] [--bits 16] [--json]"""

import argparse
import json
import sys
from itertools import groupby
from pathlib import Path

from model.anatomy.budget import uncounted
from model.anatomy.described import Described, folder
from model.anatomy.writing import several
from model.cost import amount
from model.count import count
from model.count.tables import TABLES, Asked, as_values
from model.counting import PARTS, Count
from model.errors import BlockscopeError, printable_lines


def rows(found: Count, context: int, itemsize: int) -> dict[str, str]:
    """What the table says of one model: label -> text."""
    return {
        "parameters": f"{found.parameters:,}",
        "met by one token": f"{found.active:,}",
        **{part: f"{found.by_part[part]:,}" for part in PARTS if part in found.by_part},
        f"weights in {8 * itemsize} bits": amount(found.weight_bytes(itemsize), "B"),
        f"cache of the next token, {8 * itemsize} bits": amount(found.kv_bytes_per_token(itemsize), "B"),
        f"cache of {several(context, 'token')}, {8 * itemsize} bits": amount(found.kv_cache_bytes(context, itemsize), "B"),
        "FLOPs of the first token": amount(found.flops_per_token(), "FLOP"),
        f"FLOPs of token {context:,}": amount(found.flops_per_token(context), "FLOP"),
    }


def blocks(name: str, found: Count) -> list[str]:
    """One line for each run of equal blocks."""
    lines, first = [], 0
    for parts, same in groupby(found.by_block, lambda block: block.by_part):
        last, whole = first + len(list(same)) - 1, sum(parts.values())
        which = f"block {first}" if first == last else f"blocks {first} to {last}, each"
        lines.append(f"{name}, {which}: {', '.join(f'{part} {n:,} ({n / whole:.1%})' for part, n in parts.items())}")
        first = last + 1
    return lines


def table(columns: dict[str, dict[str, str]]) -> str:
    """Models side by side; a row that one of them lacks says "-"."""
    labels = list(dict.fromkeys(label for said in columns.values() for label in said))
    return aligned([["", *columns], *([label, *(said.get(label, "-") for said in columns.values())] for label in labels)])


def aligned(body: list[list[str]], left: bool = False) -> str:
    """Rows of text in columns; numbers end at the right of theirs, words with `left` start at its left."""
    widths = [max(map(len, column)) for column in zip(*body, strict=True)]
    push = str.ljust if left else str.rjust
    cells = ([line[0].ljust(widths[0]), *map(push, line[1:], widths[1:])] for line in body)
    return "\n".join("  ".join(line).rstrip() for line in cells)


def as_json(found: Count, context: int, itemsize: int) -> dict:
    """Everything that was counted, as plain numbers."""
    return {
        "parameters": found.parameters,
        "active": found.active,
        "by_part": dict(found.by_part),
        "by_block": [{"parameters": b.parameters, "active": b.active, **b.by_part} for b in found.by_block],
        "weight_bytes": found.weight_bytes(itemsize),
        "kv_bytes_per_token": found.kv_bytes_per_token(itemsize),
        "kv_cache_bytes": found.kv_cache_bytes(context, itemsize),
        "flops_per_token": found.flops_per_token(context),
        "context": context,
        "itemsize": itemsize,
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m model.count", description="Count a model from its configuration alone.")
    parser.add_argument("source", help="a preset, a config.json, or a folder with one")
    parser.add_argument("--compare", nargs="+", default=[], metavar="SOURCE", help="further models, side by side")
    shown = (
        "further tables: equations, every parameter with its product, shapes, formulas of the totals, cache designs, the ladder"
    )
    parser.add_argument(
        "--show", nargs="+", default=[], choices=[*TABLES], metavar="TABLE", help=f"{shown} ({', '.join(TABLES)})"
    )
    parser.add_argument("--context", type=int, help="tokens of the text; without it, the first model's own context")
    parser.add_argument("--bits", type=int, choices=(8, 16, 32), default=16, help="of a number in weights and cache")
    parser.add_argument("--json", action="store_true", help="plain numbers, for programs")
    asked = parser.parse_args(arguments)
    if asked.context is not None and asked.context < 1:
        parser.error(f"--context must be at least 1, got {asked.context}")
    try:
        found = {source: count(source) for source in [asked.source, *asked.compare]}
    except BlockscopeError as error:
        print(error, file=sys.stderr)
        return 2
    show = as_json if asked.json else rows
    context = asked.context or found[asked.source].context
    said = {name: show(one, context, asked.bits // 8) for name, one in found.items()}
    wanted = list(dict.fromkeys([*(["lines"] if asked.compare else []), *asked.show]))
    tables = Asked({name: _described(name) for name in found}, context, asked.bits // 8) if wanted else None
    if asked.json:
        print(json.dumps(said | {"tables": {name: as_values(name, tables) for name in wanted}} if wanted else said, indent=2))
        return 0
    notes = [f"{name}: {note}." for name in found if (note := uncounted(_described(name).config))]
    lines = [table(said), *notes, "", *(line for name, one in found.items() for line in blocks(name, one))]
    print(printable_lines("\n".join(lines)))
    for name in wanted:
        print("", name.upper(), aligned(TABLES[name](tables), left=True), sep="\n")
    return 0


def _described(source: str) -> Described:
    return folder(Path(source).name or source, source)


if __name__ == "__main__":
    sys.exit(main())
