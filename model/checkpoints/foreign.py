"""Files that are not read here: what each is, by how it begins or by its ending, and what to make of it instead."""

from pathlib import Path

TORCH = (
    "can run code when it is opened; convert it first: safetensors.torch.save_file(torch.load(FILE, weights_only=True), "
    '"model.safetensors")'
)
UNPACK = "unpack it and open the folder inside"
EXPORT = "export the model as a Hugging Face folder with safetensors, or download its original"
BEFORE_GGUF = "a file of llama.cpp from before GGUF; convert it with llama.cpp's convert_llama_ggml_to_gguf.py"
BEGINNINGS = (
    *((magic, f"is {BEFORE_GGUF}") for magic in (b"lmgg", b"fmgg", b"tjgg", b"algg")),
    *((b"\x80" + bytes([protocol]), f"is a pickle, which {TORCH}") for protocol in (2, 3, 4, 5)),
    (b"GGUF", "is a GGUF file, not safetensors; give it the ending .gguf, or download the safetensors version of the model"),
    (b"\x89HDF", f"is an HDF5 file of Keras or TensorFlow; {EXPORT}"),
    (b"\x93NUMPY", f"is a NumPy array; {EXPORT}"),
    (b"\x1f\x8b", f"is packed with gzip; {UNPACK}"),
    (b"7z\xbc\xaf", f"is a 7z archive; {UNPACK}"),
    (b"\xfd7zXZ", f"is packed with xz; {UNPACK}"),
    (b"\x28\xb5\x2f\xfd", f"is packed with zstd; {UNPACK}"),
    (b"<", "is a web page, not weights; download the file again"),
    (b"{", "is a JSON text, not weights; download the file again"),
)
OF_TORCH = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
ENDINGS = {
    ".onnx": f"is an ONNX graph, which holds operators and no blocks; {EXPORT}",
    **dict.fromkeys((".h5", ".hdf5", ".keras"), f"is a model of Keras or TensorFlow; {EXPORT}"),
    **dict.fromkeys((".pb", ".tflite"), f"is a graph of TensorFlow; {EXPORT}"),
    ".msgpack": f"holds weights of Flax; {EXPORT}",
    **dict.fromkeys((".mlx", ".npz", ".npy"), f"holds weights of MLX or NumPy; {EXPORT}"),
    **dict.fromkeys((".mlmodel", ".mlpackage"), f"is a model of Core ML; {EXPORT}"),
    **dict.fromkeys((".engine", ".plan"), f"is an engine of TensorRT, compiled for one GPU; {EXPORT}"),
    **dict.fromkeys(OF_TORCH, f"is a file of PyTorch by its name, which {TORCH}"),
    ".zip": f"is a zip archive; {UNPACK}",
    **dict.fromkeys((".tar", ".gz", ".tgz", ".xz", ".7z", ".rar", ".zst"), f"is an archive; {UNPACK}"),
    ".ggml": f"is {BEFORE_GGUF}",
}


def foreign(path: Path, start: bytes) -> str | None:
    """What a file is that begins with these bytes (300 or so); None for one that may be safetensors."""
    if start[8:9] == b"{":  # a header's own brace: its length may happen to begin like another file
        return None
    if start.startswith(b"PK\x03\x04"):
        another = None if b"data.pkl" in start or path.suffix.lower() in OF_TORCH else by_name(path)
        return another or f"is a PyTorch pickle archive, which {TORCH}"
    if start[257:262] == b"ustar":
        return f"is a tar archive; {UNPACK}"
    return next((what for magic, what in BEGINNINGS if start.startswith(magic)), None) or by_name(path)


def by_name(path: Path) -> str | None:
    """What a file is by its ending; None for one that may be weights."""
    return ENDINGS.get(path.suffix.lower())
