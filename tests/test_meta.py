"""Meta's original folders: one file or cut by rank, pickled or safetensors, all the same model as its Hugging Face folder."""

import base64
import json
import pickle

import pytest
import torch
from folders import run, write
from meta_files import HEADS, PARAMS, llama, meta_state, write_meta
from reference import prompt
from safetensors.torch import save_file

from model.checkpoints import inspect, open_checkpoint, open_folder
from model.checkpoints.families import config_of
from model.checkpoints.fields import Fields
from model.checkpoints.meta.params import values_of
from model.errors import BlockscopeError
from model.positions import Llama3
from model.tokens import LETTER_OF

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8192}


@pytest.fixture(scope="module")
def model():
    return llama(rope_theta=500_000.0)


@pytest.fixture(scope="module")
def logits(model):
    with torch.no_grad():
        return model(torch.tensor([prompt()])).logits


@pytest.mark.parametrize(
    ("ranks", "axis", "form"), [(1, 0, "pth"), (2, 0, "pth"), (2, 1, "pth"), (2, 0, "safetensors"), (1, 0, "safetensors")]
)
def test_logits_equal_the_unsplit_model(ranks, axis, form, tmp_path, model, logits):
    folder = write_meta(tmp_path / "m", model, ranks, axis, form)
    torch.testing.assert_close(run(folder), logits, rtol=1e-5, atol=1e-4)
    checkpoint = open_checkpoint(folder)
    assert checkpoint.format == "meta" and checkpoint.config.blocks[0].attn.rope.pairing == "interleaved"
    embedding = model.state_dict()["model.embed_tokens.weight"]
    assert torch.equal(checkpoint.tensors.read("embed.weight"), embedding)
    assert torch.equal(
        checkpoint.tensors.read("blocks.1.mlp.down_proj.weight"), model.state_dict()["model.layers.1.mlp.down_proj.weight"]
    )


def test_rows_and_columns_are_joined_along_their_own_axes_only(tmp_path, model, logits, monkeypatch):
    from model.checkpoints.meta import reader

    folder = write_meta(tmp_path / "m", model, 2, 0)
    monkeypatch.setattr(reader, "ROWS", reader.re.compile(r"(attention\.w[vqk]|feed_forward\.w1|output)\.weight$"))
    with pytest.raises(BlockscopeError, match=r"feed_forward\.w3"):
        run(folder)


def test_mistrals_own_folder(tmp_path):
    model = llama(head_dim=10, intermediate_size=66)
    folder = tmp_path / "mistral"
    folder.mkdir()
    params = {k: v for k, v in PARAMS.items() if k != "multiple_of"} | {
        "head_dim": 10,
        "hidden_dim": 66,
        "sliding_window": None,
    }
    (folder / "params.json").write_text(json.dumps(params | {"rope_theta": 500_000.0}))
    save_file(meta_state(model), folder / "consolidated.safetensors")
    with torch.no_grad():
        torch.testing.assert_close(run(folder), model(torch.tensor([prompt()])).logits, rtol=1e-5, atol=1e-4)


def test_scaled_rope(tmp_path):
    model = llama(rope_theta=500_000.0, rope_scaling=LLAMA3, max_position_embeddings=131_072)
    folder = write_meta(tmp_path / "m", model, use_scaled_rope=True)
    config = open_checkpoint(folder).config
    assert config.blocks[0].attn.rope.scaling == Llama3(factor=8.0, low=1.0, high=4.0, original=8192)
    assert config.context == 131_072
    with torch.no_grad():
        torch.testing.assert_close(run(folder), model(torch.tensor([prompt()])).logits, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("dim", "multiple", "multiplier", "width"),
    [
        (4096, 256, None, 11008),
        (4096, 1024, 1.3, 14336),
        (2048, 256, 1.5, 8192),
        (8192, 4096, 1.3, 28672),
        (16384, 4096, 1.2, 53248),
    ],
)
def test_width_of_the_mlp(dim, multiple, multiplier, width):
    params = {
        "dim": dim,
        "n_layers": 1,
        "n_heads": 32,
        "norm_eps": 1e-5,
        "multiple_of": multiple,
        "ffn_dim_multiplier": multiplier,
    }
    values, _ = values_of(Fields(params, "params.json"), 32000, 1)
    assert values["intermediate_size"] == width and config_of(values)[0].blocks[0].mlp.d_mlp == width


def test_fields_that_the_first_llamas_left_out(tmp_path, logits, model):
    full = llama(num_key_value_heads=HEADS, rope_theta=10_000.0)
    folder = write_meta(tmp_path / "m", full, n_kv_heads=..., rope_theta=..., vocab_size=-1, multiple_of=...)
    with torch.no_grad():
        torch.testing.assert_close(run(folder), full(torch.tensor([prompt()])).logits, rtol=1e-5, atol=1e-4)
    fields = {field.name: field for field in inspect(folder).fields}
    assert fields["vocab_size"].value == 132 and "tok_embeddings" in fields["vocab_size"].origin
    assert fields["rope_theta"].status == "defaulted" and fields["intermediate_size"].value == 128
    assert inspect(folder).parameters_found == inspect(folder).parameters_expected


