"""The sections of the Anatomy page as plain values: each is built from the model and a few fields of the view.

A section has a key; the page sends the keys that it has, and only sections that changed travel.
"""

import hashlib
from collections.abc import Callable
from dataclasses import asdict

from model import byhand
from model.anatomy import budget, equations, facts, kinds, ladder, parameters, shapes
from model.anatomy.designs import designs, head_size
from model.cost import amount
from model.counting import PARTS, Count, count_block, count_config
from model.errors import BlockscopeError
from model.lm import Decoder
from viz.anatomy_state import NUMBERS, VECTORS, AnatomyState, numbers, rows
from viz.pages.anatomy_sight import Sight
from viz.pages.answers import block_drawings, block_nodes
from viz.theme import count


def block(s: Sight) -> dict:
    """Equations, the diagram and its shapes."""
    found = kinds.kinds(s.config)
    chosen = s.kind
    taps = {shape.tap: shape for shape in shapes.block_shapes(chosen.block, s.state.batch, s.state.length)}
    nodes = {node.id: _node_shape([taps[tap] for tap in node.shown if tap in taps]) for node in block_nodes(chosen.block)}
    return {
        "model": [asdict(line) for line in equations.model_equations(s.config)],
        "kinds": [{"name": kind.name, "where": layers_of(kind.where), "layers": len(kind.layers)} for kind in found],
        "kind": found.index(chosen),
        "lines": [asdict(line) for line in equations.block_equations(chosen.block)],
        "drawing": block_drawings(chosen.block),
        "nodes": nodes,
    }


def _node_shape(found: list[shapes.Shape]) -> dict:
    said = [" × ".join(f"{n:,}" for n in shape.sizes[shape.dims[0] == "batch" :]) for shape in found]
    full = [f"{shape.tap} [{', '.join(shape.dims)}] = [{', '.join(f'{n:,}' for n in shape.sizes)}]" for shape in found]
    return {"short": said[0] if said else "", "full": "\n".join(full), "taps": [shape.tap for shape in found]}


def totals(s: Sight) -> dict:
    found = budget.numbers(s.config, s.state.context, s.state.together, s.state.itemsize)
    rows = [{"name": n.name, "text": n.text, "formula": n.formula} for n in found]
    return {"rows": rows, "note": budget.uncounted(s.config)}


def table(s: Sight) -> dict:
    """By part, and inside each part by parameter."""
    found, whole = parameters.parameters(s.config), count_config(s.config)
    parts = []
    for part, total in whole.by_part.items():
        inside = [row for row in found if row.part == part]
        parts.append({
            "part": part, "about": PARTS[part], "total": f"{total:,}", "share": total / whole.parameters,
            "formula": _sum(inside, total),
            "rows": [_parameter(row, whole.parameters) for row in inside],
        })  # fmt: skip
    by_block = []
    for kind in kinds.kinds(s.config):
        counted = count_block(kind.block)
        said = " + ".join(f"{part} {n:,} ({n / counted.parameters:.1%})" for part, n in counted.by_part.items())
        active = "" if counted.active == counted.parameters else f"; one token meets {counted.active:,}"
        each = f"{counted.parameters:,}"
        by_block.append({"where": kind.where, "name": kind.name, "each": each, "formula": f"{said} = {each}{active}"})
    return {"parts": parts, "blocks": by_block, "total": f"{whole.parameters:,}"}


def _sum(found: list[parameters.Row], total: int, most: int = 8) -> str:
    """What a part adds up from; of one matrix alone the product behind it, since a number is not its own reason."""
    if len(found) == 1 and found[0].times == 1:
        return found[0].formula
    said = [f"{row.each:,}" if row.times == 1 else f"{row.times} × {row.each:,}" for row in found]
    return f"{' + '.join(said if len(said) <= most else [*said[:most], '…'])} = {total:,}"


def _parameter(row: parameters.Row, whole: int) -> dict:
    whole_sum = f"{row.times} × {row.each:,} = {row.total:,}" if row.times > 1 else row.formula
    return {
        "name": row.name, "where": layers_of(row.where), "shape": " × ".join(f"{n:,}" for n in row.shape),
        "formula": row.formula, "each": f"{row.each:,}", "times": row.times, "total": f"{row.total:,}",
        "sum": whole_sum, "share": row.total / whole,
    }  # fmt: skip


def layers_of(where: str) -> str:
    """ "3" -> "layer 3"; "0–2, 5" -> "layers 0–2, 5"."""
    return f"{'layer' if where.isdigit() else 'layers'} {where}" if where else ""


