"""The tokenizer beside a model's weights, and what is to be said of it beside the rows of the embedding."""

from pathlib import Path

from model.checkpoints.tokenizer_model import read_tokenizer_model
from model.errors import BlockscopeError
from model.files import has
from model.lm import Decoder
from model.tokens import Tokenizer

TOKENIZER, OLD_TOKENIZER = "tokenizer.json", "tokenizer.model"


def find_tokenizer(path: Path, config: Decoder.Config) -> tuple[Tokenizer | None, list[str]]:
    """tokenizer.json where there is one, else tokenizer.model; without them, tokens can still be given as numbers."""
    if has(path, TOKENIZER):
        tokenizer, notes = Tokenizer.from_file(path / TOKENIZER), []
    elif has(path, OLD_TOKENIZER):
        try:
            tokenizer, notes = read_tokenizer_model(path / OLD_TOKENIZER), []
        except BlockscopeError as error:
            return None, [f"{error}; until then give the prompt as token numbers"]
    else:
        return None, [f"there is no {TOKENIZER} (nor {OLD_TOKENIZER}): give the prompt as token numbers"]
    return tokenizer, [*notes, *judge_tokens(tokenizer, config)]


def judge_tokens(tokenizer: Tokenizer | None, config: Decoder.Config) -> list[str]:
    """What is to be said of a tokenizer beside the rows of the embedding."""
    if tokenizer is None:
        return []
    notes = list(tokenizer.notes)
    if tokenizer.size > config.d_vocab:
        notes.append(f"the tokenizer has {tokenizer.size} tokens but the model {config.d_vocab}: the others are refused")
    elif tokenizer.size < config.d_vocab:
        notes.append(f"{config.d_vocab - tokenizer.size} rows of the embedding have no token; they are shown as unused")
    return notes
