"""What a live run may read: listed by the operator, brought by a visitor, and what cannot be read."""

import base64

import pytest
from browser import HOSTILE
from growth_page import look

import app
from model.errors import BlockscopeError
from model.growth.corpus import from_bytes, from_path
from viz.pages.growth_texts import BROUGHT, LARGEST, STANDARD, Texts, facts

WORDS = b"the largest logit of the worst layer\n" * 400


def encoded(body: bytes) -> str:
    return base64.b64encode(body).decode()


@pytest.fixture
def shelf(tmp_path):
    """A file and a folder of one name's ending, as an operator lists them."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "book.txt").write_bytes(WORDS)
    (tmp_path / "b" / "book.txt").mkdir(parents=True)
    for i in range(4):
        (tmp_path / "b" / "book.txt" / f"{i}.txt").write_bytes(WORDS)
    return [tmp_path / "a" / "book.txt", tmp_path / "b" / "book.txt"]


def test_listed_texts_are_chosen_by_name_and_never_by_path(shelf):
    texts = Texts(shelf)
    assert texts.names == [STANDARD, "book.txt", "book.txt′"] and [v for v, _ in texts.menu("")] == [
        "",
        "book.txt",
        "book.txt′",
    ]
    assert texts.facts("book.txt") == "", "nothing is read before it is needed"
    assert texts.open("book.txt").sha256 == from_path(shelf[0]).sha256 and texts.open("book.txt′").files == (3, 1)
    assert texts.facts("book.txt").startswith(
        f"book.txt, {len(WORDS) - len(WORDS) // 10:,} bytes to train on, {len(WORDS) // 10:,} bytes held out"
    )
    assert "in 3 files to train on" in texts.facts("book.txt′") and "in 1 file held out, sha256 " in texts.facts("book.txt′")
    for name in (str(shelf[0]), "../book.txt", "/etc/passwd", HOSTILE, "text-guess"):
        assert not texts.knows(name)
        with pytest.raises(BlockscopeError, match="no longer kept"):
            texts.open(name)
    with pytest.raises(BlockscopeError, match=r"--text .*there is no such file or folder"):
        Texts(["/nowhere/at/all"])
    assert app.arguments(["--text", "a", "--text", "b"]).text == ["a", "b"]


def test_a_text_that_a_visitor_brings_is_read_by_a_key_and_forgotten_in_turn():
    texts = Texts()
    key, corpus = texts.bring("../" + HOSTILE + ".txt", encoded(WORDS))
    assert texts.open(key) is corpus and texts.menu(key)[-1] == [key, corpus.name] and len(texts.menu("")) == 1
    assert (
        "<" not in corpus.name and f"sha256 {corpus.sha256[:12]}" in texts.facts(key) and "its last tenth" in texts.facts(key)
    )
    for _ in range(BROUGHT):
        texts.bring(None, encoded(WORDS))
    assert not texts.knows(key)


@pytest.mark.parametrize(
    "body, words",
    [(b"", "is empty"), (b"\x00\x01ELF", "zero bytes: it is not a text"), (b"x" * (LARGEST + 1000), "the most that a visitor may send")],
    ids=["empty", "binary", "large"],
)  # fmt: skip
def test_what_is_no_text_is_a_sentence(growth, body, words):
    answer = growth.bring({"n": 4, "name": "a.txt", "data": encoded(body)})
    assert answer["n"] == 4 and answer["kind"] == "error" and answer["to"] == "text" and words in answer["sentence"]
    for data in (None, 3, "%%%"):
        assert growth.bring({"name": "a", "data": data})["kind"] == "error"


def test_a_run_reads_the_text_that_was_brought_and_says_so(growth):
    key = growth.bring({"name": "mine.txt", "data": encoded(WORDS)})["key"]
    assert look(growth, text=key)["sections"]["form"]["texts"][-1] == [key, "mine.txt"]
    answers = list(growth.train({"state": {"text": key, "live_steps": 2}}))
    begun = next(a for a in answers if a["kind"] == "begin")
    assert begun["text"] == facts(from_bytes(WORDS, "mine.txt").described())
    record = growth.files.get(answers[-1]["records"][0])
    assert record.meta["corpus"]["sha256"] == from_bytes(WORDS, "mine.txt").sha256 and record.meta["bytes_per_token"] == 1
    shown = look(growth) and growth.look({"state": {}, "result": answers[-1]["records"]})["sections"]["result"]
    assert shown["about"][-1] == "text: " + begun["text"]
    short = growth.bring({"name": "s.txt", "data": encoded(b"x" * 40)})["key"]
    said = list(growth.train({"state": {"text": short, "live_steps": 2}}))[-1]
    assert said["kind"] == "error" and "fewer than one sequence of 64" in said["sentence"]
    said = list(growth.train({"state": {"text": "/etc/passwd"}}))[-1]
    assert "there is no text '/etc/passwd' here: choose one of" in said["sentence"]