def shape_table(s: Sight) -> dict:
    batch, length, item = s.state.batch, s.state.length, s.state.itemsize
    ends = shapes.model_shapes(s.config, batch, length)
    inside = shapes.block_shapes(s.kind.block, batch, length)
    return {
        "where": layers_of(s.kind.where),
        "rows": [_shape(shape, item) for shape in [*ends[:2], *inside, ends[2]]],
        "note": "squares are worked through in tiles and never held whole by a run without anyone looking at them",
    }


def _shape(shape: shapes.Shape, item: int) -> dict:
    sizes, product = [f"{n:,}" for n in shape.sizes], ""
    if len(sizes) > 1:
        product = f" = {' × '.join(sizes)}"
    return {
        "tap": shape.tap, "dims": list(shape.dims), "sizes": sizes, "meaning": shape.meaning,
        "elements": f"{shape.elements:,}", "bytes": amount(shape.elements * item, "B"), "square": shape.square,
        "formula": f"{' · '.join(shape.dims)}{product} = {shape.elements:,}",
        "weight": f"{shape.elements:,} × {item} bytes = {shape.elements * item:,}",
    }  # fmt: skip


def side_by_side(s: Sight) -> dict:
    configs = {name: told.config for name, told in s.beside.items()}
    lines = facts.side_by_side(configs, {name: told.origin for name, told in s.beside.items()}, s.state.context)
    origins = [told.origin for told in s.beside.values()]
    return {"models": list(configs), "origins": origins, "lines": [asdict(line) for line in lines]}


def climbed(s: Sight) -> dict:
    """Every rung at one common size, and what it changed against the rung that it stands on."""
    made, rungs = {}, []
    for rung, config in ladder.climb(ladder.COMMON, s.state.width):
        found, part = count_config(config), budget.shares(config, s.state.context)
        first = found.by_block[0]
        made[rung.id] = values = {
            "parameters": found.parameters, "active": found.active,
            "cache": found.kv_cache_bytes(s.state.context, s.state.itemsize), "flops": part.total,
            "attention": first.by_part.get("attention", 0) / first.parameters,
        }  # fmt: skip
        below = made.get(rung.below, values)
        words = _rung_words(config, found, s)
        said = {name: _changed(name, values[name], below[name], words[name]) for name in values}
        rungs.append({"id": rung.id, "below": rung.below, "model": rung.model, "change": rung.change, "why": rung.why, **said,
                      "mlp": count(config.blocks[-1].mlp.d_mlp, "neuron")})  # fmt: skip
    z = ladder.COMMON
    size = f"{z.layers} layers, {z.d:,} wide, {z.heads} heads of {z.d_head}"
    where = f"cache in {s.state.bits} bits and FLOPs at {count(s.state.context, 'token')}"
    return {"rungs": rungs, "size": f"{size}; {where}", "width": s.state.width, "bits": s.state.bits}


def _rung_words(config: Decoder.Config, found: Count, s: Sight) -> dict[str, str]:
    """The formula of each number of a rung."""
    first = found.by_block[0]
    return {
        "parameters": budget.summed_words(found),
        "active": budget.met_words(config, found),
        "cache": f"{s.state.itemsize} bytes × {budget.kept_words(found, s.state.context)}",
        "flops": f"2 × ({found.active:,} weights met + {budget.mixed_words(found, s.state.context)})",
        "attention": f"{first.by_part.get('attention', 0):,} of attention / {first.parameters:,} of the first block",
    }


TEXTS: dict[str, Callable[[float], str]] = {
    "cache": lambda v: amount(v, "B"),
    "flops": lambda v: amount(v, "FLOP"),
    "attention": lambda v: f"{v:.1%}",
}


def _changed(name: str, now: float, before: float, formula: str) -> dict:
    """A rung's value, what it is against the rung below, and for a hover the formula with both in full."""
    text = TEXTS.get(name, counted)(now)
    whole = (lambda v: f"{v:.4g}") if name == "attention" else (lambda v: f"{v:,}")
    exact = f"{formula} = {whole(now)}"
    if now == before:
        return {"text": text, "delta": "", "up": False, "exact": exact}
    return {"text": text, "delta": _delta(name, now, before), "up": now > before, "exact": f"below: {whole(before)}; {exact}"}


