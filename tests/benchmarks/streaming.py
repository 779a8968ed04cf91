"""A 16 GB checkpoint opened, walked and read on a machine that could not hold it, each figure from a fresh process.

python tests/benchmarks/streaming.py [--folder DIR] [--only open,walk,read,seventy,transformers,write,clean]

DIR (by default below the system's temporary folder) takes 17 GB; `clean` deletes it. Peaks are VmHWM of the whole process,
Python and torch included, pages of mapped files included. "warm": the file lies in the system's cache, as after a copy.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import shapes  # noqa: E402

TOKENS = 64


def peak() -> float:
    """Largest resident memory of this process so far, MB."""
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def views(lm, layers, tokens):
    from model.view import Request

    asked = ("hook_resid_pre", "attn.hook_pattern", "mlp.hook_act", "hook_resid_post")
    return lm.views(tokens, [Request(f"blocks.{i}.{tap}") for i in layers for tap in asked])


def opening(folder: str) -> None:
    """From load() to the views of layer 0."""
    from model import load

    began = time.perf_counter()
    lm = load(folder, device="cpu")
    loaded = time.perf_counter()
    views(lm, [0], list(range(1, 1 + TOKENS)))
    print(f"load() {loaded - began:.2f} s, to layer 0's views {time.perf_counter() - began:.2f} s, peak {peak():.0f} MB")


def walking(folder: str, memory: str = "500MB") -> None:
    """All layers, fp32, then layer 3 once more."""
    from model import load
    from model.view import Request

    lm, tokens = load(folder, device="cpu", memory=memory), list(range(1, 1 + TOKENS))
    began = time.perf_counter()
    views(lm, range(lm.config.n_layers), tokens)
    walked = time.perf_counter()
    found = lm.next_tokens(tokens, 1)
    end = time.perf_counter()
    lm.views(tokens, [Request("blocks.3.hook_mlp_out")])
    back = time.perf_counter() - end
    print(
        f"32 layers, {TOKENS} tokens, fp32: {walked - began:.1f} s, next token {end - walked:.1f} s more ({found[0][0]}), "
        f"back to layer 3 {back:.2f} s, peak {peak():.0f} MB"
    )


def reading(folder: str, dtype: str) -> None:
    """One token through all layers: compute is next to nothing, so this is the rate of reading."""
    from model import load
    from model.counting import count_config
    from model.view import Request

    lm = load(folder, device="cpu", dtype=dtype, memory="500MB")
    size = sum(2 * block.parameters for block in count_config(lm.config).by_block)
    began = time.perf_counter()
    lm.views([1], [Request(f"blocks.{lm.config.n_layers - 1}.hook_resid_post")])
    seconds = time.perf_counter() - began
    print(f"{dtype}: {size / seconds / 1e9:.2f} GB/s over {size / 1e9:.1f} GB ({seconds:.2f} s), peak {peak():.0f} MB")


def cat(folder: str) -> float:
    """GB/s of cat to /dev/null."""
    files = sorted(map(str, Path(folder).glob("*.safetensors")))
    began = time.perf_counter()
    with open(os.devnull, "wb") as nothing:
        subprocess.run(["cat", *files], stdout=nothing, check=True)
    return sum(map(os.path.getsize, files)) / (time.perf_counter() - began) / 1e9


def forget(folder: str) -> None:
    """Drop the files from the system's cache, so that the next read comes from the disk."""
    for file in Path(folder).glob("*.safetensors"):
        with file.open("rb") as handle:
            os.posix_fadvise(handle.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def transformers(folder: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from model.memory import free

    need = sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))
    if free(torch.device("cpu")) < 1.1 * need:
        print(f"transformers: not run, it needs {need / 1e9:.0f} GB and {free(torch.device('cpu')) / 1e9:.0f} GB are free")
        return
    Path("/proc/self/oom_score_adj").write_text("1000")  # if it was a close thing, nobody else pays
    began = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    loaded = time.perf_counter() - began
    with torch.no_grad():
        model(torch.arange(1, 1 + TOKENS)[None])
    print(f"transformers, bf16: load {loaded:.1f} s, with one pass {time.perf_counter() - began:.1f} s, peak {peak():.0f} MB")


def seventy(folder: str) -> None:
    """One block of the 70B shape."""
    from model import load
    from model.view import Request

    began = time.perf_counter()
    lm = load(folder, device="cpu")
    (view,) = lm.views(list(range(1, 1 + TOKENS)), [Request("blocks.0.hook_resid_post", "stats")])
    print(f"70B, layer 0: {time.perf_counter() - began:.2f} s, rms {view.stats.rms:.3f}, peak {peak():.0f} MB")


WORK = {"open": opening, "walk": walking, "transformers": transformers, "seventy": seventy, "read": reading}


def child(name: str, folder: Path, *more: str) -> None:
    out = subprocess.run([sys.executable, __file__, "--child", name, str(folder), *more], capture_output=True, text=True)
    print(out.stdout.strip() or f"{name} failed: {out.stderr.strip().splitlines()[-1:]}", flush=True)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        WORK[sys.argv[2]](*sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "blockscope-shapes")
    parser.add_argument("--only", default="write,open,walk,read,seventy,transformers,clean")
    asked = parser.parse_args()
    only, eight = asked.only.split(","), asked.folder / "llama-8b-shape"
    if "write" in only:
        shapes.write("8b", eight)
    if "open" in only:
        cat(eight)  # warm
        child("open", eight)
    if "walk" in only:
        child("walk", eight)
    if "read" in only:
        for state in ("cold", "warm"):
            for what in ("cat", "bf16", "fp32"):
                if state == "cold":
                    forget(eight)
                print(f"{state}:", end=" ")
                print(f"cat {cat(eight):.2f} GB/s", flush=True) if what == "cat" else child("read", eight, what)
    if "seventy" in only:
        outside = ("model.embed", "model.layers.0.", "model.norm")
        large = shapes.write("70b", asked.folder / "llama-70b-shape", filled=lambda name: name.startswith(outside))
        child("seventy", large)
    if "transformers" in only:
        child("transformers", eight)
    if "clean" in only:
        shutil.rmtree(asked.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
