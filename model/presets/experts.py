"""Mixtures of experts in grouped-query blocks: Mixtral, Qwen 3, Llama 4, gpt-oss."""

from dataclasses import replace

from model.attention import Attention, RotateThenNorm
from model.block import PreNorm
from model.lm import Decoder
from model.masks import Causal, Chunked, Sliding
from model.mlp import SwiGLU
from model.moe import MoE
from model.norms import FullPrecisionRMSNorm, RMSNorm, UnitRMSNorm
from model.positions import Llama3, Rope, Yarn
from model.presets.llama import llama
from model.routing import SigmoidTopK, TopKSoftmax
from model.temperature import Temperature


def sparse(dense: Decoder.Config, n_experts: int, topk: int, d_mlp: int) -> Decoder.Config:
    """The same blocks with experts in place of the MLP; the chosen ones' weights sum to 1."""
    moe = MoE.Config(d_model=dense.d_model, d_mlp=d_mlp, n_experts=n_experts, routing=TopKSoftmax(topk=topk))
    return replace(dense, blocks=tuple(replace(block, mlp=moe) for block in dense.blocks))


def llama4(
    layers: int, d: int, heads: int, kv: int, d_head: int, mlp: int, n_experts: int, vocab: int, context: int, *,
    chunk: int, scaling: Llama3 | None = None, every: int = 8192,
) -> Decoder.Config:  # fmt: skip
    """Three layers rotate, normalise and see their chunk; the fourth sees all, unrotated, sharper every `every` tokens."""
    unit, shape = UnitRMSNorm.Config(d=d_head, eps=1e-5), {"d_model": d, "n_heads": heads, "n_kv_heads": kv, "d_head": d_head}
    rope = Rope.Config(d=d_head, base=500_000.0, pairing="interleaved", scaling=scaling)
    near = RotateThenNorm.Config(**shape, rope=rope, q_norm=unit, k_norm=unit, mask=Chunked(chunk=chunk))
    far = Attention.Config(**shape, rope=None, temperature=Temperature.Config(every=every, slope=0.1), mask=Causal())
    norm = RMSNorm.Config(d=d, eps=1e-5)
    shared = SwiGLU.Config(d_model=d, d_mlp=mlp)
    moe = MoE.Config(d_model=d, d_mlp=mlp, n_experts=n_experts, routing=SigmoidTopK(topk=1), shared=shared)
    near, far = (PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=moe) for attn in (near, far))
    blocks = tuple(near if (i + 1) % 4 else far for i in range(layers))
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=blocks, ln_final=norm, tied=False, context=context)


def gpt_oss(
    layers: int, d: int, heads: int, kv: int, d_head: int, mlp: int, n_experts: int, vocab: int, context: int, *,
    topk: int, window: int, original: int = 4096,
) -> Decoder.Config:  # fmt: skip
    """Even layers slide; sinks, biases everywhere, clamped SwiGLU experts."""
    norm = FullPrecisionRMSNorm.Config(d=d, eps=1e-5)
    scaling = Yarn(factor=32.0, original=original, truncate=False)
    rope = Rope.Config(d=d_head, base=150_000.0, pairing="half", scaling=scaling)
    moe = MoE.Config(
        d_model=d, d_mlp=mlp, n_experts=n_experts, routing=TopKSoftmax(topk=topk), gate="clamped-swiglu",
        router_bias=True, expert_bias=True,
    )  # fmt: skip
    near, far = (
        PreNorm.Config(ln1=norm, ln2=norm, mlp=moe, attn=Attention.Config(
            d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head, rope=rope, mask=mask, sink=True, qkv_bias=True, o_bias=True
        ))
        for mask in (Sliding(window=window), Causal())
    )  # fmt: skip
    blocks = tuple(far if i % 2 else near for i in range(layers))
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=blocks, ln_final=norm, tied=False, context=context)


STEP16 = Llama3(factor=16.0, low=1.0, high=1.0, original=8192)

EXPERTS: dict[str, Decoder.Config] = {
    # Jiang et al. 2024, arXiv 2401.04088, table 1; config.json of mistralai/Mixtral-8x7B-v0.1
    "mixtral-8x7b": sparse(llama(32, 4096, 32, 8, 14_336, 32_000, 32_768, base=1e6), 8, 2, 14_336),
    # Yang et al. 2025, arXiv 2505.09388, table 2; config.json of Qwen/Qwen3-30B-A3B
    "qwen3-30b-a3b": sparse(
        llama(48, 2048, 32, 4, 6144, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, qk_norm=True), 128, 8, 768
    ),
    # Meta 2025; the text model of meta-llama/Llama-4-Scout-17B-16E, its config.json
    "llama4-scout": llama4(48, 5120, 40, 8, 128, 8192, 16, 202_048, 262_144, chunk=8192, scaling=STEP16),
    # OpenAI 2025, arXiv 2508.10925, table 1; config.json of openai/gpt-oss-20b
    "gpt-oss-20b": gpt_oss(24, 2880, 64, 8, 64, 2880, 32, 201_088, 131_072, topk=4, window=128),
    # as above, openai/gpt-oss-120b
    "gpt-oss-120b": gpt_oss(36, 2880, 64, 8, 64, 2880, 128, 201_088, 131_072, topk=4, window=128),
    "tiny-mixtral": sparse(llama(4, 96, 6, 2, 264, 256, 512, base=1e6), 8, 2, 132),
    "tiny-qwen3-moe": sparse(llama(4, 96, 6, 2, 264, 256, 512, base=1e6, eps=1e-6, d_head=24, qk_norm=True), 16, 4, 66),
    "tiny-llama4": llama4(4, 96, 6, 2, 24, 132, 8, 256, 512, chunk=24, every=16),
    "tiny-gpt-oss": gpt_oss(4, 96, 6, 2, 24, 132, 8, 256, 512, topk=2, window=24, original=64),
}
