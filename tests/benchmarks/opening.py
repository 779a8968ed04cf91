"""Models opened, run and closed fifty times: how much resident memory is left behind.

python tests/benchmarks/opening.py [SOURCE ...] [--times 50]

SOURCE: folders, files or presets, by default the shipped models and two presets. The first ten rounds warm up what is made
once (threads, validators, the allocator's arenas) and are not counted.
"""

import argparse
import gc
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from model import load  # noqa: E402
from model.view import Request  # noqa: E402

WARM = 10


def resident() -> float:
    """Resident memory of this process now, MB."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) / 1024


def use(source: str, memory: str | None) -> None:
    lm = load(source, device="cpu", memory=memory)
    tokens, last = list(range(1, 33)), lm.config.n_layers - 1
    lm.views(tokens, [Request(f"blocks.{last}.attn.hook_pattern"), Request(f"blocks.{last}.hook_resid_post", "stats")])
    lm.next_tokens(tokens, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="*")
    parser.add_argument("--times", type=int, default=50)
    asked = parser.parse_args()
    shipped = sorted(str(path.parent) for path in (ROOT / "assets" / "checkpoints").glob("*/config.json"))
    sources = asked.source or [*shipped, "tiny-llama", "tiny-qwen3"]
    seen = []
    for turn in range(WARM + asked.times):
        use(sources[turn % len(sources)], memory="1MB" if turn % 2 else None)
        gc.collect()
        seen.append(resident())
    before, after = seen[WARM - 1], seen[-1]
    print(
        f"{asked.times} models opened and closed: {before:.0f} MB -> {after:.0f} MB, {after - before:+.1f} MB, most {max(seen):.0f} MB"
    )


if __name__ == "__main__":
    main()