def test_what_does_not_fit_is_refused(tmp_path, model):
    folder = write_meta(tmp_path / "a", model, 2, 0)
    (folder / "consolidated.00.pth").unlink()
    with pytest.raises(BlockscopeError, match=r"lacks consolidated\.00\.pth of the 2 parts"):
        open_checkpoint(folder)
    folder = write_meta(tmp_path / "b", model, 2, 0)
    (folder / "consolidated.01.pth").unlink()
    with pytest.raises(BlockscopeError, match="asks for"):
        open_checkpoint(folder)
    with pytest.raises(BlockscopeError, match="quantization_args"):
        open_checkpoint(write_meta(tmp_path / "c", model, quantization_args={"scheme": "int4", "group_size": 32}))
    with pytest.raises(BlockscopeError, match="feed_forward"):
        open_checkpoint(write_meta(tmp_path / "d", model, multiple_of=100))
    with pytest.raises(BlockscopeError, match=r"f/params\.json: num_hidden_layers \(n_layers\) is 1000000000; expected"):
        open_checkpoint(write_meta(tmp_path / "f", model, n_layers=10**9))
    with pytest.raises(BlockscopeError, match=r"hidden_size \(dim\) is 'x'; expected"):
        open_checkpoint(write_meta(tmp_path / "g", model, dim="x", multiple_of=32))
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "params.json").write_text(json.dumps(PARAMS))
    with pytest.raises(BlockscopeError, match="no weights"):
        open_checkpoint(tmp_path / "e")


class Evil:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return open, (self.marker, "w")


def test_code_in_a_pickle_never_runs(tmp_path, model):
    folder = write_meta(tmp_path / "m", model)
    file, marker = folder / "consolidated.00.pth", tmp_path / "marker"
    state = meta_state(model)
    for spoilt in (state | {"x": Evil(str(marker))}, Evil(str(marker)), [1], {"a": 1}, {1: torch.ones(2)}, {}):
        torch.save(spoilt, file)
        with pytest.raises(BlockscopeError, match=r"consolidated\.00\.pth"):
            open_checkpoint(folder)
    file.write_bytes(pickle.dumps(Evil(str(marker))))
    with pytest.raises(BlockscopeError, match="not a torch archive"):
        open_checkpoint(folder)
    torch.save(state, file)
    whole = file.read_bytes()
    for cut in (1000, len(whole) // 2, len(whole) - 10):
        file.write_bytes(whole[:cut])
        with pytest.raises(BlockscopeError, match="cut short or damaged"):
            open_checkpoint(folder)
    torch.save(state | {"norm.weight": state["norm.weight"].to(torch.int8)}, file)
    with pytest.raises(BlockscopeError, match="int8"):
        open_checkpoint(folder)
    assert not marker.exists()


def test_llama3s_list_of_byte_sequences(tmp_path, model):
    """A vocabulary of bytes and a few merges; the numbers follow from the ranks by hand."""
    folder = write_meta(tmp_path / "m", model)
    tokens = [bytes([b]) for b in range(256)] + [b" t", b"he", b" the", b"\xf0\x9f", b"12"]
    lines = b"".join(base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens))
    (folder / "tokenizer.model").write_bytes(lines)
    tokenizer = open_checkpoint(folder).tokenizer
    bos = len(tokens)
    assert tokenizer.encode("a the 12") == [bos, 97, 258, 32, 260]
    assert tokenizer.encode("\U0001f642") == [bos, 259, 0x99, 0x82] and tokenizer.decode([259, 0x99, 0x82]) == "\U0001f642"
    assert tokenizer.number("<|eot_id|>") == bos + 9 and tokenizer.number("<|reserved_special_token_0|>") == bos + 2
    assert tokenizer.size == bos + 256 and LETTER_OF[0x20] == "\u0120"
    (folder / "tokenizer.model").write_bytes(lines + b"!!!! 7\n")
    assert any("line 262" in note and "token numbers" in note for note in open_checkpoint(folder).report)


def test_a_sentencepiece_file_also_beside_a_hugging_face_config(tmp_path, model):
    import sentencepiece

    corpus = ["the cat sat on the mat and the dog ran to the cat"] * 40
    with open(tmp_path / "t.model", "wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=out, vocab_size=300, model_type="bpe", byte_fallback=True,
            hard_vocab_limit=False, minloglevel=2, normalization_rule_name="identity", remove_extra_whitespaces=False,
        )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "t.model"))
    folder = write_meta(tmp_path / "m", model)
    (folder / "tokenizer.model").write_bytes((tmp_path / "t.model").read_bytes())
    hf = tmp_path / "hf"
    hf.mkdir()
    write(
        hf,
        {n: t.clone() for n, t in llama().state_dict().items()},
        vocab_size=132,
        hidden_size=48,
        head_dim=8,
        num_key_value_heads=2,
        intermediate_size=128,
    )
    (hf / "tokenizer.model").write_bytes((tmp_path / "t.model").read_bytes())
    for tokenizer in (open_checkpoint(folder).tokenizer, open_folder(hf).tokenizer):
        for text in ("the cat", "the mad dog", "caf\u00e9 \U0001f642", "on a  mat"):
            assert tokenizer.encode(text) == [theirs.bos_id(), *theirs.encode(text)], text
            assert tokenizer.decode(tokenizer.encode(text), special=False) == text
    with open(hf / "tokenizer.model", "wb") as out:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus),
            model_writer=out,
            vocab_size=30,
            model_type="unigram",
            hard_vocab_limit=False,
            minloglevel=2,
        )
    assert any("not a BPE vocabulary" in note for note in open_folder(hf).report)
    (hf / "tokenizer.model").write_bytes(b"\x0a\xff\xff")
    assert any("not a readable tokenizer" in note for note in open_folder(hf).report)


def test_a_folder_beside_a_config_is_hugging_faces(tmp_path, model, logits):
    folder = write_meta(tmp_path / "m", model)
    model.save_pretrained(folder)
    assert open_checkpoint(folder).format == "huggingface"
    assert any("consolidated" not in note for note in open_checkpoint(folder).report)
    torch.testing.assert_close(run(folder), logits, rtol=1e-5, atol=1e-4)
