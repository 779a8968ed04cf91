"""Files of other programs: each is called what it is, with what to make of it; nothing in a config passes unread by its type."""

import json
import zipfile
from io import BytesIO

import pytest
import torch
from folders import llama_state, write
from gguf_files import write_gguf
from reference import build, config_json

from model.checkpoints import open_checkpoint
from model.checkpoints.families import understand
from model.count.__main__ import main as count
from model.errors import BlockscopeError, printable_lines


def zipped(name: str) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, b"x")
    return out.getvalue()


def torch_file() -> bytes:
    out = BytesIO()
    torch.save({"w": torch.ones(2)}, out)
    return out.getvalue()


FILES = {  # (name of the file, its content) -> words of the refusal
    "an ONNX graph": ("m.onnx", b"\x08\x07\x12\x07pytorch" + bytes(90), ["is an ONNX graph", "export the model"]),
    "a checkpoint of PyTorch": ("m.ckpt", torch_file(), ["is a PyTorch pickle archive", "weights_only=True"]),
    "an old one": ("m.bin", b"\x80\x02" + bytes(90), ["is a pickle", "torch.load(FILE, weights_only=True)"]),
    "a .pt of neither kind": ("m.pt", bytes(90), ["file of PyTorch by its name", "convert it first"]),
    "arrays of NumPy": ("m.npz", zipped("w.npy"), ["MLX or NumPy", "export the model"]),
    "a file from before GGUF": ("m.bin", b"lmgg" + bytes(90), ["from before GGUF", "convert it"]),
    "a zip": ("m.zip", zipped("model/config.json"), ["is a zip archive", "unpack it"]),
    "a tar.gz": ("m.tar.gz", b"\x1f\x8b\x08" + bytes(90), ["is packed with gzip", "unpack it"]),
    "a tar": ("m.tar", bytes(257) + b"ustar\x0000" + bytes(90), ["is a tar archive", "unpack it"]),
    "MLX": ("weights.mlx", bytes(90), ["MLX or NumPy", "export the model"]),
    "Keras": ("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(90), ["HDF5 file of Keras or TensorFlow", "export the model"]),
    "Flax": ("m.msgpack", b"\x81" + bytes(90), ["Flax", "export the model"]),
}


@pytest.mark.parametrize("kind", FILES)
def test_a_file_of_another_program(kind, tmp_path):
    name, content, words = FILES[kind]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BlockscopeError) as found:
        open_checkpoint(tmp_path / name)
    assert str(found.value).startswith(f"{tmp_path.name}/{name} ") and all(word in str(found.value) for word in words)
    (tmp_path / "config.json").write_text(json.dumps(config_json("llama")))
    with pytest.raises(BlockscopeError) as found:  # and its folder says the same of it
        open_checkpoint(tmp_path)
    assert name in str(found.value) and any(word in str(found.value) for word in ("convert", "export", "unpack"))


def test_the_ending_does_not_hide_a_good_file(tmp_path):
    write(tmp_path, dict(llama_state()))
    (tmp_path / "model.safetensors").rename(tmp_path / "step.bin")
    assert open_checkpoint(tmp_path / "step.bin").config.n_layers == 3


@pytest.mark.parametrize("name", ["text_config", "vision_config", "quantization_config", "rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("value", [[], "", 0, False, "x", [1]])
def test_what_should_be_an_object_is_one(name, value):
    with pytest.raises(BlockscopeError, match=rf"^config.json: {name} is .*; expected"):
        understand(config_json("llama") | {name: value})


def test_mlx_weights_are_named():
    with pytest.raises(BlockscopeError, match=r"as MLX does.*--dequantize"):
        understand(config_json("llama") | {"quantization_config": {"group_size": 64, "bits": 4}})


@pytest.mark.parametrize(
    ("version", "cure"),
    [(1, "convert_hf_to_gguf.py"), (4, "newer than Blockscope"), (3 << 24, "download the little-endian one")],
)
def test_the_version_of_a_gguf_file(version, cure, tmp_path):
    path = write_gguf(tmp_path / "m.gguf", build(config_json("llama")))
    content = bytearray(path.read_bytes())
    content[4:8] = version.to_bytes(4, "little")
    path.write_bytes(content)
    with pytest.raises(BlockscopeError, match=cure) as found:
        open_checkpoint(path)
    assert str(found.value).startswith(f"{tmp_path.name}/m.gguf is ")


def test_a_command_prints_no_escapes_of_a_name(tmp_path, capfd):
    folder = tmp_path / "m\x1b[31mred"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config_json("llama")))
    assert count([str(folder / "config.json")]) == 0
    said = "".join(capfd.readouterr())
    assert "m\\x1b[31mred" in said and "\x1b[31m" not in said
    assert printable_lines("a\x1b[31m,1\r\nb,2\r\n") == "a\\x1b[31m,1\r\nb,2\r\n"
