"""Text to tokens and back: BOS exactly once, split characters shown as bytes, numbers without a token, bad files."""

import json

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, processors

from model.errors import BlockscopeError
from model.tokens import Tokenizer, byte_tokenizer, byte_tokenizer_json

FACE = "\U0001f642"  # four bytes in UTF-8: F0 9F 99 82
TEXTS = ["", " ", "def f(x):\n\treturn x\r\n", f"a{FACE} b", "漢字 é ", "\x00\x7f", "</s><b>x</b>${HOME}", "e\u0301\u200d"]


def byte_level(bos=None, template=True) -> Backend:
    """A byte-level tokenizer without merges; with `bos`, one that knows this special token and, by template, adds it."""
    backend = Backend.from_str(byte_tokenizer_json())
    if bos:
        backend.add_special_tokens([bos])
        if template:
            number = backend.token_to_id(bos)
            backend.post_processor = processors.TemplateProcessing(
                single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, number)]
            )
    return backend


def sentence_pieces() -> Backend:
    """What Llama 1 and 2 and Mistral have: ▁ for spaces, <0x..> for bytes outside the vocabulary."""
    vocab = {"<unk>": 0, "▁": 1, "a": 2, "▁b": 3, "b": 4, **{f"<0x{b:02X}>": 5 + b for b in range(256)}}
    backend = Backend(models.BPE(vocab=vocab, merges=[("▁", "b")], unk_token="<unk>", byte_fallback=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never", split=False)
    backend.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return backend


# ---- bytes ----------------------------------------------------------------------------------------------------------


def test_the_byte_tokenizer_is_the_identity_on_bytes():
    tokenizer = byte_tokenizer()
    assert tokenizer.size == len(json.loads(byte_tokenizer_json())["model"]["vocab"]) == 256
    for text in [*TEXTS, "x" * 10_000, "".join(map(chr, range(1, 0x300)))]:
        ids = tokenizer.encode(text)
        assert bytes(ids) == text.encode()
        assert tokenizer.decode(ids) == text
        assert len(tokenizer.pieces(ids)) == len(ids)


def test_the_byte_tokenizer_is_one_that_transformers_reads(tmp_path):
    from transformers import PreTrainedTokenizerFast

    (tmp_path / "tokenizer.json").write_text(byte_tokenizer_json(), encoding="utf-8")
    theirs = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    for text in TEXTS:
        assert theirs.encode(text) == byte_tokenizer().encode(text)


# ---- pieces ---------------------------------------------------------------------------------------------------------


def test_a_character_split_over_tokens_is_shown_as_its_bytes():
    tokenizer = byte_tokenizer()
    ids = tokenizer.encode(f"a{FACE} b")
    assert tokenizer.pieces(ids) == ["a", "⟨F0⟩", "⟨9F⟩", "⟨99⟩", "⟨82⟩", "·", "b"]
    assert tokenizer.decode(ids) == f"a{FACE} b"


def test_nothing_invisible_in_a_piece():
    tokenizer = byte_tokenizer()
    assert tokenizer.pieces(tokenizer.encode(" \n\t\r\x00")) == ["·", "⏎", "⇥", "⟨0D⟩", "⟨00⟩"]
    backend = byte_level()
    backend.add_tokens(["\u200b\u00a0x", "  "])
    assert Tokenizer(backend).pieces([256, 257]) == ["⟨U+200B⟩⟨U+00A0⟩x", "··"]


def test_whole_and_partial_characters_in_one_token():
    letters = json.loads(byte_tokenizer_json())["model"]["vocab"]
    spell = {number: letter for letter, number in letters.items()}
    token = "".join(spell[b] for b in b" \xf0\x9f")
    vocab = letters | {token: 256, "".join(spell[b] for b in "é".encode()): 257}
    backend = Backend(models.BPE(vocab=vocab, merges=[]))
    backend.decoder = decoders.ByteLevel()
    assert Tokenizer(backend).pieces([256, 257]) == ["·⟨F0 9F⟩", "é"]


def test_sentence_piece_spaces_and_byte_tokens():
    tokenizer = Tokenizer(sentence_pieces())
    ids = tokenizer.encode(f"a b{FACE}\n")
    assert tokenizer.pieces(ids) == ["a", "·b", "⟨F0⟩", "⟨9F⟩", "⟨99⟩", "⟨82⟩", "⏎"]
    assert tokenizer.decode(ids) == f"a b{FACE}\n"


def test_special_tokens_and_markup_are_shown_literally():
    backend = byte_level("<s>")
    backend.add_special_tokens(["<|im_start|>", "<b>x</b>"])
    assert Tokenizer(backend).pieces([256, 257, 258]) == ["<s>", "<|im_start|>", "<b>x</b>"]


def test_numbers_without_a_token():
    backend = Backend(models.WordLevel(vocab={chr(97 + i): i for i in range(16)}, unk_token="a"))
    tokenizer = Tokenizer(backend)
    assert tokenizer.size == 16
    assert tokenizer.pieces([15, 18]) == ["p", "<unused 18>"]
    assert tokenizer.token(18) is None and tokenizer.token(15) == "p" and tokenizer.number("p") == 15
    assert tokenizer.decode([18]) == ""


@pytest.mark.parametrize("bad", [-1, 2.5, "a", None, True, 1 << 40])
def test_what_is_no_token_number_is_refused(bad):
    for ask in (byte_tokenizer().pieces, byte_tokenizer().decode):
        with pytest.raises(BlockscopeError, match="is not a token number"):
            ask([bad])


# ---- BOS ------------------------------------------------------------------------------------------------------------


def test_bos_is_added_once_as_the_template_says():
    tokenizer = Tokenizer(byte_level("<s>"))
    bos = tokenizer.bos
    assert bos == 256
    assert tokenizer.encode("Hi") == [bos, 72, 105]
    assert tokenizer.encode("<s>Hi") == [bos, 72, 105]  # pasted with its BOS
    assert tokenizer.encode("<s><s>Hi") == [bos, bos, 72, 105]  # what the text says is kept
    assert tokenizer.encode("Hi<s>") == [bos, 72, 105, bos]
    assert tokenizer.encode("") == tokenizer.encode("<s>") == [bos]
    assert tokenizer.encode("Hi", special=False) == [72, 105]
    assert tokenizer.decode([bos, 72, 105]) == "<s>Hi"
    assert tokenizer.decode([bos, 72, 105], special=False) == "Hi"


def test_no_template_adds_nothing():
    tokenizer = Tokenizer(byte_level("<s>", template=False))
    assert tokenizer.bos is None
    assert tokenizer.encode("Hi") == [72, 105]
    assert tokenizer.encode("<s>Hi") == [256, 72, 105]
    assert byte_tokenizer().bos is None


def test_a_chat_template_that_writes_bos_does_not_double_it():
    backend = byte_level("<|begin_of_text|>")
    text = "<|begin_of_text|><|start|>user\nHi"
    assert Tokenizer(backend).encode(text).count(256) == 1


def test_a_template_with_an_end_keeps_it():
    backend = byte_level("<s>")
    backend.add_special_tokens(["</s>"])
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 256), ("</s>", 257)])
    assert Tokenizer(backend).encode("<s>Hi") == Tokenizer(backend).encode("Hi") == [256, 72, 105, 257]


