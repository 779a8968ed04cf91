"""Texts to train on: the standard library, a file, a folder; and the n-gram lines that losses are read against."""

import math
from collections import Counter

import pytest
import torch

from model.errors import BlockscopeError
from model.growth.corpus import from_path, standard_library
from model.growth.ngrams import ngram_losses


def test_standard_library_is_split_by_file_and_leaves_packages_out():
    corpus = standard_library()
    assert len(corpus.train) > 10 * len(corpus.validation) > 0 and corpus.files[0] > corpus.files[1] > 0
    assert (
        len(corpus.sha256) == 64 and b"def namedtuple(" in corpus.train.numpy().tobytes() + corpus.validation.numpy().tobytes()
    )


def test_a_file_validates_on_its_last_tenth(tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(1, 101)))
    corpus = from_path(tmp_path / "a.txt")
    assert bytes(corpus.train) == bytes(range(1, 91)) and bytes(corpus.validation) == bytes(range(91, 101))
    assert (corpus.name, corpus.files) == ("a.txt", (1, 1))


def folder_of(tmp_path, count):
    for i in range(count):
        (tmp_path / f"d{i % 3}").mkdir(exist_ok=True)
        (tmp_path / f"d{i % 3}" / f"{i}.txt").write_text(f"<{i}>" * 20)
    return tmp_path


@pytest.mark.parametrize("count", (2, 5, 200))
def test_a_folder_is_split_by_whole_files(tmp_path, count):
    corpus = from_path(folder_of(tmp_path, count))
    train, validation = bytes(corpus.train).decode(), bytes(corpus.validation).decode()
    sides = [{i for i in range(count) if f"<{i}>" in side} for side in (train, validation)]
    assert sides[0] | sides[1] == set(range(count)) and not sides[0] & sides[1] and all(sides)
    assert tuple(map(len, sides)) == corpus.files and (count < 200 or 3 <= len(sides[1]) <= 25)
    assert from_path(tmp_path).sha256 == corpus.sha256
    (tmp_path / "d0" / "0.txt").write_text("changed")
    assert from_path(tmp_path).sha256 != corpus.sha256


def test_what_is_no_text_is_left_out_of_a_folder(tmp_path):
    folder = folder_of(tmp_path / "texts", 3) if (tmp_path / "texts").mkdir() is None else None
    expected = from_path(folder).sha256
    (folder / "picture.png").write_bytes(b"\x89PNG\0\0")
    (folder / "empty.txt").touch()
    (folder / ".hidden").write_text("secret")
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "link.txt").symlink_to(tmp_path / "outside.txt")
    (folder / "round").symlink_to(folder, target_is_directory=True)
    assert from_path(folder).sha256 == expected


def test_paths_that_hold_no_text_get_a_sentence(tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "zero").write_bytes(b"a\0b")
    (tmp_path / "none").mkdir()
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.txt").write_text("text")
    cases = {
        "empty.txt": "is empty", "zero": "zero bytes", "none": "has 0 text files", "one": "needs two: give the file itself",
        "gone": "there is no text file or folder", "a\0b": "there is no text file", "x" * 5000: "cannot be read|there is no",
    }  # fmt: skip
    for name, said in cases.items():
        with pytest.raises(BlockscopeError, match=said) as error:
            from_path(f"{tmp_path}/{name}")
        assert len(str(error.value)) < 500
    with pytest.raises(BlockscopeError, match="there is no text file"):
        from_path("/dev/zero")


def direct(train: bytes, held_out: bytes, n: int) -> float:
    """Witten and Bell's estimate from dictionaries, byte by byte."""

    def probability(context: bytes, byte: int) -> float:
        shorter = 1 / 256 if not context else probability(context[1:], byte)
        if not context:
            after = Counter(train)
        else:
            k = len(context)
            after = Counter(train[i + k] for i in range(len(train) - k) if train[i : i + k] == context)
        total, kinds = sum(after.values()), len(after)
        return (after[byte] + kinds * shorter) / (total + kinds) if total else shorter

    logs = [-math.log(probability(held_out[max(0, i - n + 1) : i], held_out[i])) for i in range(len(held_out))]
    return sum(logs) / len(logs)


def test_ngram_losses_equal_the_estimate_written_out():
    draw = torch.Generator().manual_seed(0)
    train, held_out = (torch.randint(97, 102, (size,), generator=draw, dtype=torch.uint8).numpy() for size in (300, 60))
    held_out[10] = 200  # a byte that was never seen
    found = ngram_losses(train, held_out)
    for n in (1, 2, 3):
        assert found[str(n)] == pytest.approx(direct(bytes(train), bytes(held_out), n), abs=6e-5)


def test_ngram_losses_of_very_short_texts_are_numbers():
    train = torch.tensor([97], dtype=torch.uint8).numpy()
    assert all(0 < loss < 6 for loss in ngram_losses(train, train).values())
