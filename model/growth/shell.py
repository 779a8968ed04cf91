"""Training from a shell: arms from options, trained one after another, each left as a record and a folder of weights."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from tqdm import tqdm

from model.checkpoints.huggingface import read_config
from model.errors import BlockscopeError
from model.growth.arms import ARCHITECTURE, Arm, pair
from model.growth.corpus import Corpus, from_path, standard_library
from model.growth.fixes import FIXES, Fix, fixed, part
from model.growth.record import Record
from model.growth.sizes import SIZES, base_arm, recipe
from model.growth.train import Training
from model.lm import Decoder
from model.presets import PRESETS, meant

SNAPSHOTS = (0, 20, 40, 60, 100, 140, 200, 350)
MODES = {"off": ("off",), "head": ("head",), "projection": ("projection",), "both": ("off", "head")}
QK_NORM = {  # mode -> what the arm is called, and how it is made
    "off": ("off", part("QK-norm off", qk_norm="off")),
    "head": ("on", FIXES["qk-norm"]),
    "projection": ("projection", FIXES["qk-norm-projection"]),
}


def add_options(parser: argparse.ArgumentParser, several: bool) -> None:
    """`several`: learning rates, seeds and fixes may each be a list, and every combination is trained."""
    many = {"nargs": "+"} if several else {}
    sizes = "; ".join(f"{name}: {size.title}" for name, size in SIZES.items())
    group = parser.add_argument_group("which models")
    group.add_argument("--size", choices=SIZES, help=f"{sizes}; default S")
    group.add_argument(
        "--model", action="append", default=[], metavar="PRESET|CONFIG.JSON", help="instead of --size; each is an arm"
    )
    group.add_argument("--qk-norm", choices=MODES, help="both: one arm without, one with it on each head")
    what = "each of these is an arm of its own, beside those of --qk-norm" if several else "changes every arm; may be repeated"
    group.add_argument("--fix", default=[], choices=FIXES, help=what, **(many or {"action": "append"}))
    group = parser.add_argument_group("how they are trained")
    group.add_argument("--lr", type=float, default=[0.1] if several else 0.1, help="peak learning rate; default 0.1", **many)
    group.add_argument("--seed", type=int, default=[0] if several else 0, **many)
    group.add_argument("--steps", type=int, help="default: what the size was measured with")
    group.add_argument("--batch", type=int, help="sequences a step")
    group.add_argument("--context", type=int, help="tokens a sequence")
    group.add_argument("--text", type=Path, help="a text file or a folder of them; default: Python's standard library")
    group.add_argument("--threads", type=int, default=1, help="of the CPU; the numbers depend on it; default 1")
    group = parser.add_argument_group("what is kept")
    group.add_argument("--out", type=Path, required=True, help="folder for NAME.safetensors (the record) and NAME/ (weights)")
    group.add_argument("--probe-every", type=int, default=10, metavar="STEPS", help="measure every so many steps; default 10")
    group.add_argument(
        "--snapshots", type=int, nargs="*", default=SNAPSHOTS, metavar="STEP", help="steps whose patterns are kept"
    )
    group.add_argument("--checkpoint-every", type=int, default=50, metavar="STEPS", help="a killed run goes on from there")
    group.add_argument("--group", default="run", help="what the records belong to, the first word of their names")
    group.add_argument("--also", nargs="*", default=[], help="further groups that show them")


def command(options: argparse.Namespace) -> None:
    """Train every arm that the options ask for; one that is finished already is left as it is."""
    if options.threads < 1:
        raise BlockscopeError(f"--threads must be at least 1, got {options.threads}")
    if not options.group.strip(".") or set(options.group) & set("/\\\0"):
        raise BlockscopeError(f"--group begins the names of files: give a word, not {options.group!r}")
    torch.set_num_threads(options.threads)
    jobs = list(arms(options))
    corpus = standard_library() if options.text is None else from_path(options.text)
    for name, label, arm in jobs:
        record = run(arm, corpus, options.out / name, options)
        named = replace(record, meta=record.meta | {"name": name, "group": options.group, "label": label, "also": options.also})
        print(named.write(options.out / f"{name}.safetensors"), record.meta["ended"], file=sys.stderr)


def run(arm: Arm, corpus: Corpus, folder: Path, options: argparse.Namespace) -> Record:
    training = Training(arm, corpus, folder, snapshots=options.snapshots, checkpoint_every=options.checkpoint_every)
    told = {"desc": folder.name, "unit": "step", "mininterval": 1.0, "disable": None}  # None: silent where nobody watches
    with tqdm(total=arm.recipe.steps, initial=training.step, **told) as bar:
        for event in training:
            bar.update(event.step - bar.n)
            if event.probe:
                bar.set_postfix(loss=f"{event.train_loss:.3f}", max_logit=f"{event.probe.values['max_logit'].max():.1f}")
    return training.record()


def arms(options: argparse.Namespace) -> Iterator[tuple[str, str, Arm]]:
    """(name of the record, label, arm). Arms of one learning rate and seed must differ in nothing but what was asked for."""
    apart = isinstance(options.lr, list)  # a sweep
    rates, seeds = (options.lr, options.seed) if apart else ([options.lr], [options.seed])
    for lr, seed in product(rates, seeds):
        first, chosen, names = None, [], set()
        for label, arm, changes in variants(options, lr, seed, apart):
            chosen += changes
            first = first or arm
            pair(first, arm, chosen)
            name = f"{options.group}-{arm.name}-lr{lr:g}-seed{seed}"
            if name in names:
                raise BlockscopeError(f"two arms would both be called {arm.name}: rename one of the folders")
            names.add(name)
            yield name, label, arm


def variants(options: argparse.Namespace, lr: float, seed: int, apart: bool) -> Iterator[tuple[str, Arm, list[str | Fix]]]:
    """(label, arm, by which choices it may differ from the first) for one learning rate and seed.

    `apart`: every fix is an arm of its own; otherwise every arm has all of them.
    """
    bases = list(models(options, lr, seed))
    several = [ARCHITECTURE] if len(bases) > 1 else []
    modes = MODES[options.qk_norm] if options.qk_norm else () if apart and options.fix else (None,)
    common = () if apart else tuple(options.fix)
    for base, mode in product(bases, modes):
        called, change = QK_NORM[mode] if mode else ("off", None)
        arm = fixed(change(base) if change else base, *common)
        titles = [*([change.title] if change else []), *(FIXES[fix].title for fix in common)]
        if options.model:
            called, titles = f"{base.name}-{called}" if mode else base.name, [base.name, *titles]
        yield "; ".join(titles) or QK_NORM["off"][1].title, replace(arm, name=called), [*([change] if change else []), *several]
    for base, fix in product(bases, options.fix if apart else ()):
        called, title = (f"{base.name}-{fix}", f"{base.name}; {FIXES[fix].title}") if options.model else (fix, FIXES[fix].title)
        yield title, replace(fixed(base, fix), name=called), [fix, *several]


def models(options: argparse.Namespace, lr: float, seed: int) -> Iterator[Arm]:
    given = {"batch": options.batch, "context": options.context, "record_every": options.probe_every}
    given |= {"validate_every": 5 * options.probe_every, "steps": options.steps}
    given = {name: value for name, value in given.items() if value is not None}
    if options.size is not None and options.model:
        raise BlockscopeError("give either --size or --model")
    if not options.model:
        yield base_arm(options.size or "S", lr=lr, seed=seed, **given)
    for source in options.model:
        config = described(source)
        defaults = {"steps": 200, "batch": 8, "context": min(64, config.context)}
        yield Arm(called(source), config, recipe(lr=lr, seed=seed, **defaults | given))


def called(source: str) -> str:
    """The preset, or the folder in which a config.json lies, or the name of the file."""
    path = Path(source).resolve()
    return source if source in PRESETS else path.parent.name if path.name == "config.json" else path.stem


def described(source: str) -> Decoder.Config:
    if source in PRESETS:
        return PRESETS[source]
    path = Path(source)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise BlockscopeError(f"{source!r} is neither a preset nor a config.json; {meant(source)}")
    return read_config(path)