def _delta(name: str, now: float, before: float) -> str:
    """A factor where it is more than half a percent, else the difference; of a share, points."""
    sign = "+" if now > before else "−"
    if name == "attention":
        points = 100 * abs(now - before)
        return f"{sign}{points:.1f} points" if points >= 0.05 else ""
    if abs(now / before - 1) > 0.005:
        return f"× {now / before:.3g}"
    return sign + TEXTS.get(name, counted)(abs(now - before))


def counted(n: float) -> str:
    """8030261248 -> "8.03 B": parameters, in thousands, millions and billions."""
    for size, unit in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return f"{n:,.0f}"


def caches(s: Sight) -> dict:
    found, item = designs(s.config, s.state.context, s.state.itemsize), s.state.itemsize
    most = max(d.cache for d in found)
    return {
        "rows": [
            {"name": d.name, "note": d.note, "per_token": amount(d.per_token, "B"), "cache": amount(d.cache, "B"),
             "users": f"{d.users:,}", "share": d.cache / most,
             "formula": f"{amount(budget.CARD, 'B')} / {d.cache:,} B, rounded down",
             "each": f"{item} bytes × {budget.cached_words(d.config)} = {d.per_token:,}",
             "exact": f"{item} bytes × {budget.kept_words(count_config(d.config), s.state.context)} = {d.cache:,}"}
            for d in found
        ],
        "heads": f"{_heads(s.config)}, {count(s.config.n_layers, 'layer')}",
        "bits": s.state.bits,
    }  # fmt: skip


def _heads(config: Decoder.Config) -> str:
    """The geometry that all designs share; where q and k are longer than a value, that is said."""
    attn, size = config.blocks[0].attn, head_size(config)
    said = f"{count(attn.n_heads, 'query head')} of {size}"
    more = f" (as built q and k have {attn.d_head}: {attn.d_head - size} more are rotated)"
    return said + (more if attn.d_head != size else "")


def by_hand(state: AnatomyState) -> dict:
    """Every calculator; what was typed wrong is a sentence in its place."""
    x, eps = numbers(state.x), state.eps
    asked: dict[str, Callable[[], list[byhand.Step]]] = {
        "rmsnorm": lambda: byhand.rmsnorm(x, eps=_small(eps)),
        "layernorm": lambda: byhand.layernorm(x, eps=_small(eps)),
        "swiglu": lambda: byhand.swiglu(numbers(state.swiglu_x), rows(state.w_gate), rows(state.w_up)),
        "rotation": lambda: byhand.rotation(numbers(state.pair), state.position, state.frequency),
        "softmax": lambda: byhand.two_scores(numbers(state.q), numbers(state.k1), numbers(state.k2)),
    }
    found = {}
    for name, work in asked.items():
        try:
            found[name] = {"steps": [asdict(step) for step in work()], "wrong": ""}
        except BlockscopeError as error:
            found[name] = {"steps": [], "wrong": str(error)}
    return found


def _small(eps: float) -> float:
    if not 0 <= eps < 1:
        raise BlockscopeError(f"eps must lie in [0, 1), got {eps:g}")
    return eps


MODEL = ("model", "config")
SECTIONS: dict[str, tuple[tuple[str, ...], Callable]] = {  # name -> the fields that it depends on, how it is built
    "block": ((*MODEL, "kind", "batch", "length"), block),
    "totals": ((*MODEL, "context", "together", "bits"), totals),
    "table": (MODEL, table),
    "shapes": ((*MODEL, "kind", "batch", "length", "bits"), shape_table),
    "side": ((*MODEL, "compare", "context"), side_by_side),
    "ladder": (("context", "bits", "width"), climbed),
    "caches": ((*MODEL, "context", "bits"), caches),
    "hand": ((*VECTORS, *NUMBERS), lambda s: by_hand(s.state)),
}  # fmt: skip


def key(s: Sight, names: tuple[str, ...], *more: str) -> str:
    said = "\0".join([*(str(getattr(s.state, name)) for name in names), *more])
    return hashlib.sha256(said.encode()).hexdigest()[:16]


def head(s: Sight) -> dict:
    """The line under the model's name."""
    whole = count_config(s.config)
    layers = count(s.config.n_layers, "layer")
    size = f"{layers} · {s.config.d_model:,} wide · {counted(whole.parameters)} parameters"
    formula = f"layers and width as {s.told.origin} says; parameters: {budget.summed_words(whole)} = {whole.parameters:,}"
    told = {"name": s.told.name, "origin": s.told.origin, "size": size, "formula": formula}
    return told | {"notes": list(s.told.notes), "note": budget.uncounted(s.config)}
