"""The equations of a block, written by its parts: each Config type has its line, and a wiring joins them.

A part that is not in a table is written as the first sentence of its own docstring, so that a new norm, MLP or wiring
needs no line here to be shown.
"""

from collections.abc import Callable

from model.anatomy.sublayers import attention_equations, attention_name, mlp_equations, mlp_name
from model.anatomy.writing import Equation, first_sentence, norm_equation, norm_name, number
from model.block import BlockConfig, OutputNorm, Parallel, PostNorm, PreNorm, Sandwich
from model.embedding import LearnedPositions, Sinusoidal
from model.lm import Decoder
from model.norms import NormConfig

WIRING_LINES: dict[type, tuple[tuple[str, str], ...]] = {
    PreNorm.Config: (("h", "x + {attn}({ln1}(x))"), ("y", "h + {mlp}({ln2}(h))")),
    PostNorm.Config: (("h", "{ln1}(x + {attn}(x))"), ("y", "{ln2}(h + {mlp}(h))")),
    OutputNorm.Config: (("h", "x + {ln1_post}({attn}(x))"), ("y", "h + {ln2_post}({mlp}(h))")),
    Sandwich.Config: (("h", "x + {ln1_post}({attn}({ln1}(x)))"), ("y", "h + {ln2_post}({mlp}({ln2}(h)))")),
    Parallel.Config: (("y", "x + {attn}({ln1}(x)) + {mlp}({ln1}(x))"),),
}


def wiring_equations(block: BlockConfig) -> list[Equation]:
    """h = x + Attn_{GQA, RoPE}(RMSNorm(x)); y = h + SwiGLU(RMSNorm(h))"""
    names = {name: norm_name(norm) for name, norm in vars(block).items() if isinstance(norm, NormConfig)}
    names |= {"attn": attention_name(block.attn), "mlp": mlp_name(block.mlp)}
    lines = WIRING_LINES.get(type(block), (("y", first_sentence(block)),))
    return [Equation(left, _filled(right, names), "block") for left, right in lines]


def _filled(line: str, names: dict[str, str]) -> str:
    for name, value in names.items():
        line = line.replace(f"{{{name}}}", value)
    return line


def block_equations(block: BlockConfig) -> list[Equation]:
    """The block as one or two lines, then each part of it; a part that stands there twice is written once."""
    found = [norm for norm in vars(block).values() if isinstance(norm, NormConfig)]
    found += [norm for name in ("q_norm", "k_norm", "kv_norm") if (norm := getattr(block.attn, name, None)) is not None]
    widths: dict[tuple[str, str], list[str]] = {}
    for norm in found:
        line = norm_equation(norm)
        over = widths.setdefault((line.left, line.right), [])
        over += [f"{norm.d:,}"] if f"{norm.d:,}" not in over else []
    lines = [Equation(left, right, "norm", f"over {' or '.join(over)} entries") for (left, right), over in widths.items()]
    return [*wiring_equations(block), *attention_equations(block.attn), *mlp_equations(block.mlp), *lines]


STARTS: dict[type, Callable[[object], tuple[str, str]]] = {
    LearnedPositions.Config: lambda p: (" + P[i]", f"{p.context:,} learned positions"),
    Sinusoidal.Config: lambda p: (" + sin, cos(i · 10,000^{−2m/d})", "fixed sinusoids"),
}


def model_equations(config: Decoder.Config) -> list[Equation]:
    """From token to stream, and from stream to logits."""
    scale = f"{number(config.embed_scale)} · " if config.embed_scale else ""
    added, note = STARTS[type(config.positions)](config.positions) if type(config.positions) in STARTS else ("", "")
    read = f"{norm_name(config.ln_final)}(x_{{L}})" if config.ln_final else "x_{L}"
    out = f"{'E' if config.tied else 'W_{U}'} {read}{' + b' if config.unembed_bias else ''}"
    out = f"{number(config.softcap)} · tanh({out} / {number(config.softcap)})" if config.softcap else out
    tied = "the embedding's own matrix, turned" if config.tied else "a matrix of its own"
    return [
        Equation("x_{0}", f"{scale}E[token]{added}", "model", note or f"{config.d_vocab:,} rows of {config.d_model:,}"),
        Equation("x_{l+1}", "block_{l}(x_{l})", "model", f"l from 0 to {config.n_layers - 1}"),
        Equation("logits", out, "model", tied),
    ]
