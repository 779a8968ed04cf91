"""The requests that several nodes share, written once so that the first run answers them for all."""

from collections.abc import Iterable
from typing import Any

from model.view import Request

SQUARE = ("query_pos", "key_pos")
STREAM = ("hook_resid_pre", "hook_attn_out", "hook_mlp_out")
ADDED_TO = {"hook_attn_out": ("hook_resid_pre",), "hook_mlp_out": ("hook_resid_mid", "hook_resid_pre")}  # the first that exists


def layers(lm: Any) -> range:
    return range(lm.config.n_layers)


def names(lm: Any) -> set[str]:
    return {tap.name for tap in lm.taps()}


def logit_peaks(lm: Any) -> list[Request]:
    """Largest visible |logit| per head, one request a layer -> [head]."""
    return [Request(f"blocks.{i}.attn.hook_logits", "absmax", SQUARE) for i in layers(lm)]


def norm_scales(lm: Any, norm: str) -> dict[int, Request]:
    """layer -> the divisor of every token -> [pos 1]; layers without this norm are left out."""
    have = names(lm)
    taps = {i: f"blocks.{i}.{norm}.hook_scale" for i in layers(lm)}
    return {i: Request(tap) for i, tap in taps.items() if tap in have}


def stream_sizes(lm: Any) -> dict[str, list[Request]]:
    """Length per token of the stream and of what each half of a block adds -> [pos]."""
    return {name: [Request(f"blocks.{i}.{name}", "norm", ("d_model",)) for i in layers(lm)] for name in STREAM}


def stream_cosines(lm: Any) -> dict[str, list[Request]]:
    """Cosine per token of each addition with the stream that it is added to -> [pos]."""
    have = names(lm)
    found = {}
    for name, streams in ADDED_TO.items():
        found[name] = []
        for i in layers(lm):
            stream = next(s for s in streams if f"blocks.{i}.{s}" in have)
            found[name].append(Request(f"blocks.{i}.{name}", "cosine", ("d_model",), against=f"blocks.{i}.{stream}"))
    return found


def stream_norms(lm: Any) -> list[str]:
    """The norms with one divisor a token, by their path in a block: ln1, ln2_post, a latent's."""
    scales = (tap.name for tap in lm.taps() if tap.dims == ("batch", "pos", "1") and tap.name.startswith("blocks."))
    return list(dict.fromkeys(name.split(".", 2)[2].removesuffix(".hook_scale") for name in scales))


def every_layer(lm: Any) -> Iterable[Request]:
    """All that some picture needs of every layer at once."""
    yield from logit_peaks(lm)
    for norm in stream_norms(lm):
        yield from norm_scales(lm, norm).values()
    for per_layer in (*stream_sizes(lm).values(), *stream_cosines(lm).values()):
        yield from per_layer
