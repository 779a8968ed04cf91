"""What LogitMonitor costs a training step, as shares taken in one run.

python tests/benchmarks/monitor.py [MODEL FOLDER] [--context 128] [--batch 4] [--rounds 9] [--threads 1] [--every 50]

A step is forward, backward and AdamW of a transformers model. Without a folder: 8 layers of width 256, 8 heads, 8k tokens of
vocabulary, random weights. Rounds alternate between a plain step, a step under a monitor that is not due, and a measured
one, so that a noisy machine slows all of them; medians. The share at `every` is (measured - plain) / (every * plain).
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from model.growth import LogitMonitor


def built(folder: str | None):
    from transformers import AutoModelForCausalLM, LlamaConfig

    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train()
    sizes = {"num_hidden_layers": 8, "hidden_size": 256, "intermediate_size": 688, "vocab_size": 8192}
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(LlamaConfig(**sizes, num_attention_heads=8, num_key_value_heads=4)).train()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?")
    for name, value in (("context", 128), ("batch", 4), ("rounds", 9), ("threads", 1), ("every", 50)):
        parser.add_argument(f"--{name}", type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = built(options.folder)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    tokens = torch.randint(1000, (options.batch, options.context), generator=torch.Generator().manual_seed(0))

    def step() -> float:
        start = time.perf_counter()
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return time.perf_counter() - start

    def watched(every: int) -> float:
        with LogitMonitor(model, every=every) as monitor:
            monitor.step = 1  # at every=1 the next pass is measured, at a large `every` it is not
            return step()

    step()
    watched(1)
    times: dict[str, list[float]] = {"plain": [], "not due": [], "measured": []}
    for _ in range(options.rounds):
        times["plain"].append(step())
        times["not due"].append(watched(10**9))
        times["measured"].append(watched(1))
    median = {name: statistics.median(found) for name, found in times.items()}
    heads, layers = model.config.num_attention_heads, model.config.num_hidden_layers
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters, {layers} layers of {heads} heads, "
          f"{options.batch} x {options.context} tokens, {options.threads} threads, medians of {options.rounds}")  # fmt: skip
    for name, seconds in median.items():
        print(f"{name:9} {seconds * 1e3:9.1f} ms  {seconds / median['plain'] - 1:+7.1%}")
    share = (median["measured"] - median["plain"]) / median["plain"] / options.every
    print(f"share of training time, measured every {options.every} steps: {share:.2%}")


if __name__ == "__main__":
    main()
