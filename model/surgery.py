"""Change one part of a configuration; everything else stays what it was."""

from dataclasses import replace

from model.attention import Attention
from model.errors import BlockscopeError
from model.lm import Decoder
from model.norms import NormConfig, RMSNorm

QK_NORM_CHOICES = ("off", "head", "projection")


def qk_norm_of(config: Decoder.Config) -> str:
    """ "off", "head" or "projection": what the first block that differs from none has."""
    return next((b.attn.qk_norm_over for b in config.blocks if getattr(b.attn, "k_norm", None) is not None), "off")


def with_qk_norm(config: Decoder.Config, choice: str) -> Decoder.Config:
    """The same model with QK-norm "off", over each "head" (Qwen3) or over the whole "projection" (OLMo 2), in every block.

    A norm that was not there before gets the block's own eps; its gain is a new parameter.
    """
    if choice not in QK_NORM_CHOICES:
        raise BlockscopeError(f"QK-norm must be one of {', '.join(QK_NORM_CHOICES)}, got {choice!r}")
    blocks = []
    for i, block in enumerate(config.blocks):
        if not isinstance(block.attn, Attention.Config):
            raise BlockscopeError(f"blocks.{i} has latent attention, which has no slot for QK-norm on heads")
        eps = next(norm.eps for norm in vars(block).values() if isinstance(norm, NormConfig))
        attn = replace(block.attn, q_norm=None, k_norm=None)
        if choice != "off":
            attn = replace(attn, qk_norm_over=choice)
            q, k = (RMSNorm.Config(d=attn.norm_width(h), eps=eps) for h in (attn.n_heads, attn.n_kv_heads))
            attn = replace(attn, q_norm=q, k_norm=k)
        blocks.append(replace(block, attn=attn))
    return replace(config, blocks=tuple(blocks))
