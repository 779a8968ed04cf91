"""What a mistake is: a wrong configuration (perhaps with a wrong part in it), or parameters that are read wrongly."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from types import MappingProxyType

import torch
from torch import Tensor

from model.attention import Attention
from model.block import BlockConfig
from model.lm import Decoder
from model.norms import NormConfig

Read = Callable[[str], Tensor]  # the value of a parameter, by its name
Change = Callable[[Decoder.Config], Decoder.Config]


def unchanged(config: Decoder.Config) -> Decoder.Config:
    return config


@dataclass(frozen=True)
class Misread:
    """Parameters whose names fit `pattern` get the value `wrong(read, name, config)`; all others are read as they are."""

    pattern: str
    wrong: Callable[[Read, str, Decoder.Config], Tensor]

    def hits(self, name: str) -> bool:
        return fnmatchcase(name, self.pattern)


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """`first_tap` is the first tap, in the order of the computation, that differs from a right model's: a name or a pattern,
    `{i}` the first block concerned. `families`: the model types (and designs without one) in which the tests show it."""

    name: str
    what: str
    first_tap: str
    families: tuple[str, ...]
    config: Change = unchanged
    misread: Misread | None = None

    def read(self, read: Read, config: Decoder.Config) -> Read:
        """The parameters as the mistaken model gets them, from `read` of the right one, whose config this is."""
        misread = self.misread
        if misread is None:
            return read
        return lambda name: misread.wrong(read, name, config) if misread.hits(name) else read(name)

    def fits(self, config: Decoder.Config) -> bool:
        """Whether this model has what the mistake gets wrong, and every parameter that the mistaken model needs."""
        config = replace(config, blocks=tuple(dict.fromkeys(config.blocks)))  # one block of each kind is enough
        changed = self.config(config)
        right, wrong = parameters(config), parameters(changed)
        if changed == config and (self.config is not unchanged or not any(map(self.misread.hits, right))):
            return False
        read = self.read(right.__getitem__, config)
        try:
            return all(read(name).shape == value.shape for name, value in wrong.items())
        except (KeyError, AttributeError, RuntimeError):  # a parameter or part that is not there, or of no fitting shape
            return False


@lru_cache(maxsize=4)
def parameters(config: Decoder.Config) -> Mapping[str, Tensor]:
    """Every parameter, without memory."""
    with torch.device("meta"):
        return MappingProxyType(dict(config.build().named_parameters(remove_duplicate=False)))


# ---- changes of a configuration -------------------------------------------------------------------------------------


def blocks(change: Callable[[BlockConfig], BlockConfig]) -> Change:
    return lambda config: replace(config, blocks=tuple(map(change, config.blocks)))


def attention(change: Callable[[Attention.Config], Attention.Config]) -> Change:
    """In every block with ordinary heads; latent attention is left alone."""

    def block(b: BlockConfig) -> BlockConfig:
        return replace(b, attn=change(b.attn)) if isinstance(b.attn, Attention.Config) else b

    return blocks(block)


def masks(change: Callable) -> Change:
    return attention(lambda a: replace(a, mask=change(a.mask)))


def ropes(change: Callable) -> Change:
    return attention(lambda a: a if a.rope is None else replace(a, rope=change(a.rope)))


def norms(change: Callable[[NormConfig], NormConfig], qk: bool = True) -> Change:
    """Every norm of the model, those on q and k too unless `qk` is false."""

    def parts(part, names: tuple[str, ...]):
        return replace(part, **{n: change(norm) for n in names if (norm := getattr(part, n, None)) is not None})

    def block(b: BlockConfig) -> BlockConfig:
        attn = parts(b.attn, ("q_norm", "k_norm", "kv_norm")) if qk else b.attn
        return parts(replace(b, attn=attn), ("ln1", "ln1_post", "ln2", "ln2_post"))

    return lambda config: parts(blocks(block)(config), ("ln_final",))


def turned_into(config: object, kind: type, **fields) -> object:
    """A part's config as one of another class, with the fields that they share."""
    known = kind.__dataclass_fields__
    return kind(**{name: value for name, value in vars(config).items() if name in known}, **fields)


# ---- wrong values of parameters -------------------------------------------------------------------------------------


def zeros(read: Read, name: str, config: Decoder.Config) -> Tensor:
    return torch.zeros_like(read(name))


def no_gain(read: Read, name: str, config: Decoder.Config) -> Tensor:
    """A gain of one and no bias: offsets and biases of 0, weights of 1."""
    return torch.full_like(read(name), 1.0 if name.endswith("weight") else 0.0)


def read_as(change: Callable[[str], str]) -> Callable[[Read, str, Decoder.Config], Tensor]:
    """The parameter of another name is read."""
    return lambda read, name, config: read(change(name))


def traded(one: str, other: str) -> Callable[[Read, str, Decoder.Config], Tensor]:
    """What is called `one` is read where `other` belongs, and the other way round."""
    return read_as(lambda name: name.replace(one, other) if one in name else name.replace(other, one))
