"""An arm of an experiment: an architecture and a recipe. Two arms may be compared only where they differ by choice alone."""

import contextlib
import fnmatch
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from itertools import groupby

from model.errors import BlockscopeError
from model.growth.recipe import Recipe
from model.lm import Decoder

ARCHITECTURE = "architecture"  # chosen as the difference: any two models, one recipe
NONE = "none"


@dataclass(frozen=True)
class Arm:
    name: str
    config: Decoder.Config
    recipe: Recipe

    def __post_init__(self):
        if self.config.d_vocab < 256:
            raise BlockscopeError(f"{self.name} has {self.config.d_vocab} tokens: training here is on bytes, which need 256")
        if self.recipe.context > self.config.context:
            raise BlockscopeError(
                f"{self.name} is made for {self.config.context} positions: sequences of {self.recipe.context} do not fit it"
            )

    def described(self) -> dict[str, object]:
        """Path -> value of everything that decides a run of this arm, each layer for itself."""
        return {**flat(self.config), **{f"recipe.{name}": value for name, value in self.recipe.values().items()}}


Fix = Callable[[Arm], Arm]


def differences(a: Arm, b: Arm) -> list[str]:
    """One line for each thing that is not the same: "blocks.0-3.attn.q_norm: none | RMSNorm". Names do not count."""
    return _lines(a.described(), b.described())


def recorded_differences(a: Mapping, b: Mapping) -> list[str]:
    """The same from the `meta` of two records: architecture, recipe, and the text that they were trained on."""

    def described(meta: Mapping) -> dict[str, object]:
        recipe = {f"recipe.{name}": value for name, value in (meta.get("recipe") or {}).items()}
        corpus = {"corpus": (meta.get("corpus") or {}).get("sha256")}
        return {**unfolded(meta.get("architecture") or {}), **recipe, **corpus}

    return _lines(described(a), described(b))


def pair(a: Arm, b: Arm, chosen: Iterable[str | Fix], table: Mapping[str, Fix] | None = None) -> tuple[Arm, Arm]:
    """Both arms, if all that they disagree on is what was chosen; refused otherwise, naming what else differs.

    `chosen`: names of fixes in `table` (model.growth.fixes.FIXES by default) or fixes themselves, patterns of paths
    ("recipe.lr", "blocks.*.mlp*"), or "architecture". A fix stands for the paths that it changes in either arm.
    """
    from model.growth.fixes import FIXES  # the table is made of arms

    table, chosen = FIXES if table is None else table, list(chosen)
    patterns = [path for choice in chosen for path in _paths(choice, (a, b), table)]
    left, right = a.described(), b.described()
    extra = {
        path for path in left.keys() | right.keys()
        if left.get(path, NONE) != right.get(path, NONE) and not any(fnmatch.fnmatchcase(path, p) for p in patterns)
    }  # fmt: skip
    if extra:
        lines = _lines({p: v for p, v in left.items() if p in extra}, {p: v for p, v in right.items() if p in extra})
        names = ", ".join(choice if isinstance(choice, str) else getattr(choice, "title", "a fix") for choice in chosen)
        raise BlockscopeError(
            f"{a.name} and {b.name} differ in more than {names or 'nothing'}: {'; '.join(lines[:3])}"
            f"{f' and {len(lines) - 3} more' if len(lines) > 3 else ''}. Make them alike, or choose that difference too"
        )
    return a, b


def _paths(choice: str | Fix, arms: tuple[Arm, Arm], table: Mapping[str, Fix]) -> set[str]:
    if choice == ARCHITECTURE:
        return {path for arm in arms for path in flat(arm.config)}
    if isinstance(choice, str) and choice not in table:
        return {choice}
    fix, changed = table[choice] if isinstance(choice, str) else choice, set()
    for arm in arms:
        with contextlib.suppress(BlockscopeError):  # an arm that has no place for the fix does not differ by it
            before, after = arm.described(), fix(arm).described()
            paths = before.keys() | after.keys()
            changed |= {path for path in paths if before.get(path, NONE) != after.get(path, NONE)}
    return changed


def flat(config: object, path: str = "") -> dict[str, object]:
    """A tree of part configs as path -> value; a part itself stands under its path by its class, absent as "none"."""
    if config is None:
        return {path: NONE}
    if isinstance(config, tuple | list):
        return {k: v for i, item in enumerate(config) for k, v in flat(item, f"{path}.{i}").items()} | {
            f"{path}.count": len(config)
        }
    if not is_dataclass(config):
        return {path: config}
    own = {path or "model": type(config).__qualname__.removesuffix(".Config")}
    inner = (flat(getattr(config, f.name), f"{path}.{f.name}".lstrip(".")) for f in fields(config))
    return own | {k: v for part in inner for k, v in part.items()}


LAYER = re.compile(r"^blocks\.(\d+)(?:-(\d+))?(?=$|\.)")


def folded(description: Mapping[str, object]) -> dict[str, object]:
    """The same with layers that agree written as one: blocks.0-3.attn.d_head."""
    layers: dict[str, list[tuple[int, object]]] = {}
    result: dict[str, object] = {}
    for path, value in description.items():
        if found := LAYER.match(path):
            layers.setdefault(path[found.end() :], []).append((int(found[1]), value))
        else:
            result[path] = value
    for rest, values in layers.items():
        for first, last, value in _runs(values):
            result[f"blocks.{first}{rest}" if first == last else f"blocks.{first}-{last}{rest}"] = value
    return result


def unfolded(description: Mapping[str, object]) -> dict[str, object]:
    result: dict[str, object] = {}
    for path, value in description.items():
        if found := LAYER.match(path):
            first, last = int(found[1]), int(found[2] or found[1])
            for i in range(first, min(last, first + 1024) + 1):
                result[f"blocks.{i}{path[found.end() :]}"] = value
        else:
            result[path] = value
    return result


def _runs(values: list[tuple[int, object]]) -> list[tuple[int, int, object]]:
    """[(layer, value)] -> [(first, last, value)] for neighbouring layers of one value."""
    groups = groupby(enumerate(values), key=lambda item: (item[1][0] - item[0], repr(item[1][1])))
    return [((run := [pair for _, pair in group])[0][0], run[-1][0], run[0][1]) for _, group in groups]


def _lines(left: Mapping[str, object], right: Mapping[str, object]) -> list[str]:
    changed = {
        path: (left.get(path, NONE), right.get(path, NONE))
        for path in [*left, *(path for path in right if path not in left)]
        if left.get(path, NONE) != right.get(path, NONE)
    }
    gone = tuple(f"{path}." for path, pair in changed.items() if NONE in pair)  # their fields say nothing more
    told = {path: pair for path, pair in changed.items() if not path.startswith(gone)}
    return [f"{path}: {_said(a)} | {_said(b)}" for path, (a, b) in folded(told).items()]


def _said(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else NONE if value is None else str(value)
