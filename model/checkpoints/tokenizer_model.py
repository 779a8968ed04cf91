"""tokenizer.model, as Meta's and Mistral's own downloads have it: a SentencePiece file, or Llama 3's list of byte sequences.

Llama 3      a line for each token: its bytes in base64, and its rank, which is its number (tiktoken's format)
before it    a SentencePiece protocol buffer, read with the sentencepiece package
"""

import base64
import binascii
from pathlib import Path

from sentencepiece import SentencePieceProcessor

from model.checkpoints.rebuilt import WORDS, add, byte_level, frame, merges_of, sentencepiece
from model.errors import BlockscopeError
from model.files import ordinary
from model.tokens import LETTER_OF, Tokenizer

LARGEST = 64 << 20  # bytes
RESERVED = 256  # special tokens that Llama 3 adds after those of the file
PROBES = (
    "The quick brown fox",
    "two  spaces ",
    "caf\u00e9 \ufb01 \u2460 12345",
    "\U0001f642\n\tx",
)  # what else would change
LLAMA3 = {  # those of them that have names; the others are <|reserved_special_token_N|>, counted over
    0: "<|begin_of_text|>", 1: "<|end_of_text|>", 4: "<|finetune_right_pad_id|>", 5: "<|step_id|>",
    6: "<|start_header_id|>", 7: "<|end_header_id|>", 8: "<|eom_id|>", 9: "<|eot_id|>", 10: "<|python_tag|>",
}  # fmt: skip


def read_tokenizer_model(path: Path) -> Tokenizer:
    """One sentence naming the file where it cannot be read."""
    where = f"{path.parent.name}/{path.name}"
    if (size := ordinary(path, where)) > LARGEST:
        raise BlockscopeError(f"{where} is {size:,} bytes; expected at most {LARGEST:,}: download the tokenizer again")
    data = path.read_bytes()
    try:
        backend = _ranked(data) if _is_ranked(data) else _protocol_buffer(data)
        return Tokenizer(backend)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # both libraries may panic on a damaged file
        reason = (str(error).splitlines() or ["unreadable"])[0][:160]
        raise BlockscopeError(f"{where} is not a readable tokenizer ({reason}); download it again") from None


def _is_ranked(data: bytes) -> bool:
    first = data[:200].split(b"\n")[0].split()
    return len(first) == 2 and first[1].isdigit()


def _ranked(data: bytes):
    """Byte-level BPE from ranks: two tokens merge if their bytes are another, the one of the lowest rank first."""
    tokens: list[str] = []
    for line in data.splitlines():
        try:
            text, rank = line.split()
            raw = base64.b64decode(text, validate=True)
        except (ValueError, binascii.Error):
            raise ValueError(f"line {len(tokens) + 1} is not a token and its rank") from None
        if int(rank) != len(tokens):
            raise ValueError(f"line {len(tokens) + 1} has rank {int(rank)}; expected {len(tokens)}")
        tokens.append("".join(LETTER_OF[byte] for byte in raw))
    backend = byte_level(tokens, merges_of(tokens, float), WORDS["llama3"])
    reserved = iter(f"<|reserved_special_token_{n}|>" for n in range(RESERVED))
    add(backend, [LLAMA3.get(n) or next(reserved) for n in range(RESERVED)])
    frame(backend, LLAMA3[0], None)
    return backend


def _protocol_buffer(data: bytes):
    """BOS before every text, as Meta's and Mistral's own code puts it."""
    model = SentencePieceProcessor(model_proto=data)
    numbers = range(model.get_piece_size())
    tokens = [model.id_to_piece(n) for n in numbers]
    backend = sentencepiece(tokens, [model.get_score(n) for n in numbers], tokens[model.unk_id()], prefix=True)
    if any(backend.encode(text).ids != model.encode(text) for text in PROBES):
        raise ValueError("it is not a BPE vocabulary, or changes a text before cutting it")
    add(backend, [tokens[n] for n in numbers if model.is_control(n)])
    frame(backend, tokens[model.bos_id()] if model.bos_id() >= 0 else None, None)
    return backend
