"""How large a logit can become at all: the bound that the gains of QK-norm set, layer by layer."""

import numpy as np
import torch
from torch import Tensor, nn

from model.attention import RotateThenNorm
from model.lm import Decoder
from model.norms import BiaslessLayerNorm, FullPrecisionRMSNorm, LayerNorm, OffsetRMSNorm, RMSNorm, UnitRMSNorm
from model.run import LM

GAINS = {  # the factor [d] that each norm puts on a vector whose root mean square is at most 1
    RMSNorm: lambda norm: norm.weight,
    FullPrecisionRMSNorm: lambda norm: norm.weight,
    OffsetRMSNorm: lambda norm: 1 + norm.offset,
    UnitRMSNorm: lambda norm: torch.ones(norm.config.d),
    LayerNorm: lambda norm: norm.weight,
    BiaslessLayerNorm: lambda norm: norm.weight,
}


def gain(norm: nn.Module) -> Tensor | None:
    """The gain of a QK-norm, fp32 on the CPU [d]; None where there is no norm."""
    return GAINS[type(norm)](norm).detach().float().cpu() if type(norm) in GAINS else None


def longest(norm: nn.Module, heads: int) -> Tensor:
    """The largest |vector| of each head that can leave a QK-norm [head].

    A normalised vector of n entries is at most sqrt(n) long and its gain stretches it by at most max|g|. Where the norm spans
    all heads, one head may hold all of the length.
    """
    g, b = gain(norm).abs(), getattr(norm, "bias", None)
    length, b = norm.config.d**0.5, torch.zeros_like(g) if b is None else b.detach().float().cpu()
    if len(norm.axes) == 1:
        return (g.max() * length + b.norm()).expand(heads)
    return g.view(heads, -1).amax(-1) * length + b.view(heads, -1).norm(dim=-1)


def head_bounds(attention: nn.Module, context: int) -> Tensor | None:
    """The largest |scale * q . k| that each head can reach whatever the text, [head]; None where nothing bounds it.

    max|g_q| max|g_k| sqrt(d_head) at the usual scale 1/sqrt(d_head), for QK-norm over each head. A rotation keeps lengths
    (YaRN multiplies them). A temperature grows without end with the position, so there is no bound beside it.
    """
    c = attention.config
    norms = [getattr(attention, name, None) for name in ("q_norm", "k_norm")]
    over = getattr(c, "qk_norm_over", None)  # None: the norms of a latent attention are not over q and k
    if over is None or getattr(c, "temperature", None) is not None or any(type(norm) not in GAINS for norm in norms):
        return None
    q, k = (longest(norm, heads) for norm, heads in zip(norms, (c.n_heads, c.n_kv_heads), strict=True))
    normed_last = c.rope is None or isinstance(attention, RotateThenNorm)
    stretch = 1.0 if normed_last else c.rope.frequencies(context)[1] ** 2
    return q * k.repeat_interleave(c.n_heads // c.n_kv_heads) * attention.scale * stretch


def layer_bound(attention: nn.Module, context: int) -> float:
    """The largest |logit| that any head of one layer can reach; NaN where there is no bound."""
    heads = head_bounds(attention, context)
    return float("nan") if heads is None else float(heads.max())


def largest_gain(attention: nn.Module, name: str) -> float:
    """max|g| of the QK-norm "q_norm" or "k_norm"; NaN without one. The norms of a latent attention are not over q and k."""
    over = getattr(attention.config, "qk_norm_over", None)
    found = None if over is None else gain(getattr(attention, name))
    return float("nan") if found is None else float(found.abs().max())


def bound(model: Decoder | LM, context: int | None = None) -> np.ndarray:
    """The largest |logit| that any head of each layer can reach, float32 [layer]; NaN where there is no bound.

    Read from the gains as they are now: while they are learned, the bound moves. `context`: tokens of the text, the
    model's own context by default (some rotary scalings depend on it). A soft-cap bounds what comes after it, not this.
    """
    lm, found = isinstance(model, LM), []
    for i in range(model.config.n_layers):
        block = model.block(i) if lm else model.blocks[i]
        found.append(layer_bound(block.attn, context or model.config.context))
    return np.array(found, np.float32)
