"""The one-click list of the Compare page: each entry turns a model into two to four sides that differ in one part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.errors import BlockscopeError
from model.surgery import read

LM = Any
Sides = list[dict[str, str]]  # fields of a side: model, change, layers, edit


@dataclass(frozen=True)
class Quick:
    """`sides(lm, names)`: what each side is, A first; a BlockscopeError says why this model cannot be compared that way."""

    label: str
    title: str
    sides: Callable[[LM, list[str]], Sides]
    tap: str = "attn.hook_logits"


def _switch(part: str, *values: str) -> Callable[[LM, list[str]], Sides]:
    """The values in order, as many sides; what the model has already is left as it is."""

    def sides(lm: LM, names: list[str]) -> Sides:
        built = read(lm.config, part)
        ordered = sorted(values, key=lambda value: value != built)
        return [{"change": "" if value == built else f"{part}={value}"} for value in ordered]

    return sides


def _qk_norm(lm: LM, names: list[str]) -> Sides:
    return [{}, {"change": "qk_norm=head" if lm.qk_norm == "off" else "qk_norm=off"}]


def _norm(lm: LM, names: list[str]) -> Sides:
    return [{}, {"change": "norm=rmsnorm" if read(lm.config, "norm").startswith("layernorm") else "norm=layernorm"}]


def _bases(lm: LM, names: list[str]) -> Sides:
    if lm.config.blocks[0].attn.rope is None:
        raise BlockscopeError("this model does not rotate")
    return _switch("rope_base", "10000", "500000")(lm, names)


def _mlp(lm: LM, names: list[str]) -> Sides:
    """A gated MLP has three matrices, a plain one two: 3/2 of the width for the same number of weights."""
    here = read(lm.config, "mlp")
    if here == "experts":
        raise BlockscopeError("this model has experts in place of one MLP a block")
    gated, width = not here.startswith(("relu", "gelu", "silu")), lm.config.blocks[0].mlp.d_mlp
    other = "relu" if gated else "swiglu"
    even = width * 3 // 2 if gated else width * 2 // 3
    return [{}, {"change": f"mlp={other}" + (f",d_mlp={even}" if lm.random else "")}]


def _kv_heads(lm: LM, names: list[str]) -> Sides:
    if not lm.random:
        raise BlockscopeError("trained weights hold one number of KV heads: choose a preset, whose weights are random")
    if read(lm.config, "kv_heads") == "latent":
        raise BlockscopeError("latent attention has no KV heads")
    heads, built = lm.config.blocks[0].attn.n_heads, int(read(lm.config, "kv_heads"))
    middle = built if 1 < built < heads else next((n for n in range(heads // 2, 1, -1) if heads % n == 0), 1)
    return [{"change": "" if n == built else f"kv_heads={n}"} for n in dict.fromkeys((heads, middle, 1))]


def _patched(lm: LM, names: list[str]) -> Sides:
    """B differs throughout; C is B with A's attention output of a middle layer patched in: the strip shows what that mends."""
    change = _qk_norm(lm, names)[1]["change"]
    middle = (lm.config.n_layers - 1) // 2
    return [{}, {"change": change}, {"change": change, "edit": f"patch:{middle}:-1:0:hook_attn_out"}]


def _trained(lm: LM, names: list[str]) -> Sides:
    pair = [next((n for n in names if n.endswith(end)), None) for end in ("qknorm-off", "qknorm-on")]
    if None in pair:
        raise BlockscopeError("the two shipped models are not open in this app")
    return [{"model": name} for name in pair]


QUICK: Mapping[str, Quick] = {
    "qk_norm": Quick("QK-norm on / off", "the same weights with and without QK-norm", _qk_norm),
    "trained": Quick("trained with / without", "the two shipped models: equal but for QK-norm, each trained so", _trained),
    "rope_base": Quick("RoPE 10k / 500k", "two bases of the rotation", _bases, "attn.hook_rot_q"),
    "norm": Quick("RMSNorm / LayerNorm", "what subtracting the mean changes", _norm, "ln1.hook_out"),
    "wiring": Quick("pre / post / sandwich", "where norms go", _switch("wiring", "pre", "post", "sandwich"), "hook_resid_post"),
    "mlp": Quick("SwiGLU / ReLU", "gated or plain; at equal parameters where weights are random", _mlp, "hook_mlp_out"),
    "parallel": Quick("serial / parallel", "in turn, or both at once", _switch("wiring", "pre", "parallel"), "hook_mlp_out"),
    "kv_heads": Quick("MHA / GQA / MQA", "as many KV heads as heads, a few, one", _kv_heads, "attn.hook_logits"),
    "window": Quick("full / window 8", "all tokens, or the last 8", _switch("window", "off", "8"), "attn.hook_pattern"),
    "eps": Quick("eps 1e-5 / 1e-6", "the number under each norm's root", _switch("eps", "1e-05", "1e-06"), "ln1.hook_out"),
    "patch": Quick(
        "activation patching", "B without or with QK-norm; C is B with A's attention output of one layer patched in", _patched,
        "hook_resid_post",
    ),
    "pairing": Quick(
        "half-split / interleaved", "which coordinates rotate together: the classic porting fault",
        _switch("pairing", "half", "interleaved"), "attn.hook_rot_q",
    ),
}  # fmt: skip
