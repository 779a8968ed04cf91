"""eps and RoPE base against those of published models: faults that no shape gives away.

A family is known by the parts of its block and the size of its vocabulary; where several families share a vocabulary (the
32,000 pieces of Llama 1 and 2, Mistral and many more), by the sizes of the model as well. Each line has its source.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from model.doctor.finding import Check
from model.lm import Decoder
from model.presets import PRESETS

Sizes = tuple[int, int, int, int]  # layers, d_model, heads, key/value heads


@dataclass(frozen=True)
class Family:
    """Published values. `like`: the preset whose parts its models have; `sizes`: those that are meant, any where empty."""

    name: str
    like: str
    vocabularies: tuple[int, ...]
    eps: tuple[float, ...]
    bases: tuple[float, ...]
    source: str
    sizes: tuple[Sizes, ...] = ()


LITGPT = "litgpt/config.py of Lightning-AI/litgpt"

FAMILIES = (
    Family("Llama 1 and 2 7B", "llama-7b", (32_000,), (1e-6, 1e-5), (1e4,),
           "arXiv 2302.13971 and 2307.09288; nlp_models/llama2 of Retruth/deontic", ((32, 4096, 32, 32),)),
    Family("Llama 2 70B", "llama-2-70b", (32_000,), (1e-5,), (1e4,),
           "arXiv 2307.09288; config.json of meta-llama/Llama-2-70b-hf", ((80, 8192, 64, 8),)),
    Family("TinyLlama 1.1B", "llama-7b", (32_000,), (1e-5,), (1e4,), LITGPT, ((22, 2048, 32, 4),)),
    Family("Mistral 7B", "mistral-7b", (32_000,), (1e-5,), (1e4, 1e6),
           "arXiv 2310.06825 (0.1), Mistral-7B-Instruct-v0-2 of Azure/azureml-assets (0.2)", ((32, 4096, 32, 8),)),
    Family("Llama 3", "llama-3-8b", (128_256,), (1e-5,), (5e5,),
           f"arXiv 2407.21783; config.json of meta-llama/Meta-Llama-3-8B; {LITGPT}"),
    Family("SmolLM2 135M and 360M", "llama-3-8b", (49_152,), (1e-5,), (1e5,),
           f"{LITGPT}; config.json in README of satyasundar/erav3-s13", ((30, 576, 9, 3), (32, 960, 15, 5))),
    Family("SmolLM2 1.7B", "llama-3-8b", (49_152,), (1e-5,), (1.3e5,), LITGPT, ((24, 2048, 32, 32),)),
    Family("Qwen 2 and 2.5, small", "qwen2-0.5b", (151_936,), (1e-6,), (1e6, 1e4), f"arXiv 2407.10671; {LITGPT} (1e4: Math)"),
    Family("Qwen 2.5 7B", "qwen2-0.5b", (152_064,), (1e-6, 1e-5), (1e6, 1e4, 1e7),
           f"{LITGPT} (1e4: Math; 1e7: 1M)", ((28, 3584, 28, 4),)),
    Family("Qwen 2.5, large", "qwen2-0.5b", (152_064,), (1e-5,), (1e6, 1e4, 1e7),
           f"{LITGPT} (1e4: Math; 1e7: 1M)", ((48, 5120, 40, 8), (64, 5120, 40, 8), (80, 8192, 64, 8))),
    Family("Qwen 3", "qwen3-0.6b", (151_936,), (1e-6,), (1e6, 5e6), f"arXiv 2505.09388; {LITGPT} (5e6: 2507)"),
    Family("Qwen 3 with experts", "qwen3-30b-a3b", (151_936,), (1e-6,), (1e6, 5e6, 1e7),
           f"arXiv 2505.09388; {LITGPT} (5e6, 1e7: 2507)"),
    Family("Mixtral", "mixtral-8x7b", (32_000, 32_768), (1e-5,), (1e6,), f"arXiv 2401.04088; {LITGPT}"),
    Family("GPT-2", "gpt2", (50_257,), (1e-5,), (), "config.json of openai-community/gpt2"),
    Family("GPT-J 6B", "gptj-6b", (50_400,), (1e-5,), (1e4,), "config.json of EleutherAI/gpt-j-6b"),
    Family("OLMo 2", "olmo2-7b", (100_352,), (1e-6,), (5e5,), f"arXiv 2501.00656; {LITGPT}"),
    Family("Gemma 2", "gemma2-9b", (256_000,), (1e-6,), (1e4,), "arXiv 2408.00118; config.json of google/gemma-2-9b"),
    Family("Gemma 3", "gemma3-270m", (262_144, 262_208), (1e-6,), (1e4, 1e6), f"arXiv 2503.19786; {LITGPT}"),
    Family("Llama 4", "llama4-scout", (202_048,), (1e-5,), (5e5,), "config.json of meta-llama/Llama-4-Scout-17B-16E"),
    Family("gpt-oss", "gpt-oss-20b", (201_088,), (1e-5,), (1.5e5,), "arXiv 2508.10925; config.json of openai/gpt-oss-20b"),
    Family("DeepSeek-V2", "deepseek-v2", (102_400,), (1e-6,), (1e4,),
           "arXiv 2405.04434; config.json of deepseek-ai/DeepSeek-V2"),
    Family("DeepSeek-V3", "deepseek-v3", (129_280,), (1e-6,), (1e4,),
           "arXiv 2412.19437; config.json of deepseek-ai/DeepSeek-V3"),
)  # fmt: skip


def judge(config: Decoder.Config) -> list[Check]:
    families = [family for family in FAMILIES if belongs(config, family)]
    return [
        _one("eps", "eps of norms", config, epsilons, families, lambda family: family.eps),
        _one("base", "RoPE base", config, bases, families, lambda family: family.bases),
    ]


def belongs(config: Decoder.Config, family: Family) -> bool:
    known = config.d_vocab in family.vocabularies and parts(config) == parts(PRESETS[family.like])
    return known and (not family.sizes or sizes(config) in family.sizes)


def _one(
    name: str, what: str, config: Decoder.Config, read: Callable[[Decoder.Config], set[float]], families: list[Family],
    published: Callable[[Family], tuple[float, ...]],
) -> Check:  # fmt: skip
    here = sorted(read(config))
    if not here:
        return Check.skipped(name, f"this model has no {what}")
    values = " and ".join(f"{x:g}" for x in here)
    known = sorted({x for family in families for x in published(family)})
    if not known:
        layers, width, heads, kv = sizes(config)
        model = f"{layers} layers of {width:,}, {heads} heads on {kv}, {config.d_vocab:,} tokens"
        return Check.skipped(name, f"no published values known for a model like this ({model}); {what} here {values}")
    who, source = " and ".join(family.name for family in families), "; ".join(family.source for family in families)
    usual = " or ".join(f"{x:g}" for x in known)
    odd = [x for x in here if not any(math.isclose(x, y, rel_tol=1e-4) for y in known)]
    warnings = [
        f"{what} is {x:g} here and {usual} in every published {who} known here ({source}); right only if these weights were "
        "trained so: else correct the config"
        for x in odd
    ]
    return Check.of(name, f"{what} {values} against {usual} of {who}", warnings)


def parts(config: Decoder.Config) -> tuple:
    """What the blocks of one family have in common: wiring, kinds of norm, attention and MLP, QK-norm and biases."""
    block = config.blocks[-1]  # the first ones of a mixture of experts may be dense
    kinds = [f"{name}:{type(part).__qualname__}" for name, part in sorted(vars(block).items())]
    attention = vars(block.attn)
    return type(block).__qualname__, *kinds, attention.get("q_norm") is not None, attention.get("qkv_bias", False)


def sizes(config: Decoder.Config) -> Sizes:
    attention = vars(config.blocks[0].attn)
    heads = attention.get("n_heads", 0)
    return len(config.blocks), config.d_model, heads, attention.get("n_kv_heads", heads)


def epsilons(config: Decoder.Config) -> set[float]:
    """eps of the norms on the stream and of those on queries and keys."""
    slots = [part for block in set(config.blocks) for part in (*vars(block).values(), *vars(block.attn).values())]
    return {part.eps for part in (*slots, config.ln_final) if hasattr(part, "eps")}


def bases(config: Decoder.Config) -> set[float]:
    return {block.attn.rope.base for block in set(config.blocks) if getattr(block.attn, "rope", None) is not None}
