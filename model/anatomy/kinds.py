"""The distinct blocks of a model, and which layers have them."""

from dataclasses import dataclass
from itertools import pairwise

from model.anatomy.sublayers import attention_name, mlp_name
from model.block import BlockConfig
from model.lm import Decoder


@dataclass(frozen=True)
class Kind:
    """One block design of a model. `name` is what tells it from the other kinds of the same model."""

    block: BlockConfig
    layers: tuple[int, ...]
    name: str

    @property
    def where(self) -> str:
        return layer_text(self.layers)


def kinds(config: Decoder.Config) -> tuple[Kind, ...]:
    """In the order of their first layer."""
    found: dict[BlockConfig, list[int]] = {}
    for layer, block in enumerate(config.blocks):
        found.setdefault(block, []).append(layer)
    names = _names(list(found))
    return tuple(Kind(block, tuple(layers), name) for (block, layers), name in zip(found.items(), names, strict=True))


def _names(blocks: list[BlockConfig]) -> list[str]:
    """The attention where that differs, the MLP where that does, both where both do; the first layers' number otherwise."""
    attention, mlp = ([name(getattr(b, part)) for b in blocks] for name, part in ((attention_name, "attn"), (mlp_name, "mlp")))
    for candidate in (attention, mlp, [f"{a}, {m}" for a, m in zip(attention, mlp, strict=True)]):
        if len(set(candidate)) == len(blocks):
            return candidate
    return [f"{a}, {m} ({i + 1})" for i, (a, m) in enumerate(zip(attention, mlp, strict=True))]


def layer_text(layers: tuple[int, ...], most: int = 4) -> str:
    """(0, 1, 2) -> "0–2"; (1, 3, 5, 7) -> "1, 3, ... 7: every 2nd"."""
    step = layers[1] - layers[0] if len(layers) > 2 else 0
    if step > 1 and all(b - a == step for a, b in pairwise(layers)):
        return f"{layers[0]}, {layers[1]}, … {layers[-1]}: every {step}{'nd' if step == 2 else 'rd' if step == 3 else 'th'}"
    runs: list[list[int]] = []
    for layer in layers:
        if runs and layer == runs[-1][-1] + 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    said = [f"{run[0]}–{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return ", ".join(said if len(said) <= most else [*said[: most - 1], "…", said[-1]])
