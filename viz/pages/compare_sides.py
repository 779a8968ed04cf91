"""What the sides of a comparison are: from fields of a link to models, and what each is in words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from model.errors import BlockscopeError
from model.interventions import EDITS, Edit, edit_at
from model.surgery import CHANGES, OFF, read, span, summary
from viz.change import changes, pieces
from viz.compare_state import EDIT, LETTERS, OWN, CompareState, field, layer_range
from viz.pages import surgery
from viz.pages.quick import QUICK
from viz.pages.surgery import word
from viz.shelf import Shelf
from viz.theme import count

LM = Any


@dataclass(frozen=True)
class Spec:
    """One side: an entry of the shelf, what is changed in which layers, and what is edited while it runs."""

    model: str
    change: str = ""
    layers: str = ""
    edit: str = ""


def specs(state: CompareState, shelf: Shelf) -> tuple[list[Spec], list[str]]:
    """The sides that a view asks for, and a sentence for each value that was left out."""
    first, notes = shelf.name(state.model)
    if state.quick != OWN:
        if state.quick not in QUICK:
            raise BlockscopeError(f"there is no comparison {ascii(state.quick)[:40]}; there are {', '.join(QUICK)}")
        given = QUICK[state.quick].sides(shelf.model(first), shelf.names)
        made = [Spec(**{"model": first, **side}) for side in given]
        made.sort(key=lambda side: side.model != first)  # the model that stands in A stays there
        if made[0].model != first:
            notes.append(f"this compares {' and '.join(side.model for side in made)}: A is no longer {first}")
        return made, notes
    found = []
    for letter in LETTERS[: state.sides]:
        side = state.side(letter)
        name, more = shelf.name(side["model"] or first)
        more, good = [f"side {letter.upper()}: {note}" for note in more], []
        for piece in pieces(side["change"]):
            part, value = next(iter(changes(piece).items()))
            if part not in CHANGES:
                more.append(f"{field(letter, 'change')}: there is no part {part!r} to change: left out")
            elif value not in CHANGES[part].choices and not CHANGES[part].free:
                choices = ", ".join(CHANGES[part].choices)
                more.append(f"{field(letter, 'change')}: {part} must be one of {choices}, got {value!r}: left out")
            else:
                good.append(f"{part}={value}")
        found.append(Spec(name, ",".join(good), side["layers"], side["edit"]))
        notes += more
    return found, notes


def variant(built: LM, spec: Spec) -> LM:
    """The model of a side. Raises BlockscopeError where the surgery does not fit the weights or the layers."""
    if not spec.change:
        return built
    return built.variant(layers=layer_range(spec.layers), **changes(spec.change))


def edits(spec: Spec) -> tuple[Edit, ...]:
    """What is edited while a side runs, in the order in which it was asked for."""
    found = []
    for piece in pieces(spec.edit):
        what, layer, index, factor, leaf = EDIT.fullmatch(piece).groups()
        if what == "patch" and not leaf:
            raise BlockscopeError("a patch names the tensor that is patched in, as patch:3:-1:0:hook_attn_out")
        found.append(edit_at(what, int(layer), int(index or -1), float(factor or 0), leaf or ""))
    return tuple(found)


def about(letter: str, spec: Spec, lm: LM, built: LM) -> dict:
    """The card of one side: what it is, what was changed, and whether anybody trained it so."""
    phrases = summary(built.config, lm.config)
    where = layer_range(spec.layers)
    if phrases and where and len(where) < lm.config.n_layers:
        phrases.append(f"layers {span(where)}" if len(where) > 1 else f"layer {span(where)}")
    phrases += [_edit_words(edit) for edit in edits(spec)]
    as_is = "as built, random weights" if lm.random else "as trained"
    return {
        "letter": letter.upper(),
        "model": spec.model,
        "title": ", ".join(phrases) or as_is,
        "design": design(lm, where[0] if where and where[0] < lm.config.n_layers else 0),
        "note": _note(lm, built, bool(phrases)),
        "change": [list(item) for item in changes(spec.change).items()],
        "layers": spec.layers,
        "edit": pieces(spec.edit),
        "edits": [_edit_words(edit) for edit in edits(spec)],
        "parts": surgery.parts(built),
        "depth": lm.config.n_layers,
    }


def _readable(lm: LM, name: str) -> bool:
    try:
        read(lm.config, name)
    except (AttributeError, BlockscopeError):
        return False
    return True


def _note(lm: LM, built: LM, changed: bool) -> str:
    if not changed:
        return ""
    new = _new(lm.invented)
    if lm.random:
        return f"random weights; new: {new}" if new else "random weights, the same as unchanged"
    was = "counterfactual: these weights were not trained this way"
    if [p.split(" ")[0] for p in summary(built.config, lm.config)] == ["QK-norm"]:
        was = f"counterfactual: these weights were trained {'without' if built.qk_norm == 'off' else 'with'} it"
    return f"{was}; new: {new}" if new else was


def _new(names: Sequence[str]) -> str:
    """ "attn.k_norm, attn.q_norm (unit gain); attn.q_proj.bias (zero)": what is new on a side, all layers at once."""
    found: dict[str, dict[str, None]] = {}
    for name in names:
        leaf = name.split(".", 2)[-1]
        found.setdefault(_filled(leaf), {})[leaf.removesuffix(".weight")] = None
    return "; ".join(f"{_few(list(leaves))} ({how})" for how, leaves in found.items())


def _filled(leaf: str) -> str:
    """What a new parameter holds: weights of norms 1, biases and sinks 0, matrices random numbers by their name."""
    if leaf.endswith("bias") or ".softmax." in leaf:
        return "zero"
    return "unit gain" if "norm" in leaf or leaf.startswith("ln") else "seeded by name"


def _few(leaves: list[str], most: int = 3) -> str:
    return ", ".join(leaves[:most]) + (f" and {len(leaves) - most} more" if len(leaves) > most else "")


def _edit_words(edit: Edit) -> str:
    layer = edit.tap.split(".")[1]
    kind = EDITS[edit.what]
    if edit.what == "patch":
        at = "" if edit.index < 0 else f" at token {edit.index}"
        return f"A's {edit.tap.split('.', 2)[2]} patched into layer {layer}{at}"
    which = f" {edit.index}" if edit.index >= 0 else "" if edit.what == "gate" else " (every one)"
    how = f", {edit.factor:g} of it left" if edit.what == "gate" and edit.factor else ""
    return f"{kind.title}{which} in layer {layer}" + (how if edit.what == "gate" else f" × {edit.factor:g}")


NORM_WORDS = {"rmsnorm": "RMSNorm", "layernorm": "LayerNorm"}
WIRING_WORDS = {"pre": "", "post": "post-norm", "output": "output norm", "sandwich": "sandwich norm", "parallel": "parallel"}
MLP_WORDS = {"relu": "ReLU MLP", "gelu": "GELU MLP", "silu": "SiLU MLP", "gelu-tanh": "GELU MLP", "geglu-tanh": "GEGLU"}


def design(lm: LM, layer: int) -> str:
    """One line: "RMSNorm · GQA 9/3 · RoPE 100k · SwiGLU · no QK-norm"."""
    block = lm.config.blocks[layer]
    has = {name: change.read(block) for name, change in CHANGES.items() if _readable(lm, name)}
    rope = f"RoPE {float(block.attn.rope.base):,.0f}".replace(",000", "k") if block.attn.rope else "no rotation"
    if has["rope_scaling"] != OFF and block.attn.rope:
        rope += f" × {block.attn.rope.scaling.factor:g}"
    qk = "" if has["kv_heads"] == "latent" else "no QK-norm" if has["qk_norm"] == OFF else f"QK-norm per {has['qk_norm']}"
    extras = [
        f"window {has['window']}" if has["window"].isdigit() else has["window"] if has["window"] != OFF else "",
        f"soft-cap {has['softcap']}" if has["softcap"] != OFF else "",
        "sink" if has["sink"] == "on" else "",
        "biases" if has["biases"] == "on" else "",
    ]
    mlp = MLP_WORDS.get(has["mlp"]) or word("mlp", has["mlp"])
    mlp = count(block.mlp.n_experts, "expert") if has["mlp"] == "experts" else mlp
    norm = NORM_WORDS.get(has["norm"], word("norm", has["norm"]))
    said = [norm, WIRING_WORDS.get(has["wiring"], has["wiring"]), _heads(block.attn, has["kv_heads"]), rope, mlp, qk, *extras]
    return " · ".join(filter(None, said))


def _heads(attn: Any, kv: str) -> str:
    if kv == "latent":
        return f"MLA {count(attn.n_heads, 'head')}"
    return f"MHA {kv}" if int(kv) == attn.n_heads else f"{'MQA' if kv == '1' else 'GQA'} {attn.n_heads}/{kv}"
