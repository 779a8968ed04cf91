"""Tokenizers put together from a vocabulary alone: byte-level BPE and SentencePiece BPE, with the tokenizers library.

The patterns that cut a text into words are those of llama.cpp's src/llama-vocab.cpp, which are those of the models' own
tokenizer.json.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

SPACE = "▁"
ENGLISH = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{TAIL}"
QWEN2 = rf"{ENGLISH}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{TAIL}"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED, CASED_TAIL = r"[^\r\n\p{L}\p{N}]?", r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
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
    bos: bool = False  # added where a file does not say


WORDS = {  # by the names that llama.cpp gives them
    **dict.fromkeys(("gpt-2", "olmo", "mpt", "phi-2", "jina-es", "jina-de", "default", "roberta-bpe"), Words((GPT2,))),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), Words((r"\p{N}", GPT2))),
    **dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3"), Words((LLAMA3,), True, True)),
    **dict.fromkeys(("dbrx", "smaug-bpe"), Words((LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez"), Words((QWEN2,))),
    **dict.fromkeys(("gpt-4o", "llama4"), Words((GPT4O,))),
    "tekken": Words((TEKKEN,), True, True),
    "deepseek-v3": Words((r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3)),
}


def byte_level(tokens: Sequence[str], merges: Sequence[tuple[str, str]], words: Words) -> Backend:
    """Byte-level BPE: tokens in the letters of model.tokens.LETTER_OF, merges in the order of their rank."""
    backend = Backend(models.BPE(vocab=numbered(tokens), merges=list(merges), ignore_merges=words.whole))
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*cuts, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return backend


def sentencepiece(tokens: Sequence[str], scores: Sequence[float], unknown: str | None, prefix: bool) -> Backend:
    """SentencePiece BPE: of all neighbours, the two whose union has the best score merge first. `prefix`: a text begins
    with a space."""
    merges = merges_of(tokens, lambda whole: -scores[whole])
    model = models.BPE(vocab=numbered(tokens), merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True)
    backend, marks = Backend(model), normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), marks]) if prefix else marks
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return backend


def merges_of(tokens: Sequence[str], rank: Callable[[int], float]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes another, the one of the lowest rank first."""
    pairs = sorted((rank(whole), whole, left, right) for whole, left, right in _pairs(numbered(tokens)))
    return [(tokens[left], tokens[right]) for _, _, left, right in pairs]


def _pairs(numbers: Mapping[str, int]) -> Iterator[tuple[int, int, int]]:
    """(whole, left, right) for every way in which a token is two others."""
    number = numbers.get
    for token, whole in numbers.items():
        for at in range(1, len(token)):
            if (left := number(token[:at])) is not None and (right := number(token[at:])) is not None:
                yield whole, left, right


def numbered(tokens: Sequence[str]) -> dict[str, int]:
    """Token -> number; of two that are spelled alike the first has it."""
    numbers: dict[str, int] = {}
    for number, token in enumerate(tokens):
        numbers.setdefault(token, number)
    return numbers


def add(backend: Backend, control: Iterable[str], user: Iterable[str] = ()) -> None:
    """Control tokens are special; a user's are found in a text before anything is merged."""
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in control if token])
    backend.add_tokens([AddedToken(token, normalized=False, special=False) for token in user if token])


def frame(backend: Backend, before: str | None, after: str | None) -> None:
    """What stands before and after every text."""
    named = dict.fromkeys((token, backend.token_to_id(token)) for token in (before, after) if token)
    if named:
        parts = " ".join(token for token in (before, "$A", after) if token)
        backend.post_processor = processors.TemplateProcessing(single=parts, special_tokens=list(named))
