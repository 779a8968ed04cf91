"""One attention layer's statistics over a long prompt, at SmolLM2's shape, and their equality with the explicit square.

python tests/benchmarks/long.py [--tokens 32768] [--equal 8192]

Weights are random (what is measured is memory and time). Growth is the peak of a fresh process over what it held before the run.
At last the memory that the page announces for a prompt, against what its first run takes.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402

from model import load  # noqa: E402
from model.statistics import ONE_HOT, attention_statistics  # noqa: E402
from model.view import Request  # noqa: E402

MODEL = "smollm2-135m"
ANNOUNCED = [("tiny-llama", 4000, 0), (MODEL, 4000, 3), (MODEL, 8000, 1)]  # source, tokens, layers of its shape (0: all)


def status(name: str) -> float:
    return int(re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def prompt(lm, length: int) -> list[int]:
    return torch.randint(lm.config.d_vocab, (length,), generator=torch.Generator().manual_seed(0)).tolist()


def growth(source: str, length: int) -> None:
    lm = load(source, device="cpu")
    lm.residual([1], 1)
    before, began = status("VmRSS"), time.perf_counter()
    found = attention_statistics(lm, prompt(lm, length), 0)
    seconds = time.perf_counter() - began
    print(f"{length:,} tokens, one layer: {seconds:.1f} s, peak {status('VmHWM') - before:.0f} MB over {before:.0f} MB; "
          f"largest logits {np.abs(found.largest).max():.3f}, entropy {found.entropy.mean():.3f}")  # fmt: skip


def equal(source: str, length: int) -> None:
    """The same statistics from the square written out: softmax(q.k) by hand, head by head, from the rotated q and k."""
    lm = load(source, device="cpu")
    ids = prompt(lm, length)
    found = attention_statistics(lm, ids, 0)
    taps = lm.capture(ids, ["blocks.0.attn.hook_rot_q", "blocks.0.attn.hook_rot_k"])
    q, k = (t[0].float() for t in taps.values())
    scale, group = lm.config.blocks[0].attn.logit_scale, q.shape[1] // k.shape[1]
    worst: dict[str, float] = {}
    for head in range(q.shape[1]):
        logits = (q[:, head] @ k[:, head // group].T) * scale
        hidden = torch.ones_like(logits, dtype=torch.bool).triu_(1)
        weights = logits.masked_fill(hidden, -torch.inf).softmax(-1)
        entropy = torch.special.entr(weights).sum(-1)[1:]
        seen = torch.arange(2, length + 1).log()
        explicit = {
            "largest": logits.masked_fill(hidden, 0).abs().max(), "entropy": entropy.mean(), "spread": (entropy / seen).mean(),
            "one_hot": (weights.amax(-1)[1:] > ONE_HOT).float().mean(), "first": weights[1:, 0].mean(),
            "top_weights": weights[-1].topk(8).values,
        }  # fmt: skip
        for name, theirs in explicit.items():
            ours = np.abs(getattr(found, name)[head])
            gap = float(np.abs(ours - theirs.numpy()).max() / max(float(theirs.abs().max()), 1e-30))
            worst[name] = max(worst.get(name, 0.0), gap)
    print(f"{length:,} tokens against the square written out: " + ", ".join(f"{n} {g:.1e}" for n, g in worst.items()))
    assert max(worst.values()) < 1e-5


def window(source: str, length: int) -> None:
    lm = load(source, device="cpu")
    ids, low = prompt(lm, length), length - 512
    lm.residual(ids, 0)
    began = time.perf_counter()
    (view,) = lm.views(ids, [Request("blocks.0.attn.hook_pattern", select=(("head", 1),), budget=1 << 20,
                                     within=(("query_pos", low, low + 256), ("key_pos", low - 256, low)))])  # fmt: skip
    print(f"a window of {view.values.shape} of {length:,}²: {time.perf_counter() - began:.2f} s, {view.how}")


def announced(source: str, length: int, layers: int) -> None:
    child = [sys.executable, str(ROOT / "tests" / "peak_memory.py"), source, str(length), str(layers)]
    found = json.loads(subprocess.run(child, capture_output=True, text=True, check=True).stdout)
    ratio, said, grew = found["said"] / found["grew"], found["said"] / 1e6, found["grew"] / 1e6
    print(f"{source}, {length:,} tokens: {said:.0f} MB announced, {grew:.0f} MB taken, {ratio:.2f}")
    assert 0.6 < ratio < 1.6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=MODEL)
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--equal", type=int, default=8192)
    parser.add_argument("--child", choices=["growth", "equal", "window"], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        work = {"growth": growth, "equal": equal, "window": window}[asked.child]
        return work(asked.model, asked.equal if asked.child == "equal" else asked.tokens)
    for child in ("equal", "growth", "window"):
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--child", child], check=True)
    for case in ANNOUNCED:
        announced(*case)


if __name__ == "__main__":
    main()
