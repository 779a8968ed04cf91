"""The tokenizer that a GGUF file carries.

    "gpt2"    byte-level BPE: tokens, merges, and by name ("pre") the pattern that cuts a text into words before merging
    "llama"   SentencePiece BPE: tokens and scores

Other kinds (Unigram, WordPiece, RWKV) and patterns that are not known are not guessed: the model then takes token numbers.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from tokenizers import Tokenizer as Backend

from model.checkpoints.fields import shown
from model.checkpoints.rebuilt import WORDS, add, byte_level, frame, sentencepiece
from model.tokens import Tokenizer

CONTROL, USER_DEFINED = 3, 4  # token types
UNNAMED = "default"  # the pattern of files whose converter did not know the model
INSTEAD = "give the prompt as token numbers"


def tokenizer_of(settings: Mapping[str, object], where: str) -> tuple[Tokenizer | None, list[str]]:
    """(tokenizer, notes); None where the file has none or one of a kind that cannot be rebuilt, with a sentence."""
    kind, tokens = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.tokens")
    if kind is None or not isinstance(tokens, list) or not tokens:
        return None, [f"{where} carries no tokenizer: {INSTEAD}"]
    if not isinstance(kind, str) or kind not in KINDS:
        return None, [f"the tokenizer of {where} is of kind {shown(kind)}, which is not rebuilt here: {INSTEAD}"]
    try:
        backend = KINDS[kind](settings, tokens)
        if isinstance(backend, str):
            return None, [f"the tokenizer of {where} {backend}: {INSTEAD}"]
        kinds = settings.get("tokenizer.ggml.token_type")
        if isinstance(kinds, np.ndarray) and len(kinds) == len(tokens):
            add(backend, *([tokens[i] for i in np.flatnonzero(kinds == one)] for one in (CONTROL, USER_DEFINED)))
        assumed = kind == "llama" or WORDS[_pre(settings)].bos
        before = _token(settings, "bos", tokens) if settings.get("tokenizer.ggml.add_bos_token", assumed) else None
        frame(backend, before, _token(settings, "eos", tokens) if settings.get("tokenizer.ggml.add_eos_token") else None)
        guessed = kind == "gpt2" and _pre(settings) == UNNAMED
        return Tokenizer(backend), [f"{where} does not name the pattern that cuts words: GPT-2's is used"] if guessed else []
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library panics on some input, and a panic is no Exception
        reason = (str(error).splitlines() or ["unreadable"])[0][:160]
        return None, [f"the tokenizer of {where} cannot be rebuilt ({reason}): {INSTEAD}"]


def _byte_level(settings: Mapping[str, object], tokens: Sequence[str]) -> Backend | str:
    merges = settings.get("tokenizer.ggml.merges")
    if _pre(settings) not in WORDS:
        return f"cuts words by a pattern named {shown(_pre(settings))}, which is not known here"
    if not isinstance(merges, list):
        return "has no merges"
    pairs = [(merge[:at], merge[at + 1 :]) for merge in merges if (at := merge.find(" ", 1)) > 0]
    return byte_level(tokens, pairs, WORDS[_pre(settings)])


def _sentencepiece(settings: Mapping[str, object], tokens: Sequence[str]) -> Backend | str:
    scores = settings.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        return "has no score for each token"
    prefix = settings.get("tokenizer.ggml.add_space_prefix", True)
    return sentencepiece(tokens, scores.tolist(), _token(settings, "unknown", tokens), bool(prefix))


KINDS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _pre(settings: Mapping[str, object]) -> str:
    return str(settings.get("tokenizer.ggml.pre", UNNAMED))


def _token(settings: Mapping[str, object], role: str, tokens: Sequence[str]) -> str | None:
    number = settings.get(f"tokenizer.ggml.{role}_token_id")
    return tokens[number] if type(number) is int and 0 <= number < len(tokens) else None
