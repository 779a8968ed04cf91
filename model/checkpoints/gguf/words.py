"""config.json's fields, filled one by one from the settings of a GGUF file."""

import math
from collections.abc import Mapping

import numpy as np

from model.checkpoints.fields import shown
from model.checkpoints.gguf.header import Entry
from model.errors import BlockscopeError

INSTEAD = "open the model's Hugging Face folder, if its blocks are known here"


class Words:
    """config.json's fields, filled one by one from a file; `origins` remembers from which key."""

    def __init__(self, settings: Mapping[str, object], tensors: Mapping[str, Entry], arch: str, where: str):
        self.settings, self.tensors, self.arch, self.where = settings, tensors, arch, where
        self.values: dict[str, object] = {}
        self.origins: dict[str, str] = {}
        self.taken: set[str] = set()

    def fail(self, sentence: str) -> BlockscopeError:
        return BlockscopeError(f"{self.where}: {sentence}")

    def get(self, key: str) -> object:
        """A setting of the architecture; None where the file does not have it. Equal values per layer are one value."""
        full = f"{self.arch}.{key}"
        self.taken.add(full)
        value = self.settings.get(full)
        if isinstance(value, np.ndarray):
            value = value.tolist()
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            return value[0]
        return value

    def whole(self, key: str, default: int) -> int:
        value = self.get(key)
        if value is None:
            return default
        if type(value) is not int or not 0 <= value < 1 << 32:
            raise self.fail(f"{self.arch}.{key} is {shown(value)}; expected a whole number: download the file again")
        return value

    def number(self, key: str, default: float | None = None) -> float | None:
        value = self.get(key)
        if value is None:
            return default
        if type(value) not in (int, float) or not math.isfinite(value):
            raise self.fail(f"{self.arch}.{key} is {shown(value)}; expected a number: download the file again")
        return float(value)

    def put(self, name: str, value: object, origin: str) -> None:
        """Field `name` of config.json is `value`, because of `origin`."""
        self.values[name], self.origins[name] = value, origin

    def take(self, keys: Mapping[str, str]) -> None:
        for key, name in keys.items():
            if (value := self.get(key)) is not None:
                self.put(name, value, f"{self.arch}.{key}")
