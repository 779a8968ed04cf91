"""The ladder from the Transformer of 2017 to the designs of today: one change a rung, all at one common size.

A rung takes the configuration below it and changes one thing, so that what its numbers do is that change's doing. The
rungs from Llama 3 on branch: each family starts from Llama 3 again. Widths, heads and layers stay; only what the change
is about moves.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from model.anatomy import steps as s
from model.anatomy.steps import Size, Step
from model.lm import Decoder
from model.norms import OffsetRMSNorm, RMSNorm
from model.positions import Llama3, Yarn

COMMON = Size(
    layers=32, d=4096, heads=32, kv=8, d_head=128, vocab=32_000, wide_vocab=128_256, context=8192, window=1024, multiple=256,
    experts=128, topk=8, groups=8, q_latent=1536, kv_latent=512, d_rope=64,
)  # fmt: skip
TINY = Size(
    layers=4, d=96, heads=6, kv=2, d_head=16, vocab=256, wide_vocab=256, context=512, window=12, multiple=2, experts=16, topk=4,
    groups=4, q_latent=36, kv_latent=20, d_rope=8,
)  # fmt: skip
WIDTHS = ("matched", "same")  # of the gated MLP: 8/3 d, so that its three matrices weigh as much as two, or 4 d as before


@dataclass(frozen=True)
class Rung:
    """`model`: whose design is reached once this rung is taken; `below`: the id of the rung it stands on."""

    id: str
    model: str
    change: str
    why: str
    step: Step
    below: str | None


YARN = Yarn(factor=32.0, original=4096, truncate=False)
LONG8 = Llama3(factor=8.0, low=1.0, high=4.0, original=8192)

_TABLE = (  # id, the rung below, the model reached, what changes, why, how
    ("2017", None, "Transformer 2017", "the decoder as published", "LayerNorm after each sum, ReLU, sinusoids, biases",
     s.simple(lambda c, z: c)),
    ("pre-norm", "2017", "", "norms move before each part", "the stream is no longer rescaled at every sum: deep stacks train",
     s.pre_norm),
    ("learned", "pre-norm", "", "positions are learned", "one vector a position instead of sinusoids", s.learned),
    ("unscaled", "learned", "", "the embedding is not scaled", "no factor √d before block 0",
     s.simple(lambda c, z: replace(c, embed_scale=None))),
    ("gelu", "unscaled", "GPT-2", "ReLU becomes GELU", "smooth at zero", s.mlp(activation="gelu_tanh")),
    ("rmsnorm", "gelu", "", "LayerNorm becomes RMSNorm", "no mean, no bias: one statistic a token",
     s.all_norms(RMSNorm.Config, 1e-5)),
    ("rope", "rmsnorm", "", "positions rotate q and k", "no table; a logit depends on the distance of two tokens", s.rope),
    ("no-bias", "rope", "", "biases go", "vectors that did little", s.no_biases),
    ("swiglu", "no-bias", "", "the MLP gets a gate", "SiLU(gate) × up: three matrices instead of two", s.swiglu),
    ("untied", "swiglu", "Llama", "the unembedding is its own", "one more matrix of vocabulary × width",
     s.simple(lambda c, z: replace(c, tied=False))),
    ("gqa", "untied", "", "query heads share keys and values", "8 key/value heads serve 32: a quarter of the cache",
     s.simple(lambda c, z: s.attn(c, n_kv_heads=z.kv))),
    ("wide", "gqa", "", "a wider MLP, 3.5 d", "what attention gave up goes to the MLP", s.widened),
    ("base", "wide", "", "RoPE base 10,000 → 500,000", "slower turning, for longer texts", s.rotary(base=500_000.0)),
    ("vocab", "base", "Llama 3", "a vocabulary four times as large", "fewer tokens a text, larger ends",
     s.simple(lambda c, z: replace(c, d_vocab=z.wide_vocab))),
    ("long", "vocab", "Llama 3.1", "RoPE stretched by 8", "slow pairs turn 8 times slower", s.rotary(scaling=LONG8)),
    ("qwen3", "vocab", "Qwen3", "RMSNorm on each head of q and k", "bounds the logits by √d_head times the gains",
     s.qk_norm("head")),
    ("olmo2-qk", "vocab", "", "RMSNorm over all of q and of k", "one norm for all heads together", s.qk_norm("projection")),
    ("olmo2", "olmo2-qk", "OLMo 2", "norms move to each part's output", "what is added to the stream has a fixed size",
     s.output_norms),
    ("gemma3-qk", "vocab", "", "RMSNorm on each head of q and k", "in place of Gemma 2's soft-cap", s.qk_norm("head")),
    ("gemma3-norms", "gemma3-qk", "", "norms before and after each part", "the sandwich", s.sandwich),
    ("gemma3-gain", "gemma3-norms", "", "gains are 1 + w", "weight decay then pulls a gain to 1",
     s.all_norms(OffsetRMSNorm.Config, 1e-5)),
    ("gemma3-eps", "gemma3-gain", "", "norm eps 1e-5 → 1e-6", "less under the root of a small vector",
     s.all_norms(OffsetRMSNorm.Config, 1e-6)),
    ("gemma3-tied", "gemma3-eps", "", "the unembedding is tied again", "one matrix in front and behind",
     s.simple(lambda c, z: replace(c, tied=True))),
    ("gemma3-scale", "gemma3-tied", "", "the embedding is scaled by √d", "as in 2017: its rows are small, as an unembedding's",
     s.simple(lambda c, z: replace(c, embed_scale=z.d**0.5))),
    ("gemma3-gelu", "gemma3-scale", "", "the gate is a GELU", "GEGLU", s.geglu),
    ("gemma3", "gemma3-gelu", "Gemma 3", "five of six layers see a window", "a long text's cache shrinks to a sixth",
     s.local_global(5)),
    ("mla", "vocab", "", "keys and values from one latent",
     "only the latent and one rotary key are cached; that key turns in adjacent pairs at base 10,000", s.latent),
    ("moe", "mla", "", "many small experts, chosen by groups", "as many neurons a token, many more parameters",
     s.experts(True)),
    ("deepseek", "moe", "DeepSeek-V3", "one shared expert", "what every token needs is learned once", s.shared_expert),
    ("oss-experts", "vocab", "", "experts in place of the MLP", "as many neurons a token as before", s.experts(False)),
    ("oss-window", "oss-experts", "", "every second layer sees a window", "half the cache of a long text", s.local_global(1)),
    ("oss-sink", "oss-window", "", "a learned sink in each softmax", "a head may attend to nothing", s.heads(sink=True)),
    ("oss-base", "oss-sink", "", "RoPE base 500,000 → 150,000", "faster turning, before it is stretched",
     s.rotary(base=150_000.0)),
    ("oss-yarn", "oss-base", "", "RoPE stretched by YaRN × 32", "slow pairs slower; the same formula sharpens logits",
     s.rotary(scaling=YARN)),
    ("oss-bias", "oss-yarn", "", "biases come back", "on all projections, router and experts", s.biases),
    ("gpt-oss", "oss-bias", "gpt-oss", "gates are clamped", "SwiGLU cut at ±7, up plus one", s.mlp(gate="clamped-swiglu")),
)  # fmt: skip
RUNGS = tuple(Rung(id, model, change, why, step, below) for id, below, model, change, why, step in _TABLE)


def climb(size: Size, width: str = "matched") -> Iterator[tuple[Rung, Decoder.Config]]:
    """Every rung with its configuration at one size."""
    made: dict[str, Decoder.Config] = {}
    for rung in RUNGS:
        below = s.start(size) if rung.below is None else made[rung.below]
        made[rung.id] = rung.step(below, size, width)
        yield rung, made[rung.id]
