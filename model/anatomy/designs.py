"""Ways to make the cache smaller, on one geometry: the same layers, width, query heads and head size."""

from dataclasses import dataclass, replace

from model.anatomy.budget import users
from model.anatomy.writing import several
from model.attention import Attention
from model.counting import count_config
from model.lm import Decoder
from model.masks import Causal, Mask, Sliding
from model.mla import MLA
from model.norms import RMSNorm
from model.positions import Rope

WINDOW, LOCAL = 1024, 5  # Gemma 3's: five local layers of 1024 to each global one


@dataclass(frozen=True)
class Design:
    """One design and its counts at a context; `note` says what is cached."""

    name: str
    note: str
    config: Decoder.Config
    per_token: int  # bytes that one more token adds while no window is full
    cache: int  # bytes of a whole context
    users: int  # caches in 80 GB


def designs(config: Decoder.Config, context: int, itemsize: int = 2) -> list[Design]:
    """MHA, GQA, MQA, MLA, a window, local : global, and both together, with the heads of `config`."""
    heads, d_head = config.blocks[0].attn.n_heads, head_size(config)
    group = next(g for g in (4, 2, 3, 5, 1) if heads % g == 0)
    few = heads // group
    latent, d_rope = 4 * d_head, max(2, d_head // 2 // 2 * 2)
    window, local, causal = Sliding(window=WINDOW), (Sliding(window=WINDOW),) * LOCAL + (Causal(),), (Causal(),)
    saved = "a query head reads each" if group == 1 else f"{group} query heads read one"
    small = f"a latent of {latent} and a rotary key of {d_rope}: 4 and 1/2 heads, as DeepSeek has"
    seen = f"at most {WINDOW:,} tokens"
    made = [
        ("MHA", f"2 · {several(heads, 'head')} · {d_head}", _with(config, heads, causal)),
        (f"GQA, {several(few, 'KV head')}", f"2 · {several(few, 'head')} · {d_head}: {saved}", _with(config, few, causal)),
        ("MQA", f"2 · 1 head · {d_head}", _with(config, 1, causal)),
        ("MLA", small, _latent(config, latent, d_rope)),
        (f"MHA, window {WINDOW:,}", seen, _with(config, heads, (window,))),
        (f"MHA, {LOCAL} local : 1 global", f"{seen} in {LOCAL} of {LOCAL + 1} layers", _with(config, heads, local)),
        (f"GQA, {LOCAL} local : 1 global", "both", _with(config, few, local)),
    ]
    own = count_config(config)
    found = [Design("as built", "the model itself", config, *_sizes(own, context, itemsize))]
    return [Design(n, note, c, *_sizes(count_config(c), context, itemsize)) for n, note, c in made] + found


def head_size(config: Decoder.Config) -> int:
    """Of a query head; under latent attention that of a value, which has no rotary part."""
    attn = config.blocks[0].attn
    return attn.d_value if isinstance(attn, MLA.Config) else attn.d_head


def _sizes(found, context: int, itemsize: int) -> tuple[int, int, int]:
    cache = found.kv_cache_bytes(context, itemsize)
    return found.kv_bytes_per_token(itemsize), cache, users(cache)


def _with(config: Decoder.Config, n_kv_heads: int, masks: tuple[Mask, ...]) -> Decoder.Config:
    """Ordinary heads in every block, the masks in turn."""
    heads, d_head, d = config.blocks[0].attn.n_heads, head_size(config), config.d_model
    blocks = tuple(
        replace(block, attn=Attention.Config(
            d_model=d, n_heads=heads, n_kv_heads=n_kv_heads, d_head=d_head, rope=None, mask=masks[i % len(masks)]
        ))
        for i, block in enumerate(config.blocks)
    )  # fmt: skip
    return replace(config, blocks=blocks)


def _latent(config: Decoder.Config, latent: int, d_rope: int) -> Decoder.Config:
    heads, d_head = config.blocks[0].attn.n_heads, head_size(config)
    attn = MLA.Config(
        d_model=config.d_model, n_heads=heads, d_nope=d_head, d_value=d_head, kv_latent=latent,
        kv_norm=RMSNorm.Config(d=latent), rope=Rope.Config(d=d_rope, base=10_000.0, pairing="interleaved"),
    )  # fmt: skip
    return replace(config, blocks=tuple(replace(block, attn=attn) for block in config.blocks))
