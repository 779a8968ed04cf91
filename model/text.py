"""Between text and token ids: what a model's tokenizer does, and what is refused before anything runs."""

from collections.abc import Sequence

import torch
from torch import Tensor

from model.errors import BlockscopeError
from model.lm import Decoder
from model.tokens import Tokenizer


class Text:
    """Base of LM: needs `name`, `config`, `device` and `tokenizer` (None: ids are typed as numbers)."""

    name: str
    config: Decoder.Config
    device: torch.device
    tokenizer: Tokenizer | None

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; for a model without a tokenizer, ids typed as numbers ("15 7 2")."""
        if self.tokenizer is not None:
            return self.tokenizer.encode(text)
        try:
            return [int(word) for word in text.replace(",", " ").split()]
        except ValueError:
            raise BlockscopeError(f"{self.name} has no tokenizer: type token ids as numbers, such as 15 7 2") from None

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(list(ids)) if self.tokenizer is not None else " ".join(map(str, ids))

    def ends(self, text: str) -> list[int] | None:
        """Where in `text` each of its tokens ends, in characters; None where ids were typed as numbers."""
        return None if self.tokenizer is None else self.tokenizer.ends(text)

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One short display string per id, spaces and line ends made visible."""
        return self.tokenizer.pieces(list(ids)) if self.tokenizer is not None else [str(i) for i in ids]

    def checked(self, tokens: Sequence[int] | Tensor) -> Tensor:
        """-> int64 [batch, pos] on the device; empty prompts and ids outside the embedding are refused."""
        ids = torch.as_tensor(tokens)
        if ids.numel() == 0:
            raise BlockscopeError("the prompt is empty: type at least one token")
        if ids.is_floating_point() or ids.ndim > 2:
            raise BlockscopeError(f"tokens must be whole numbers [pos] or [batch, pos], got {ids.dtype} {list(ids.shape)}")
        outside = ids[(ids < 0) | (ids >= self.config.d_vocab)]
        if outside.numel():
            rows = self.config.d_vocab
            raise BlockscopeError(f"token id {int(outside[0])} is outside this model's vocabulary of {rows} rows")
        return ids.reshape(-1, ids.shape[-1]).to(self.device, torch.long)
