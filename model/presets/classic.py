"""LayerNorm designs: the Transformer of 2017, GPT-2, and the parallel blocks of GPT-J and PaLM."""

from model.attention import Attention
from model.block import Parallel, PostNorm, PreNorm
from model.embedding import LearnedPositions, Sinusoidal
from model.lm import Decoder
from model.mlp import GLU, MLP
from model.norms import BiaslessLayerNorm, LayerNorm
from model.positions import Rope


def transformer(layers: int, d: int, heads: int, mlp: int, vocab: int, context: int) -> Decoder.Config:
    """Vaswani et al. 2017, a decoder block without attention to an encoder; biases everywhere, as in PyTorch's layer."""
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=heads, d_head=d // heads, rope=None, qkv_bias=True, o_bias=True
    )
    norm, mlp = LayerNorm.Config(d=d), MLP.Config(d_model=d, d_mlp=mlp, activation="relu", bias=True)
    block = PostNorm.Config(attn=attn, ln1=norm, mlp=mlp, ln2=norm)
    return Decoder.Config(
        d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=None, tied=True, context=context,
        embed_scale=d**0.5, positions=Sinusoidal.Config(d_model=d),
    )  # fmt: skip


def gpt2(layers: int, d: int, heads: int, vocab: int, context: int) -> Decoder.Config:
    attn = Attention.Config(
        d_model=d, n_heads=heads, n_kv_heads=heads, d_head=d // heads, rope=None, qkv_bias=True, o_bias=True
    )
    norm, mlp = LayerNorm.Config(d=d), MLP.Config(d_model=d, d_mlp=4 * d, activation="gelu_tanh", bias=True)
    block = PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=mlp)
    return Decoder.Config(
        d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=True, context=context,
        positions=LearnedPositions.Config(context=context, d_model=d),
    )  # fmt: skip


def gptj(layers: int, d: int, heads: int, rotary: int, vocab: int, context: int) -> Decoder.Config:
    """Biases in the MLP and the unembedding, none in attention; the first `rotary` coordinates of a head rotate."""
    rope = Rope.Config(d=rotary, base=10_000.0, pairing="interleaved")
    attn = Attention.Config(d_model=d, n_heads=heads, n_kv_heads=heads, d_head=d // heads, rope=rope)
    norm, mlp = LayerNorm.Config(d=d), MLP.Config(d_model=d, d_mlp=4 * d, activation="gelu_tanh", bias=True)
    block = Parallel.Config(ln1=norm, attn=attn, mlp=mlp)
    return Decoder.Config(
        d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=False, context=context, unembed_bias=True
    )


def palm(layers: int, d: int, heads: int, d_head: int, vocab: int, context: int) -> Decoder.Config:
    """No biases at all, one key/value head, SwiGLU; the paper's 1/sqrt(d) on the logits is part of ln_final's gain here."""
    rope = Rope.Config(d=d_head, base=10_000.0, pairing="half")
    attn = Attention.Config(d_model=d, n_heads=heads, n_kv_heads=1, d_head=d_head, rope=rope)
    norm, mlp = BiaslessLayerNorm.Config(d=d, eps=1e-6), GLU.Config(d_model=d, d_mlp=4 * d)
    block = Parallel.Config(ln1=norm, attn=attn, mlp=mlp)
    return Decoder.Config(d_vocab=vocab, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=True, context=context)


CLASSIC: dict[str, Decoder.Config] = {
    # Vaswani et al. 2017, arXiv 1706.03762, table 3 "base", about 37,000 tokens (section 5.1); the paper sets no context
    "transformer-2017-base": transformer(6, 512, 8, 2048, 37_000, 512),
    # Radford et al. 2019, table 2; config.json of openai-community/gpt2
    "gpt2": gpt2(12, 768, 12, 50_257, 1024),
    # Wang and Komatsuzaki 2021; config.json of EleutherAI/gpt-j-6b
    "gptj-6b": gptj(28, 4096, 16, 64, 50_400, 2048),
    # Chowdhery et al. 2022, arXiv 2204.02311, table 1 and section 2 (heads of 256, 256,000 tokens)
    "palm-8b": palm(32, 4096, 16, 256, 256_000, 2048),
    "palm-540b": palm(118, 18_432, 48, 256, 256_000, 2048),
    "tiny-2017": transformer(4, 96, 6, 384, 256, 512),
    "tiny-gpt2": gpt2(4, 96, 6, 256, 512),
    "tiny-gptj": gptj(4, 96, 6, 8, 256, 512),
    "tiny-palm": palm(4, 96, 6, 24, 256, 512),
}
