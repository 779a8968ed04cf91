"""What each rung of the ladder changes: small functions from a configuration to the next one, at any size."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from model.attention import Attention
from model.block import OutputNorm, PostNorm, PreNorm, Sandwich
from model.embedding import LearnedPositions, Sinusoidal
from model.lm import Decoder
from model.masks import Causal, Sliding
from model.mla import MLA
from model.mlp import GLU, MLP, SwiGLU, gated_width
from model.moe import MoE
from model.norms import LayerNorm, NormConfig, RMSNorm
from model.positions import Rope
from model.routing import BiasedGroupTopK, TopKSoftmax


@dataclass(frozen=True, kw_only=True)
class Size:
    """What stays the same on every rung; `experts` and the latents are those of the rungs that have them."""

    layers: int
    d: int
    heads: int
    kv: int
    d_head: int
    vocab: int
    wide_vocab: int
    context: int
    window: int
    multiple: int  # a gated width is rounded up to it
    experts: int
    topk: int
    groups: int
    q_latent: int
    kv_latent: int
    d_rope: int


Step = Callable[[Decoder.Config, Size, str], Decoder.Config]


def start(size: Size) -> Decoder.Config:
    """The decoder of 2017 without its encoder."""
    attn = Attention.Config(
        d_model=size.d, n_heads=size.heads, n_kv_heads=size.heads, d_head=size.d_head, rope=None, qkv_bias=True, o_bias=True
    )
    norm, mlp = LayerNorm.Config(d=size.d), MLP.Config(d_model=size.d, d_mlp=4 * size.d, activation="relu", bias=True)
    block = PostNorm.Config(attn=attn, ln1=norm, mlp=mlp, ln2=norm)
    return Decoder.Config(
        d_vocab=size.vocab, d_model=size.d, blocks=(block,) * size.layers, ln_final=None, tied=True, context=size.context,
        embed_scale=size.d**0.5, positions=Sinusoidal.Config(d_model=size.d),
    )  # fmt: skip


def blocks(config: Decoder.Config, change: Callable) -> Decoder.Config:
    """The same change in every block."""
    return replace(config, blocks=tuple(change(block) for block in config.blocks))


def attn(config: Decoder.Config, **fields) -> Decoder.Config:
    return blocks(config, lambda b: replace(b, attn=replace(b.attn, **fields)))


def normed(config: Decoder.Config, make: Callable[[NormConfig], NormConfig]) -> Decoder.Config:
    """Every norm of the stream made anew."""
    config = blocks(config, lambda b: replace(b, **{k: make(v) for k, v in vars(b).items() if isinstance(v, NormConfig)}))
    return replace(config, ln_final=make(config.ln_final))


def pre_norm(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    config = blocks(config, lambda b: PreNorm.Config(attn=b.attn, ln1=b.ln1, mlp=b.mlp, ln2=b.ln2))
    return replace(config, ln_final=config.blocks[0].ln1)


def learned(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    positions = LearnedPositions.Config(context=size.context, d_model=size.d)
    return replace(config, positions=positions)


def rope(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    turned = Rope.Config(d=size.d_head, base=10_000.0, pairing="half")
    return replace(attn(config, rope=turned), positions=None)


def no_biases(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    config = attn(config, qkv_bias=False, o_bias=False)
    return blocks(config, lambda b: replace(b, mlp=replace(b.mlp, bias=False)))


def swiglu(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    neurons = gated_width(size.d, size.multiple) if width == "matched" else 4 * size.d
    return blocks(config, lambda b: replace(b, mlp=SwiGLU.Config(d_model=size.d, d_mlp=neurons)))


def qk_norm(over: str) -> Step:
    def step(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
        one = replace(config.blocks[0].attn, q_norm=None, k_norm=None, qk_norm_over=over)
        q, k = (RMSNorm.Config(d=one.norm_width(heads), eps=1e-6) for heads in (one.n_heads, one.n_kv_heads))
        return attn(config, q_norm=q, k_norm=k, qk_norm_over=over)

    return step


def output_norms(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    return blocks(config, lambda b: OutputNorm.Config(attn=b.attn, ln1_post=b.ln1, mlp=b.mlp, ln2_post=b.ln2))


def sandwich(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    return blocks(
        config, lambda b: Sandwich.Config(attn=b.attn, ln1=b.ln1, ln1_post=b.ln1, mlp=b.mlp, ln2=b.ln2, ln2_post=b.ln2)
    )


def geglu(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    return blocks(config, lambda b: replace(b, mlp=GLU.Config(d_model=size.d, d_mlp=b.mlp.d_mlp, activation="gelu_tanh")))


def local_global(local: int) -> Step:
    """`local` layers with a window, then one that sees all."""

    def step(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
        masks = [Sliding(window=size.window) if (i + 1) % (local + 1) else Causal() for i in range(size.layers)]
        pairs = zip(config.blocks, masks, strict=True)
        return replace(config, blocks=tuple(replace(b, attn=replace(b.attn, mask=mask)) for b, mask in pairs))

    return step


def latent(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    norms = {"kv_norm": RMSNorm.Config(d=size.kv_latent), "q_norm": RMSNorm.Config(d=size.q_latent)}
    mla = MLA.Config(
        d_model=size.d, n_heads=size.heads, d_nope=size.d_head, d_value=size.d_head, kv_latent=size.kv_latent,
        q_latent=size.q_latent, rope=Rope.Config(d=size.d_rope, base=10_000.0, pairing="interleaved"), **norms,
    )  # fmt: skip
    return blocks(config, lambda b: replace(b, attn=mla))


def experts(deepseek: bool) -> Step:
    """As many neurons a token as the MLP had, in `topk` of many experts."""

    def step(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
        routing = TopKSoftmax(topk=size.topk)
        if deepseek:
            routing = BiasedGroupTopK(topk=size.topk, groups=size.groups, kept=size.groups // 2)
        shape = {"d_model": size.d, "n_experts": size.experts, "routing": routing}
        return blocks(config, lambda b: replace(b, mlp=MoE.Config(d_mlp=max(2, b.mlp.d_mlp // size.topk), **shape)))

    return step


def shared_expert(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    shared = SwiGLU.Config(d_model=size.d, d_mlp=config.blocks[0].mlp.d_mlp)
    return blocks(config, lambda b: replace(b, mlp=replace(b.mlp, shared=shared)))


def biases(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    config = attn(config, qkv_bias=True, o_bias=True)
    return blocks(config, lambda b: replace(b, mlp=replace(b.mlp, router_bias=True, expert_bias=True)))


def widened(config: Decoder.Config, size: Size, width: str) -> Decoder.Config:
    """3.5 d: Llama 3's factor 1.3 on 8/3 d."""
    neurons = gated_width(size.d, size.multiple, 1.3) if size.multiple < 256 else gated_width(size.d, 1024, 1.3)
    return blocks(config, lambda b: replace(b, mlp=replace(b.mlp, d_mlp=neurons)))


def rotary(**fields) -> Step:
    """Fields of every rotation."""
    return lambda config, size, width: blocks(
        config, lambda b: replace(b, attn=replace(b.attn, rope=replace(b.attn.rope, **fields)))
    )


def mlp(**fields) -> Step:
    """Fields of every MLP."""
    return lambda config, size, width: blocks(config, lambda b: replace(b, mlp=replace(b.mlp, **fields)))


def heads(**fields) -> Step:
    """Fields of every attention."""
    return lambda config, size, width: attn(config, **fields)


def all_norms(kind: type, eps: float) -> Step:
    return lambda config, size, width: normed(config, lambda n: kind(d=n.d, eps=eps))


def simple(change: Callable[[Decoder.Config, Size], Decoder.Config]) -> Step:
    """A change that does not depend on the width chosen for gated MLPs."""
    return lambda config, size, width: change(config, size)
