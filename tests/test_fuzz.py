"""Valid files with a few bytes changed: they open as the same model, or are refused in one sentence; nothing else happens.

What may differ after opening is what the changed bytes are the value of: a number inside a tensor, or a setting that the
report says was used.
"""

import json
import pickle
import shutil
from functools import cache

import pytest
import torch
from gguf_files import write_gguf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from meta_files import PARAMS, llama, meta_state
from reference import build, config_json
from safetensors.torch import save

from model.checkpoints import open_checkpoint
from model.checkpoints.families import understand
from model.checkpoints.gguf.header import read_header
from model.errors import BlockscopeError
from model.tokens import byte_tokenizer_json

FUZZ = settings(
    max_examples=120, deadline=None, database=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip
SMALL = {"num_hidden_layers": 1, "vocab_size": 20}


def changed(data: bytes, edits: list[tuple[int, int]], cut: int | None, upto: int) -> bytes:
    """Bytes replaced at places counted modulo the first `upto`, and perhaps the end cut off."""
    out = bytearray(data)
    for place, byte in edits:
        out[place % upto] = byte
    return bytes(out if cut is None else out[: cut % len(out)])


EDITS = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), min_size=1, max_size=4)
CUT = st.one_of(st.none(), st.none(), st.none(), st.integers(0, 1 << 30))


def opened(path):
    """The checkpoint with every tensor read; None where it was refused in one sentence."""
    try:
        checkpoint = open_checkpoint(path)
        return checkpoint, {name: checkpoint.tensors.read(name) for name in checkpoint.tensors}
    except BlockscopeError as error:
        sentence = str(error)
        assert sentence and "\n" not in sentence and len(sentence) < 900 and "Traceback" not in sentence
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@cache
def small():
    return build(config_json("llama") | SMALL)


@cache
def safetensors_bytes() -> bytes:
    return save({name: tensor.clone() for name, tensor in small().state_dict().items()}, {"format": "pt"})


@FUZZ
@given(edits=EDITS, cut=CUT)
@example(edits=[(0, 255)], cut=None)
def test_the_header_of_a_safetensors_file(edits, cut, folder):
    whole = safetensors_bytes()
    (folder / "config.json").write_text(json.dumps(config_json("llama") | SMALL))
    (folder / "model.safetensors").write_bytes(changed(whole, edits, cut, 8 + int.from_bytes(whole[:8], "little")))
    if (found := opened(folder)) is not None:
        state = small().state_dict()
        assert torch.equal(found[1]["embed.weight"], state["model.embed_tokens.weight"])
        assert torch.equal(found[1]["blocks.0.mlp.down_proj.weight"], state["model.layers.0.mlp.down_proj.weight"])
        assert torch.equal(found[1]["ln_final.weight"], state["model.norm.weight"])


@cache
def gguf_bytes(folder) -> tuple[bytes, int]:
    """(the file, where its tensors begin), with a tokenizer in it."""

    def tokens(writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(["a", "b", "ab", "<s>"])
        writer.add_token_types([1, 1, 1, 3])
        writer.add_token_merges(["a b"])
        writer.add_bos_token_id(3)

    path = write_gguf(folder / "whole.gguf", small(), more=tokens)
    return path.read_bytes(), min(entry.begin for entry in read_header(path).tensors.values())


@FUZZ
@given(edits=EDITS, cut=CUT)
def test_the_header_of_a_gguf_file(edits, cut, folder):
    whole, tensors = gguf_bytes(folder)
    path = folder / "m.gguf"
    path.write_bytes(changed(whole, edits, cut, tensors))
    if (found := opened(path)) is not None:
        checkpoint, read = found
        assert all(tuple(value.shape) == checkpoint.tensors.shape(name) for name, value in read.items())
        original = open_checkpoint(folder / "whole.gguf")
        if checkpoint.config != original.config:  # then the setting that was changed is told as used
            told = {f.name: f.value for f in checkpoint.settings if f.status != "unused"}
            assert told != {f.name: f.value for f in original.settings if f.status != "unused"}
        else:
            assert torch.equal(read["embed.weight"], original.tensors.read("embed.weight"))
            assert torch.equal(read["blocks.0.attn.q_proj.weight"], original.tensors.read("blocks.0.attn.q_proj.weight"))


@FUZZ
@given(edits=EDITS, cut=CUT)
def test_a_torch_archive(edits, cut, folder):
    home = folder / "meta"
    home.mkdir(exist_ok=True)
    model = small_meta()
    (home / "params.json").write_text(json.dumps(PARAMS | {"n_layers": 1}))
    file = home / "consolidated.00.pth"
    torch.save(meta_state(model), file)
    whole = file.read_bytes()
    start = whole.find(b"data.pkl")  # the list of tensors, then, at the other end, the directory of the archive
    places = [(start + p % 3000 if p % 3 else len(whole) - 1 - p % 3000, byte) for p, byte in edits]
    file.write_bytes(changed(whole, places, cut, len(whole)))
    if (found := opened(home)) is not None:
        assert all(tuple(value.shape) == found[0].tensors.shape(name) for name, value in found[1].items())


@cache
def small_meta():
    return llama(num_hidden_layers=1)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from([0, -1, 1, 2, 7, 1e-5, "silu", "llama", "yarn", 1 << 40]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["rope_type", "factor", "a"]), inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
CONFIGS = ["llama", "qwen3-mixed", "llama-yarn", "mistral"]


@settings(FUZZ, max_examples=300)
@given(case=st.sampled_from(CONFIGS), field=st.integers(0, 40), value=JSON, drop=st.booleans(), new=st.text(max_size=12))
def test_a_field_of_a_config(case, field, value, drop, new):
    values = json.loads(json.dumps(config_json(case)))
    before = understand(dict(values))
    name = [*sorted(values), new][field % (len(values) + 1)]
    if drop:
        values.pop(name, None)
    else:
        values[name] = value
    try:
        after = understand(values)
    except BlockscopeError as error:
        assert "\n" not in str(error) and len(str(error)) < 900
        return
    if after.config != before.config:  # then the report says so of this very field
        status = {f.name: f.status for f in after.settings}
        assert status.get(name) in ("used", "defaulted") or drop


@FUZZ
@given(edits=EDITS, cut=CUT)
def test_the_text_of_a_config_and_of_a_tokenizer(edits, cut, folder):
    home, config, tokenizer = (
        folder / "texts",
        json.dumps(config_json("llama") | SMALL).encode(),
        byte_tokenizer_json().encode(),
    )
    if not home.exists():
        home.mkdir()
        (home / "model.safetensors").write_bytes(safetensors_bytes())
    for first, second in (
        (changed(config, edits, cut, len(config)), None),
        (config, changed(tokenizer, edits, cut, len(tokenizer))),
    ):
        (home / "config.json").write_bytes(first)
        (home / "tokenizer.json").unlink(missing_ok=True)
        if second is not None:
            (home / "tokenizer.json").write_bytes(second)
        opened(home)


def test_a_mutation_that_would_run_code_does_not(folder):
    """The restricted unpickler, given an archive whose list of tensors asks for a function."""
    home = folder / "evil"
    home.mkdir()
    (home / "params.json").write_text(json.dumps(PARAMS | {"n_layers": 1}))
    file, marker = home / "consolidated.00.pth", folder / "marker"

    class Evil:
        def __reduce__(self):
            return shutil.copy, (str(home / "params.json"), str(marker))

    torch.save({"a": Evil()}, file, pickle_module=pickle)
    assert opened(home) is None and not marker.exists()
