"""Folders that open: lazily, from shards or one file, under every prefix, tied or not."""

import threading

import pytest
import torch
from folders import llama_state, refusal, run, write, write_shards
from reference import build, config_json, prompt
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

from model import load
from model.checkpoints import open_folder
from model.errors import BlockscopeError
from model.tokens import byte_tokenizer_json


@pytest.fixture(scope="module")
def logits(tmp_path_factory):
    """Of the same weights in one file."""
    return run(write(tmp_path_factory.mktemp("whole"), llama_state()))


@pytest.fixture
def state():
    return dict(llama_state())


def test_a_folder_opens_with_names_shapes_and_dtypes_but_no_weights_read(tmp_path, state):
    write(tmp_path, {name: tensor.bfloat16() for name, tensor in state.items()})
    checkpoint = open_folder(tmp_path)
    tensors = checkpoint.tensors
    assert checkpoint.name == tmp_path.name and checkpoint.path == tmp_path and checkpoint.tokenizer is None
    assert any("no tokenizer.json" in sentence for sentence in checkpoint.report)
    assert tensors.names()[0] == "embed.weight" and len(tensors) == len(state) and "blocks.2.ln1.weight" in tensors
    assert tensors.shape("blocks.1.attn.k_proj.weight") == (30, 42)
    assert tensors.dtype("embed.weight") == torch.bfloat16
    assert tensors._open == {}  # no file was mapped yet
    read = tensors.read("blocks.1.mlp.down_proj.weight")
    assert torch.equal(read, state["model.layers.1.mlp.down_proj.weight"].bfloat16())
    with pytest.raises(BlockscopeError, match=r"blocks\.9"):
        tensors.read("blocks.9.ln1.weight")


def test_reading_is_lazy_and_never_writes_to_the_file(tmp_path, state):
    write(tmp_path, state)
    before = (tmp_path / "model.safetensors").read_bytes()
    tensors = open_folder(tmp_path).tensors
    tensors.read("ln_final.weight").zero_()
    assert (tmp_path / "model.safetensors").read_bytes() == before


