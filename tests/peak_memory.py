"""A fresh process that runs Explore's first view of a long prompt and prints by how many bytes its resident memory grew.

python tests/peak_memory.py SOURCE TOKENS [LAYERS]: a model and the length; with LAYERS, so many of SmolLM2-135M's shape.
"""

import gc
import json
import re
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch

from model import load
from model.attention import Attention
from model.block import PreNorm
from model.lm import Decoder
from model.mlp import SwiGLU
from model.norms import RMSNorm
from model.positions import Rope
from model.run import LM
from model.weights import WeightStore, seeded
from viz.pages import answers
from viz.state import UiState

HELD = Path("/proc/self")


def status(name: str) -> int:
    return int(re.search(rf"{name}:\s+(\d+)", (HELD / "status").read_text())[1]) << 10


def opened(source: str, layers: int) -> LM:
    if not layers:
        return load(source, device="cpu", dtype="fp32")
    store = WeightStore(seeded, torch.device("cpu"), torch.float32)
    return LM(smollm2(layers), store, name="shape", source="test", tokenizer=None)


def smollm2(layers: int) -> Decoder.Config:
    d, norm = 576, RMSNorm.Config(d=576, eps=1e-5)
    attn = Attention.Config(d_model=d, n_heads=9, n_kv_heads=3, d_head=64, rope=Rope.Config(d=64, base=1e5, pairing="half"))
    block = PreNorm.Config(ln1=norm, attn=attn, ln2=norm, mlp=SwiGLU.Config(d_model=d, d_mlp=1536))
    return Decoder.Config(d_vocab=49152, d_model=d, blocks=(block,) * layers, ln_final=norm, tied=True, context=8192)


def look(lm: LM, ids: list[int]) -> None:
    """In a thread of its own, as the page does."""
    work = threading.Thread(target=lambda: list(lm.walk(ids, answers.run_requests(lm, ids, UiState()), checking=0)))
    work.start()
    work.join()


def main() -> None:
    source, tokens, layers = sys.argv[1], int(sys.argv[2]), int((*sys.argv, 0)[3])
    torch.set_num_threads(1)
    lm = opened(source, layers)
    look(lm, [1, 2, 3, 4])  # weights are read, and libraries have what they keep
    gc.collect()
    (HELD / "clear_refs").write_text("5")  # the peak is counted from here
    before = status("VmRSS")
    look(lm, torch.randint(lm.config.d_vocab, (tokens,), generator=torch.Generator().manual_seed(0)).tolist())
    print(json.dumps({"grew": status("VmHWM") - before, "said": lm.cost(tokens).bytes}))


if __name__ == "__main__":
    main()
