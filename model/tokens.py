"""Text <-> token numbers through a `tokenizer.json`, and what one token looks like when it is shown on its own."""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer as Backend

from model.errors import BlockscopeError
from model.files import ordinary

LARGEST_FILE = 256 << 20  # bytes
VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥"}
BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def _byte_letters() -> dict[int, str]:
    """The letter that byte-level vocabularies write for each byte: itself where printable, else U+0100 on, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = iter(range(0x100, 0x200))
    return {byte: chr(byte if byte in printable else next(hidden)) for byte in range(256)}


LETTER_OF = _byte_letters()
BYTE_OF = {letter: byte for byte, letter in LETTER_OF.items()}


class Tokenizer:
    """A `tokenizers` tokenizer, without its padding and truncation: a prompt is never cut behind the reader's back.

    `size` is one more than the largest token number. `notes`: sentences for the checkpoint's report.
    """

    def __init__(self, backend: Backend):
        self.notes: tuple[str, ...] = ()
        if backend.truncation is not None:
            self.notes += (f"the tokenizer's own limit of {backend.truncation['max_length']} tokens is not applied",)
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._added = {number: token.content for number, token in backend.get_added_tokens_decoder().items()}
        self.size = max(backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1
        self._byte_level = "ByteLevel" in _types(backend.decoder) | _types(backend.pre_tokenizer)
        self._piece = lru_cache(1 << 16)(self._piece)  # a page asks for the same labels with every click
        self._marked_spaces = "Metaspace" in _types(backend.decoder) or "▁" in _replaced(backend.decoder)

    @classmethod
    def from_file(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer.json; one sentence naming the file where that fails."""
        path = Path(path)
        where = f"{path.parent.name}/{path.name}"
        if (size := ordinary(path, where)) > LARGEST_FILE:
            raise BlockscopeError(f"{where} is {size:,} bytes; expected at most {LARGEST_FILE:,}: download the file again")
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError:
            raise BlockscopeError(f"{where} is not text; download the file again") from None
        return cls.from_json(text, where)

    @classmethod
    def from_json(cls, text: str, where: str = "tokenizer.json") -> "Tokenizer":
        try:
            return cls(Backend.from_str(text))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library panics on some files, and a panic is no Exception
            reason = (str(error).splitlines() or ["unreadable"])[0][:160]
            raise BlockscopeError(f"{where} is not a readable tokenizer ({reason}); download it again") from None

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers of `text`. With `special`, the file's own template adds what it adds (BOS, for most models that
        have one), but not a second BOS before a text that already begins with it."""
        plain = self._encode(text, False)
        if not special:
            return plain
        full = self._encode(text, True)
        added = len(full) - len(plain)
        if added > 0 and plain and full[0] == plain[0] and full[1] == full[0] and full[0] == self.bos:
            return full[1:]
        return full

    def ends(self, text: str) -> list[int]:
        """Where in `text` each token of `encode(text)` ends, in characters; one without text ends where it begins."""
        found = [end for _, end in self._backend.encode(text, add_special_tokens=True).offsets]
        return found[len(found) - len(self.encode(text)) :]

    @property
    def bos(self) -> int | None:
        """The token that the file's template puts before every text, if it does."""
        bare, full = self._encode("a", False), self._encode("a", True)
        return full[0] if len(full) > len(bare) and full[0] != (bare or [None])[0] else None

    def decode(self, ids: Iterable[int], special: bool = True) -> str:
        """The text of these tokens; special tokens are written out, or left out with special=False."""
        return self._backend.decode([self._number(i) for i in ids], skip_special_tokens=not special)

    def token(self, number: int) -> str | None:
        """The token's own spelling in the vocabulary; None where no token has this number."""
        return self._backend.id_to_token(self._number(number))

    def number(self, token: str) -> int | None:
        """The number of a token by its spelling; None where there is no such token."""
        return self._backend.token_to_id(token)

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """One label for each token: its text with spaces as ·, newlines ⏎ and tabs ⇥; bytes that are not a whole
        character as ⟨F0 9F⟩; a number without a token as <unused 18>."""
        return [self._piece(self._number(i)) for i in ids]

    def _piece(self, number: int) -> str:
        token = self._backend.id_to_token(number)
        if token is None:
            return f"<unused {number}>"
        if token == "":
            return f"<empty {number}>"
        if number in self._added:
            return visible(self._added[number].encode())
        if self._byte_level and all(letter in BYTE_OF for letter in token):
            return visible(bytes(BYTE_OF[letter] for letter in token))
        if byte := BYTE_TOKEN.fullmatch(token):
            return visible(bytes([int(byte.group(1), 16)]))
        return visible((token.replace("▁", " ") if self._marked_spaces else token).encode())

    def _encode(self, text: str, special: bool) -> list[int]:
        try:
            return self._backend.encode(text, add_special_tokens=special).ids
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # half of a surrogate pair, or a token that the vocabulary cannot spell
            raise BlockscopeError(f"the tokenizer cannot read this text ({error}); remove what is not text") from None

    @staticmethod
    def _number(value: int) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__") or not 0 <= value.__index__() < 1 << 32:
            raise BlockscopeError(f"{value!r} is not a token number; expected a whole number from 0")
        return value.__index__()


def visible(raw: bytes) -> str:
    """Text of these bytes, nothing invisible: · ⏎ ⇥, ⟨F0 9F⟩ for stray bytes, ⟨U+200B⟩ for what has no shape."""
    text = raw.decode("utf-8", errors="surrogateescape")  # a stray byte becomes U+DC80 + n
    stray = re.compile("[\udc80-\udcff]+")
    text = "".join(_shown(letter) for letter in text)
    return stray.sub(lambda run: "⟨" + " ".join(f"{ord(c) - 0xDC00:02X}" for c in run.group()) + "⟩", text)


def _shown(letter: str) -> str:
    if letter in VISIBLE:
        return VISIBLE[letter]
    if unicodedata.category(letter) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
        return f"⟨{ord(letter):02X}⟩" if letter < "\x80" else f"⟨U+{ord(letter):04X}⟩"
    return letter


def _parts(component: object) -> list[dict]:
    """A decoder or pre-tokenizer and the steps of a sequence, as the plain dicts of tokenizer.json."""
    if component is None:
        return []
    plain = json.loads(component.__getstate__())
    return [plain, *plain.get("decoders", []), *plain.get("pretokenizers", [])]


def _types(component: object) -> set[str]:
    return {part["type"] for part in _parts(component)}


def _replaced(component: object) -> set[str]:
    return {part["pattern"].get("String") for part in _parts(component) if part["type"] == "Replace"}


def byte_tokenizer() -> Tokenizer:
    """Tokens are bytes: what a model without a tokenizer of its own is given."""
    return Tokenizer.from_json(byte_tokenizer_json())


def byte_tokenizer_json() -> str:
    """A tokenizer.json of 256 tokens, one for each byte, numbered by its value. No merges, no special tokens."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    return json.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [],
            "normalizer": None,
            "pre_tokenizer": byte_level,
            "post_processor": None,
            "decoder": byte_level,
            "model": {
                "type": "BPE",
                "dropout": None,
                "unk_token": None,
                "continuing_subword_prefix": None,
                "end_of_word_suffix": None,
                "fuse_unk": False,
                "byte_fallback": False,
                "ignore_merges": False,
                "vocab": {LETTER_OF[byte]: byte for byte in range(256)},
                "merges": [],
            },
        },
        ensure_ascii=False,
        indent=1,
    )