def test_a_file_that_changed_after_opening_is_not_read(tmp_path, state):
    write(tmp_path, state)
    tensors = open_folder(tmp_path).tensors
    with (tmp_path / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(BlockscopeError, match="changed on disk"):
        tensors.read("ln_final.weight")


def test_threads_may_read_at_once(tmp_path, state):
    write(tmp_path, state)
    tensors, wrong = open_folder(tmp_path).tensors, []

    def check():
        for _ in range(20):
            if not torch.equal(tensors.read("ln_final.weight"), state["model.norm.weight"]):
                wrong.append(1)

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_shards_equal_one_file(tmp_path, state, logits):
    write_shards(tmp_path, state)
    assert torch.equal(run(tmp_path), logits)


def test_shards_may_be_links_as_in_a_download_cache(tmp_path, state, logits):
    real, cache = tmp_path / "blobs", tmp_path / "snapshot"
    real.mkdir()
    cache.mkdir()
    write_shards(real, state)
    for file in real.iterdir():
        (cache / file.name).symlink_to(file)
    assert torch.equal(run(cache), logits)


@pytest.mark.parametrize(
    ("prefix", "head"),
    [
        ("model.", "lm_head.weight"),
        ("", "lm_head.weight"),
        ("language_model.model.", "language_model.lm_head.weight"),
        ("model.language_model.", "lm_head.weight"),
    ],
)
def test_every_prefix_gives_the_same_model(prefix, head, tmp_path, state, logits):
    renamed = {
        head if name == "lm_head.weight" else prefix + name.removeprefix("model."): tensor for name, tensor in state.items()
    }
    write(tmp_path, renamed | {"vision_tower.patch.weight": torch.ones(3)})
    assert torch.equal(run(tmp_path), logits)
    assert any("vision_tower.patch.weight" in sentence for sentence in open_folder(tmp_path).report)


def test_two_prefixes_at_once_are_refused(tmp_path, state):
    write(tmp_path, state | {f"language_model.{name}": tensor.clone() for name, tensor in state.items()})
    sentence = refusal(tmp_path)
    assert "more than one language model" in sentence and "language_model.model." in sentence


def test_rotary_tables_are_ignored_with_a_note(tmp_path, state, logits):
    extra = {f"model.layers.{i}.self_attn.rotary_emb.inv_freq": torch.ones(5) for i in range(3)}
    write(tmp_path, state | extra)
    assert torch.equal(run(tmp_path), logits)
    assert any("rotary_emb.inv_freq" in sentence for sentence in open_folder(tmp_path).report)


def test_the_index_decides_and_other_weight_files_are_noted(tmp_path, state, logits):
    write_shards(tmp_path, state)
    save_file({"layers.0.attention.wq.weight": torch.ones(2)}, tmp_path / "consolidated.safetensors")
    save_file({name: tensor * 2 for name, tensor in state.items()}, tmp_path / "model.safetensors")
    assert torch.equal(run(tmp_path), logits)
    note = next(sentence for sentence in open_folder(tmp_path).report if "not part of the model" in sentence)
    assert "consolidated.safetensors" in note and "model.safetensors" in note


def test_tied_models_and_a_head_in_the_file(tmp_path, state):
    embedding = state["model.embed_tokens.weight"]
    for name, head, word in (("a", None, None), ("b", embedding.clone(), "copy"), ("c", embedding + 1, "differs")):
        folder = tmp_path / name
        folder.mkdir()
        body = {key: tensor for key, tensor in state.items() if key != "lm_head.weight"}
        write(folder, body if head is None else body | {"lm_head.weight": head}, tie_word_embeddings=True)
        checkpoint = open_folder(folder)
        assert torch.equal(checkpoint.tensors.read("unembed.weight"), embedding + 1 if name == "c" else embedding)
        assert checkpoint.config.tied == (name != "c")
        said = [sentence for sentence in checkpoint.report if "lm_head.weight" in sentence]
        assert len(said) == (word is not None) and all(word in sentence for sentence in said)
    assert torch.equal(run(tmp_path / "a"), run(tmp_path / "b"))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "c", attn_implementation="eager").eval()
    with torch.no_grad():
        torch.testing.assert_close(run(tmp_path / "c"), theirs(torch.tensor([prompt()])).logits, rtol=1e-5, atol=1e-4)


def test_nan_weights_open_because_they_are_to_be_seen(tmp_path, state):
    spoilt = dict(state)
    spoilt["model.norm.weight"] = torch.full((42,), torch.nan)
    assert open_folder(write(tmp_path, spoilt)).tensors.read("ln_final.weight").isnan().all()


def test_tokenizer_and_rows_are_compared(tmp_path, state):
    write(tmp_path, state)
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer_json())
    checkpoint = open_folder(tmp_path)
    assert checkpoint.tokenizer.encode("A") == [65]
    assert any("256 tokens but the model 131" in sentence for sentence in checkpoint.report)


def test_tokens_that_the_model_has_no_row_for_are_refused_before_a_look_up(tmp_path, state):
    write(tmp_path, state)
    assert load(tmp_path, device="cpu").encode("15 7, 2") == [15, 7, 2]  # without a tokenizer, numbers are typed
    (tmp_path / "tokenizer.json").write_text(byte_tokenizer_json())
    lm = load(tmp_path, device="cpu")
    ids = lm.encode("\u00e9")
    assert ids == [195, 169]
    with pytest.raises(BlockscopeError, match="195"):
        lm.forward(ids)


def test_shards_as_transformers_writes_them(tmp_path):
    theirs = build(config_json("qwen3"))
    theirs.save_pretrained(tmp_path, max_shard_size="40KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    with torch.no_grad():
        torch.testing.assert_close(run(tmp_path), theirs(torch.tensor([prompt()])).logits, rtol=1e-5, atol=1e-4)