# ---- files ----------------------------------------------------------------------------------------------------------


def test_a_prompt_is_never_cut_or_padded():
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=16)
    tokenizer = Tokenizer(backend)
    assert len(tokenizer.encode("ten bytes!")) == 10
    assert tokenizer.notes == ("the tokenizer's own limit of 4 tokens is not applied",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"model": {}}',
        "{" * 100_000,
        byte_tokenizer_json()[:2000],
        '{"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}',
        '{"version": "1.0", "model": {"type": "Unigram", "vocab": [], "unk_id": 5}}',
        "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
        "<!DOCTYPE html><img src=x onerror=alert(1)>",
    ],
)
def test_bad_files_are_one_clean_sentence(text, tmp_path):
    file = tmp_path / "tokenizer.json"
    file.write_text(text)
    with pytest.raises(BlockscopeError, match=r"tokenizer\.json") as caught:
        Tokenizer.from_file(file)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_bytes_that_are_not_text(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(BlockscopeError, match="is not text"):
        Tokenizer.from_file(tmp_path / "tokenizer.json")


def test_text_that_cannot_be_encoded_is_refused():
    with pytest.raises(BlockscopeError, match="cannot read this text"):
        byte_tokenizer().encode("half a pair: \ud83d")


def test_a_word_outside_a_closed_vocabulary_is_refused_or_unknown():
    closed = Backend(models.WordLevel(vocab={"a": 0}, unk_token="<unk>"))  # an unknown token that is not in the vocabulary
    with pytest.raises(BlockscopeError, match="cannot read this text"):
        Tokenizer(closed).encode("zebra")
