"""The Llama block (pre-norm RMSNorm, grouped queries, RoPE, SwiGLU) and its close kin: Mistral, Qwen 2, Qwen 3."""

from model.attention import Attention
from model.block import PreNorm
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.mlp import SwiGLU
from model.norms import RMSNorm
from model.positions import Llama3, Rope


def llama(
    layers: int, d: int, heads: int, kv: int, mlp: int, vocab: int, context: int, *, base: float = 10_000.0, eps: float = 1e-5,
    d_head: int | None = None, scaling=None, tied=False, qk_norm=False, qkv_bias=False, window: int | None = None,
) -> Decoder.Config:  # fmt: skip
    """Qwen and Mistral are the same block with QK-norm, biases or a window."""
    d_head = d_head or d // heads
    head_norm = RMSNorm.Config(d=d_head, eps=eps) if qk_norm else None
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=kv, d_head=d_head, q_norm=head_norm, k_norm=head_norm, qkv_bias=qkv_bias,
        mask=Sliding(window=window) if window else Causal(),
        rope=Rope.Config(d=d_head, base=base, pairing="half", scaling=scaling),
    )  # fmt: skip
    norm = RMSNorm.Config(d=d, eps=eps)
    block = PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=SwiGLU.Config(d_model=d, d_mlp=mlp))
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=tied, context=context)


LONG8 = Llama3(factor=8.0, low=1.0, high=4.0, original=8192)
LONG32 = Llama3(factor=32.0, low=1.0, high=4.0, original=8192)

LLAMA: dict[str, Decoder.Config] = {
    # Touvron et al. 2023, arXiv 2302.13971, table 2
    "llama-7b": llama(32, 4096, 32, 32, 11_008, 32_000, 2048, eps=1e-6),
    # Touvron et al. 2023, arXiv 2307.09288, table 1; config.json of meta-llama/Llama-2-70b-hf
    "llama-2-70b": llama(80, 8192, 64, 8, 28_672, 32_000, 4096),
    # Grattafiori et al. 2024, arXiv 2407.21783, table 3; config.json of meta-llama/Meta-Llama-3-8B
    "llama-3-8b": llama(32, 4096, 32, 8, 14_336, 128_256, 8192, base=500_000.0),
    # as above, meta-llama/Meta-Llama-3-70B
    "llama-3-70b": llama(80, 8192, 64, 8, 28_672, 128_256, 8192, base=500_000.0),
    # as above, meta-llama/Llama-3.1-405B
    "llama-3-405b": llama(126, 16_384, 128, 8, 53_248, 128_256, 131_072, base=500_000.0, scaling=LONG8),
    # config.json of meta-llama/Llama-3.1-8B
    "llama-3.1-8b": llama(32, 4096, 32, 8, 14_336, 128_256, 131_072, base=500_000.0, scaling=LONG8),
    # config.json of meta-llama/Llama-3.2-1B
    "llama-3.2-1b": llama(16, 2048, 32, 8, 8192, 128_256, 131_072, base=500_000.0, scaling=LONG32, tied=True),
    # config.json of meta-llama/Llama-3.2-3B
    "llama-3.2-3b": llama(28, 3072, 24, 8, 8192, 128_256, 131_072, base=500_000.0, scaling=LONG32, tied=True),
    # Jiang et al. 2023, arXiv 2310.06825, table 1
    "mistral-7b": llama(32, 4096, 32, 8, 14_336, 32_000, 32_768, window=4096),
    # Yang et al. 2024, arXiv 2407.10671, table 1; config.json of Qwen/Qwen2-0.5B
    "qwen2-0.5b": llama(24, 896, 14, 2, 4864, 151_936, 131_072, base=1e6, eps=1e-6, tied=True, qkv_bias=True),
    # Yang et al. 2025, arXiv 2505.09388, table 1; config.json of Qwen/Qwen3-0.6B
    "qwen3-0.6b": llama(28, 1024, 16, 8, 3072, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, tied=True, qk_norm=True),
    # as above, Qwen/Qwen3-1.7B
    "qwen3-1.7b": llama(28, 2048, 16, 8, 6144, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, tied=True, qk_norm=True),
    # as above, Qwen/Qwen3-4B
    "qwen3-4b": llama(36, 2560, 32, 8, 9728, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, tied=True, qk_norm=True),
    # as above, Qwen/Qwen3-8B
    "qwen3-8b": llama(36, 4096, 32, 8, 12_288, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, qk_norm=True),
    # as above, Qwen/Qwen3-32B
    "qwen3-32b": llama(64, 5120, 64, 8, 25_600, 151_936, 40_960, base=1e6, eps=1e-6, d_head=128, qk_norm=True),
    "tiny-llama": llama(4, 96, 6, 2, 264, 256, 512, base=500_000.0),
    "tiny-qwen3": llama(4, 96, 6, 2, 264, 256, 512, base=1e6, eps=1e-6, d_head=24, qk_norm=True),
    "tiny-qwen2": llama(4, 96, 6, 2, 264, 256, 512, base=1e6, eps=1e-6, qkv_bias=True, tied=True),
    "tiny-mistral": llama(4, 96, 6, 2, 264, 256, 512, window=24),
}
