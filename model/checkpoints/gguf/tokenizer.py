"""The tokenizer that a GGUF file carries, rebuilt with the tokenizers library.

    "gpt2"    byte-level BPE: tokens, merges, and by name ("pre") the pattern that cuts a text into words before merging
    "llama"   SentencePiece BPE: tokens and scores; two tokens merge into the one with the best score

Other kinds (Unigram, WordPiece, RWKV) and patterns not in the table are not guessed: the model then takes token numbers.
The patterns are those of llama.cpp's src/llama-vocab.cpp, which are those of the models' own tokenizer.json.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from model.checkpoints.fields import shown
from model.tokens import Tokenizer

CONTROL, USER_DEFINED = 3, 4  # token types
SPACE = "▁"
ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"
QWEN2 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{TAIL}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?"
CASED_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT4O = rf"{CASED}{UPPER}*{LOWER}+{ENGLISH}?|{CASED}{UPPER}+{LOWER}*{ENGLISH}?|\p{{N}}{{1,3}}|{CASED_TAIL}"
TEKKEN = rf"{CASED}{UPPER}*{LOWER}+|{CASED}{UPPER}+{LOWER}*|\p{{N}}|{CASED_TAIL}"
DEEPSEEK3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""
)


@dataclass(frozen=True)
class Words:
    """How a text is cut before merging: by each pattern in turn. `whole`: a word that is a token is taken as it is."""

    patterns: tuple[str, ...]
    whole: bool = False
    bos: bool = False  # added where the file does not say


PRE = {
    **dict.fromkeys(("gpt-2", "olmo", "mpt", "phi-2", "jina-es", "jina-de", "default", "roberta-bpe"), Words((GPT2,))),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), Words((r"\p{N}", GPT2))),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3"), Words((LLAMA3,), True, True)),
    **dict.fromkeys(("dbrx", "smaug-bpe"), Words((LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), Words((QWEN2,))),
    **dict.fromkeys(("gpt-4o", "llama4"), Words((GPT4O,))),
    "tekken": Words((TEKKEN,), True, True),
    "deepseek-v3": Words((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3)),
}
UNTESTED = "default"  # a name that says nothing: converters wrote it for models that they did not know


def tokenizer_of(settings: Mapping[str, object], where: str) -> tuple[Tokenizer | None, list[str]]:
    """(tokenizer, notes); None where the file has none or one of a kind that cannot be rebuilt, with a sentence."""
    instead = "give the prompt as token numbers"
    kind, tokens = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.tokens")
    if kind is None or not isinstance(tokens, list) or not tokens:
        return None, [f"{where} carries no tokenizer: {instead}"]
    if kind not in KINDS:
        return None, [f"the tokenizer of {where} is of kind {shown(kind)}, which is not rebuilt here: {instead}"]
    try:
        backend = KINDS[kind](settings, tokens)
        if isinstance(backend, str):
            return None, [f"the tokenizer of {where} {backend}: {instead}"]
        _add(backend, settings, tokens)
        _frame(backend, settings, tokens, kind)
        return Tokenizer(backend), []
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library panics on some input, and a panic is no Exception
        reason = (str(error).splitlines() or ["unreadable"])[0][:160]
        return None, [f"the tokenizer of {where} cannot be rebuilt ({reason}): {instead}"]


def _byte_level(settings: Mapping[str, object], tokens: Sequence[str]) -> Backend | str:
    pre, merges = settings.get("tokenizer.ggml.pre", UNTESTED), settings.get("tokenizer.ggml.merges")
    if pre not in PRE:
        return f"cuts words by a pattern named {shown(pre)}, which is not known here"
    if not isinstance(merges, list):
        return "has no merges"
    pairs = [(m[:at], m[at + 1 :]) for m in merges if (at := m.find(" ", 1)) > 0]
    words = PRE[pre]
    backend = Backend(models.BPE(vocab=_numbers(tokens), merges=pairs, ignore_merges=words.whole))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentencepiece(settings: Mapping[str, object], tokens: Sequence[str]) -> Backend | str:
    scores = settings.get("tokenizer.ggml.scores")
    if not isinstance(scores, np.ndarray) or len(scores) != len(tokens):
        return "has no score for each token"
    numbers, unknown = _numbers(tokens), _token(settings, "unknown", tokens)
    pairs = sorted(_pairs(tokens, numbers), key=lambda pair: (-scores[pair[0]], pair[0], pair[1], pair[2]))
    merges = [(tokens[left], tokens[right]) for _, left, right in pairs]
    model = models.BPE(vocab=numbers, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    prefix = settings.get("tokenizer.ggml.add_space_prefix", True)
    backend = Backend(model)
    marks = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), marks]) if prefix else marks
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return backend


KINDS = {"gpt2": _byte_level, "llama": _sentencepiece}


def _pairs(tokens: Sequence[str], numbers: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """(whole, left, right) for every way in which a token is two others."""
    for token, whole in numbers.items():
        for at in range(1, len(token)):
            left, right = numbers.get(token[:at]), numbers.get(token[at:])
            if left is not None and right is not None:
                yield whole, left, right


def _numbers(tokens: Sequence[str]) -> dict[str, int]:
    """Token -> number; of two that are spelled alike the first has it."""
    numbers: dict[str, int] = {}
    for number, token in enumerate(tokens):
        numbers.setdefault(token, number)
    return numbers


def _token(settings: Mapping[str, object], role: str, tokens: Sequence[str]) -> str | None:
    number = settings.get(f"tokenizer.ggml.{role}_token_id")
    return tokens[number] if type(number) is int and 0 <= number < len(tokens) else None


def _add(backend: Backend, settings: Mapping[str, object], tokens: Sequence[str]) -> None:
    """Control tokens are special; tokens that a user defined are found in a text before anything is merged."""
    kinds = settings.get("tokenizer.ggml.token_type")
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
        return
    for special, kind in ((True, CONTROL), (False, USER_DEFINED)):
        added = [AddedToken(tokens[i], normalized=False, special=special) for i in np.flatnonzero(kinds == kind) if tokens[i]]
        (backend.add_special_tokens if special else backend.add_tokens)(added)


def _frame(backend: Backend, settings: Mapping[str, object], tokens: Sequence[str], kind: str) -> None:
    """What stands before and after every text, as the file says or as llama.cpp assumes."""
    assumed = kind == "llama" or PRE[settings.get("tokenizer.ggml.pre", UNTESTED)].bos
    before = _token(settings, "bos", tokens) if settings.get("tokenizer.ggml.add_bos_token", assumed) else None
    after = _token(settings, "eos", tokens) if settings.get("tokenizer.ggml.add_eos_token", False) else None
    named = [(token, backend.token_to_id(token)) for token in (before, after) if token]
    if named:
        parts = [token for token in (before, "$A", after) if token]
        backend.post_processor = processors.TemplateProcessing(
            single=" ".join(parts), special_tokens=list(dict.fromkeys(named))
        )
