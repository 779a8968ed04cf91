"""Mistakes in what stands beside the scores: sinks, YaRN, chunks, temperature, layers that do not rotate."""

from collections.abc import Callable
from dataclasses import replace

from model.attention import Attention, RotateThenNorm
from model.lm import Decoder
from model.masks import Chunked, Sliding
from model.mistakes import sparse_parts as wrong
from model.mistakes.mistake import Change, Mistake, attention, masks, turned_into
from model.positions import Yarn


def _sink_as_gate(a: Attention.Config) -> Attention.Config:
    return turned_into(a, wrong.SinkAsGate.Config) if type(a) is Attention.Config and a.sink else a


def _yarn(**changes) -> Change:
    def change(a: Attention.Config) -> Attention.Config:
        stretched = a.rope is not None and isinstance(a.rope.scaling, Yarn)
        return replace(a, rope=replace(a.rope, scaling=replace(a.rope.scaling, **changes))) if stretched else a

    return attention(change)


def _chunk(change: Callable[[int], object]) -> Change:
    return masks(lambda mask: change(mask.chunk) if isinstance(mask, Chunked) else mask)


def _normed_anyway(config: Decoder.Config) -> Decoder.Config:
    """QK-norm in the layers without rotation too."""
    norm = next((b.attn.q_norm for b in config.blocks if isinstance(b.attn, RotateThenNorm.Config)), None)
    return attention(lambda a: replace(a, q_norm=norm, k_norm=norm) if a.rope is None else a)(config)


def _rotated_anyway(config: Decoder.Config) -> Decoder.Config:
    rope = next((b.attn.rope for b in config.blocks if b.attn.rope is not None), None)
    return attention(lambda a: a if a.rope is not None else replace(a, rope=rope))(config)


def _temperature(change: Callable) -> Change:
    return attention(lambda a: a if a.temperature is None else replace(a, temperature=change(a.temperature)))


MISTAKES = (
    Mistake(
        name="no sink",
        what="The rows of the pattern sum to 1: the learned logit beside the scores is left out.",
        first_tap="blocks.{i}.attn.hook_pattern",
        families=("gpt_oss",),
        config=attention(lambda a: replace(a, sink=False)),
    ),
    Mistake(
        name="sink as a gate",
        what="Each head's rows are an ordinary softmax times sigmoid(-sink), where the sink joins the denominator.",
        first_tap="blocks.{i}.attn.hook_pattern",
        families=("gpt_oss",),
        config=attention(_sink_as_gate),
    ),
    Mistake(
        name="ends of YaRN's ramp rounded",
        what="The two ends of the ramp are rounded to whole pairs, where truncate is false.",
        first_tap="blocks.{i}.attn.rope.hook_angle",
        families=("gpt_oss",),
        config=_yarn(truncate=True),
    ),
    Mistake(
        name="no YaRN factor on cos and sin",
        what="Only the frequencies are stretched; the factor 0.1 ln(factor) + 1 on cos and sin is left out.",
        first_tap="blocks.{i}.attn.hook_rot_q",
        families=("gpt_oss",),
        config=_yarn(attention_factor=1.0),
    ),
    Mistake(
        name="chunk one too long",
        what="Chunks of attention hold one token more than attention_chunk_size.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("llama4_text",),
        config=_chunk(lambda chunk: Chunked(chunk=chunk + 1)),
    ),
    Mistake(
        name="chunks as a window",
        what="A token sees the last attention_chunk_size tokens, where nothing before its chunk's edge is visible.",
        first_tap="blocks.{i}.attn.hook_attn_scores",
        families=("llama4_text",),
        config=_chunk(lambda chunk: Sliding(window=chunk)),
    ),
    Mistake(
        name="temperature dropped",
        what="The queries of layers without rotation do not grow with their position.",
        first_tap="blocks.{i}.attn.hook_logits",
        families=("llama4_text",),
        config=_temperature(lambda temperature: None),
    ),
    Mistake(
        name="temperature one position late",
        what="The steps of the temperature are counted from position 0, where they are counted from 1.",
        first_tap="blocks.{i}.attn.temperature.hook_scale",
        families=("llama4_text",),
        config=_temperature(lambda temperature: turned_into(temperature, wrong.OneLate.Config)),
    ),
    Mistake(
        name="QK-norm where nothing rotates",
        what="Layers without rotation normalise their queries and keys too.",
        first_tap="blocks.{i}.attn.hook_cache_k",
        families=("llama4_text",),
        config=_normed_anyway,
    ),
    Mistake(
        name="every layer rotates",
        what="The list no_rope_layers is not read (or read by its name: 1 means that a layer does rotate).",
        first_tap="blocks.{i}.attn.hook_cache_k",
        families=("llama4_text",),
        config=_rotated_anyway,
    ),
)
