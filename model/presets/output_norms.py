"""Designs that normalise what a sublayer gives: OLMo 2 (outputs only), Gemma 2 and 3 (inputs and outputs)."""

from model.attention import Attention
from model.block import OutputNorm, Sandwich
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.mlp import GLU, SwiGLU
from model.norms import FullPrecisionRMSNorm, OffsetRMSNorm
from model.positions import FullPrecisionRope, Linear, Rope


def olmo2(
    layers: int, d: int, heads: int, mlp: int, vocab: int, context: int, *, base: float = 500_000.0, eps: float = 1e-6
) -> Decoder.Config:
    norm = FullPrecisionRMSNorm.Config(d=d, eps=eps)
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=heads, d_head=d // heads, q_norm=norm, k_norm=norm, qk_norm_over="projection",
        rope=FullPrecisionRope.Config(d=d // heads, base=base, pairing="half"),
    )  # fmt: skip
    block = OutputNorm.Config(attn=attn, ln1_post=norm, mlp=SwiGLU.Config(d_model=d, d_mlp=mlp), ln2_post=norm)
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=False, context=context)


def _gemma(d: int, mlp: int, attn: Attention.Config) -> Sandwich.Config:
    norm = OffsetRMSNorm.Config(d=d, eps=1e-6)
    mlp = GLU.Config(d_model=d, d_mlp=mlp, activation="gelu_tanh")
    return Sandwich.Config(ln1=norm, attn=attn, ln1_post=norm, ln2=norm, mlp=mlp, ln2_post=norm)


def gemma2(
    layers: int, d: int, heads: int, kv: int, d_head: int, mlp: int, vocab: int, context: int, *, window: int, divisor: int
) -> Decoder.Config:
    """Even layers slide, odd ones see all; logits divided by sqrt(divisor), capped at 50, the output at 30."""
    blocks = [
        _gemma(d, mlp, Attention.Config(
            d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head, scale=divisor**-0.5, softcap=50.0, mask=mask,
            rope=Rope.Config(d=d_head, base=10_000.0, pairing="half"),
        ))
        for mask in (Sliding(window=window), Causal())
    ]  # fmt: skip
    return Decoder.Config(
        d_vocab=vocab, d_model=d, blocks=tuple(blocks[i % 2] for i in range(layers)), ln_final=blocks[0].ln1, tied=True,
        context=context, embed_scale=d**0.5, softcap=30.0,
    )  # fmt: skip


def gemma3(
    layers: int, d: int, heads: int, kv: int, d_head: int, mlp: int, vocab: int, context: int, *, window: int, divisor: int,
    scaling: Linear | None = None,
) -> Decoder.Config:  # fmt: skip
    """Five layers slide with a base of 10,000, the sixth sees all with 1,000,000 (and the scaling); QK-norm on heads."""
    norm = OffsetRMSNorm.Config(d=d_head, eps=1e-6)
    local = Sliding(window=window), Rope.Config(d=d_head, base=10_000.0, pairing="half")
    everywhere = Causal(), Rope.Config(d=d_head, base=1e6, pairing="half", scaling=scaling)
    near, far = (
        _gemma(d, mlp, Attention.Config(
            d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head, scale=divisor**-0.5, mask=mask, rope=rope,
            q_norm=norm, k_norm=norm,
        ))
        for mask, rope in (local, everywhere)
    )  # fmt: skip
    return Decoder.Config(
        d_vocab=vocab, d_model=d, blocks=tuple(near if (i + 1) % 6 else far for i in range(layers)), ln_final=near.ln1,
        tied=True, context=context, embed_scale=d**0.5,
    )  # fmt: skip


OUTPUT_NORMS: dict[str, Decoder.Config] = {
    # OLMo team 2024, arXiv 2501.00656, table 3; config.json of allenai/OLMo-2-1124-7B
    "olmo2-7b": olmo2(32, 4096, 32, 11_008, 100_352, 4096),
    # Gemma team 2024, arXiv 2408.00118, table 1; config.json of google/gemma-2-9b
    "gemma2-9b": gemma2(42, 3584, 16, 8, 256, 14_336, 256_000, 8192, window=4096, divisor=256),
    # Gemma team 2025, arXiv 2503.19786; config.json of google/gemma-3-270m
    "gemma3-270m": gemma3(18, 640, 4, 1, 256, 2048, 262_144, 32_768, window=512, divisor=256),
    # as above, the text model of google/gemma-3-4b-pt
    "gemma3-4b": gemma3(34, 2560, 8, 4, 256, 10_240, 262_208, 131_072, window=1024, divisor=256, scaling=Linear(factor=8.0)),
    "tiny-olmo2": olmo2(4, 96, 6, 264, 256, 512),
    "tiny-gemma2": gemma2(4, 96, 6, 2, 24, 264, 256, 512, window=24, divisor=20),
    "tiny-gemma3": gemma3(6, 96, 6, 2, 24, 264, 256, 512, window=24, divisor=24, scaling=Linear(factor=8.0)),
}
