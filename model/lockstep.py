"""Two to four models on one prompt in lockstep: what runs when, what is one computation, and what stays for a later look.

A layer of A runs and its tensors are kept; the same layer of B runs and is compared at each tap; then A's are dropped. Layers
that come before the first difference are one computation, run once: only from there on do the sides run apart.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from model.alignment import aligned
from model.difference import KEPT_BYTES, Cell, Fold, Kept, alone
from model.errors import BlockscopeError, UnknownTap
from model.flow import elsewhere
from model.interventions import Edit, editor, editors
from model.place import Place
from model.run import LM
from model.stages import Progress
from model.taps import Recorder, Tap, Tile, recording
from model.view import Request

MOST_SIDES = 4
BEGIN = -1  # the stage of the embedding
REMEMBERED = 128 << 20  # bytes of one stage's tensors of A that stay with the model


@dataclass(frozen=True)
class Side:
    """A model and what is edited while it runs. The first side is A: the others are compared with it."""

    lm: LM
    edits: tuple[Edit, ...] = ()


class Running:
    """Two to four sides on one prompt. `tokens` of each side: one list for all, or one for each.

    `ends`: where in the text the tokens of each side end; sides that cut it differently are compared where both have read the
    same characters. Without it, all must have one length.
    """

    def __init__(
        self, sides: Sequence[Side], tokens: Sequence, *, ends: Sequence[Sequence[int]] | None = None, reuse: bool = True,
        memory: int = 1 << 29,
    ):  # fmt: skip
        if not 2 <= len(sides) <= MOST_SIDES:
            raise BlockscopeError(f"two to {MOST_SIDES} sides can be compared, got {len(sides)}")
        lists = tokens if len(tokens) and not isinstance(tokens[0], int) else [tokens] * len(sides)
        self.sides = tuple(sides)
        self.ids = [side.lm.checked(list(ids))[:1] for side, ids in zip(sides, lists, strict=True)]
        lengths = [ids.shape[1] for ids in self.ids]
        found = None if ends is None else aligned(ends)
        self.ends = None if found is None else [list(own) for own in ends]
        self.at = (
            None
            if found is None
            else [torch.tensor(own, device=side.lm.device) for own, side in zip(found, sides, strict=True)]
        )
        if len(set(lengths)) > 1 and self.at is None:
            counts = ", ".join(f"{'ABCD'[n]} {length}" for n, length in enumerate(lengths))
            cut = f"the sides cut this prompt into different numbers of tokens ({counts})"
            raise BlockscopeError(f"{cut}: positions do not line up")
        self.taps = [side.lm.tap_modules for side in self.sides]
        self._check_edits()
        self.depth = max(side.lm.config.n_layers for side in self.sides)  # the stage of the final norm and the logits
        self.reuse = reuse
        self.first = [self._first(n) if reuse else BEGIN for n in range(len(self.sides))]
        self.begin = min(self.first[1:])
        self.cells: list[dict[str, Cell]] = [{} for _ in self.sides[1:]]
        width = max(side.lm.config.d_model * side.lm.dtype.itemsize for side in self.sides) * max(lengths) * len(self.sides)
        self._stride = max(1, -(-(self.depth + 1) * width // memory))
        self._last: dict[int, Tensor] = {}  # the last token's logits of each side
        self._residuals: list[dict[int, Tensor]] = [{} for _ in self.sides]

    @property
    def length(self) -> int:
        return self.ids[0].shape[1]

    @cached_property
    def one_vocabulary(self) -> bool:
        """Whether the same token number means the same on every side."""
        return all(torch.equal(ids.cpu(), self.ids[0].cpu()) for ids in self.ids) and (
            len({side.lm.config.d_vocab for side in self.sides}) == 1
        )

    # ---- where sides part ------------------------------------------------------------------------------------------

    def _first(self, n: int) -> int:
        """The first stage at which this side may differ from A: what comes before is the same computation."""
        a, b = self.sides[0], self.sides[n]
        if a.lm.original is not b.lm.original or not torch.equal(self.ids[0], self.ids[n]):
            return BEGIN
        pairs = zip(a.lm.config.blocks, b.lm.config.blocks, strict=True)  # variants of one model: as many layers
        stages = [i for i, (one, two) in enumerate(pairs) if one != two]
        if a.edits != b.edits:
            stages += [self.stage_of(edit.tap, n) for side in (a, b) for edit in side.edits]
        return min(stages, default=BEGIN)  # nothing differs: run everything, so that the zeros are measured

    def stage_of(self, tap: str, n: int = 0) -> int:
        lm = self.sides[n].lm
        stage = lm.stage_of(tap)
        return self.depth if stage == lm.last_stage else stage

    def _own(self, n: int, stage: int) -> int | None:
        """The same stage in the numbering of one side; None where it has no such layer."""
        lm = self.sides[n].lm
        return lm.last_stage if stage == self.depth else stage if stage < lm.config.n_layers else None

    def elsewhere(self, n: int, stage: int) -> tuple[str, ...]:
        """How names of this layer begin that a side has at another place of the block than A."""
        both = [side.lm.config.blocks for side in (self.sides[0], self.sides[n])]
        if not 0 <= stage < min(map(len, both)) or type(both[0][stage]) is type(both[1][stage]):
            return ()
        return tuple(f"blocks.{stage}.{slot}." for slot in elsewhere(both[0][stage], both[1][stage]))

    def _check_edits(self) -> None:
        """Raises what cannot be done on any side, all of it at once."""
        wrong = []
        for n, side in enumerate(self.sides):
            for edit in side.edits:
                try:
                    self._editor(n, edit)
                except BlockscopeError as error:
                    wrong.append(error)
        if len(wrong) > 1:
            raise BlockscopeError(". ".join(dict.fromkeys(map(str, wrong))))
        if wrong:
            raise wrong[0]

    def _editor(self, n: int, edit: Edit, kept: Mapping[str, Kept] | None = None):
        """Refuses at once what cannot be done; `kept` are A's tensors of the layer, from which is patched."""
        if edit.tap not in self.taps[n]:
            raise UnknownTap(f"{'ABCD'[n]} has no tensor {edit.tap!r} to edit")
        if edit.what == "patch" and n and edit.tap not in self.taps[0]:
            raise UnknownTap(f"A has no tensor {edit.tap!r} to patch in")
        donor = None if n == 0 else lambda: kept[edit.tap].whole()
        return editor(edit, self.taps[n][edit.tap], donor)

    # ---- running ---------------------------------------------------------------------------------------------------

    def _step(self, n: int, stage: int, x: Tensor, watchers, kept: Mapping[str, Kept] | None = None) -> Tensor:
        """One stage of one side, with its edits."""
        side, acts = self.sides[n], {}
        for edit in side.edits:
            if self.stage_of(edit.tap, n) == stage:
                acts.setdefault(self.taps[n][edit.tap], []).append(self._editor(n, edit, kept))
        with recording(Recorder(watchers, editors(acts))):
            return side.lm.step(self._own(n, stage), x, Place.of(x))

    def _every(self, tap: Tap) -> int:
        """Each how many query rows of a square are kept, so that one tensor stays under KEPT_BYTES."""
        if "query_pos" not in tap.dims or "key_pos" not in tap.dims or self.at is not None:
            return 1
        heads = max(block.attn.n_heads for side in self.sides for block in side.lm.config.blocks)
        return -(-4 * heads * self.length**2 // KEPT_BYTES)

    def walk(self) -> Generator[Progress, None, list[dict[str, Cell]]]:
        """Run all sides; returns the cells of each side after A, by tap, in the order in which its tensors come about."""
        stages = range(self.begin, self.depth + 1)
        total = sum(stage >= (self.first[n] if n else self.begin) for stage in stages for n in range(len(self.sides)))
        x, done = (yield from self._reach(self.begin, total)), 0
        entering: list[Tensor | None] = [x] * len(self.sides)
        if self.begin == BEGIN:
            entering = list(self.ids)
        for stage in stages:
            kept, before = {}, list(entering)
            for n in range(len(self.sides)):
                if self._own(n, stage) is None:
                    if n:  # this side has fewer layers
                        self.cells[n - 1] |= {name: alone(name, one) for name, one in kept.items() if one.tiles}
                    continue
                x = before[0] if BEGIN < stage <= self.first[n] else before[n]  # what is shared is one tensor
                self._remember(n, stage, x)
                if n and stage < self.first[n]:
                    continue
                entering[n], found = self._compared(n, stage, x, kept)
                if stage == self.depth:
                    self._last[n] = entering[n][0, -1]
                if n:
                    self.cells[n - 1] |= found
                done += 1
                yield Progress(done, total, f"{'ABCD'[n]}, {self._called(stage)}")
        return self.cells

    def _called(self, stage: int) -> str:
        return {BEGIN: "embedding", self.depth: "last token's logits"}.get(stage, f"layer {stage}")

    def _compared(self, n: int, stage: int, x: Tensor, kept: dict[str, Kept]) -> tuple[Tensor, dict[str, Cell]]:
        """Side 0 fills `kept`; another side is compared with it. The final stage runs on the last token alone."""
        taps = self.sides[n].lm.taps_by_stage.get(self._own(n, stage), {})
        x = x[:, -1:] if stage == self.depth else x
        if n == 0:
            found, x = self._of_a(stage, x, taps)
            kept |= found
            return x, {}
        if self.at is not None and stage < self.depth:
            return self._aligned(n, stage, x, kept, taps)
        fired: dict[str, Fold] = {}
        apart = self.elsewhere(n, stage)

        def watch(name: str, tap: Tap):
            def listen(y: Tensor, tile: Tile | None) -> None:
                there = kept.get(name)
                there = there if there and there.tiles else None
                fired.setdefault(name, Fold(name, tap, there, name.startswith(apart)))(y, tile)

            return listen

        x = self._step(n, stage, x, {tap: [watch(name, tap)] for name, tap in taps.items()}, kept)
        found = {name: fold.cell() for name, fold in fired.items()}
        return x, found | {name: alone(name, one) for name, one in kept.items() if one.tiles and name not in found}

    def _aligned(self, n: int, stage: int, x: Tensor, kept: dict[str, Kept], taps: Mapping[str, Tap]):
        """Another side that cuts the text differently: both sides' tensors at their common positions, whole."""
        own = {name: Kept(tap, at=self.at[n]) for name, tap in taps.items()}
        x, found = self._step(n, stage, x, {tap: [own[name]] for name, tap in taps.items()}, kept), {}
        apart = self.elsewhere(n, stage)
        for name, one in own.items():
            if one.tiles:
                there = kept.get(name)
                there = there.joined() if there and there.tiles else None
                fold = Fold(name, one.tap, there, name.startswith(apart))
                fold.add(0, *one.joined().tiles[0], one.largest)
                found[name] = fold.cell()
        return x, found | {name: alone(name, one) for name, one in kept.items() if one.tiles and name not in found}

    def _of_a(self, stage: int, x: Tensor, taps: Mapping[str, Tap]) -> tuple[dict[str, Kept], Tensor]:
        """A's tensors of a stage and what leaves it. Those of the last stages and of the first that is compared are
        remembered with the model: another change there then runs the other side alone."""
        lm, every = self.sides[0].lm, {name: self._every(tap) for name, tap in taps.items()}
        what, plain = ("stage", stage, tuple(every.values())), self.reuse and not self.sides[0].edits and self.at is None
        at = None if self.at is None or stage == self.depth else self.at[0]
        if plain and (found := lm.recall(self.ids[0], what)) is not None and torch.equal(found[0], x):
            return found[1:]  # of the same numbers: with nobody listening, earlier layers round otherwise
        kept = {name: Kept(tap, every[name], at) for name, tap in taps.items()}
        entering, x = x, self._step(0, stage, x, {tap: [kept[name]] for name, tap in taps.items()})
        size = entering.nbytes + x.nbytes + sum(one.nbytes for one in kept.values())
        if plain and size <= REMEMBERED and (stage == self.begin or stage >= self.depth - 1):
            lm.keep(self.ids[0], what, (entering, kept, x), size)
        return kept, x

    def _reach(self, stage: int, total: int) -> Generator[Progress, None, Tensor | None]:
        """A's residual entering `stage`; from the model's own memory where it has it."""
        if stage <= 0:
            return self._start(0) if stage == 0 else None
        side = self.sides[0]
        if side.edits:
            x = self._start(0)
            for earlier in range(stage):
                self._remember(0, earlier, x)
                x = self._step(0, earlier, x, {})
                yield Progress(0, total, f"A, layer {earlier}")
            return x
        tokens = self.ids[0][0].tolist()
        for step in side.lm.walk(tokens, [Request(f"blocks.{stage - 1}.hook_resid_post", "stats")]):
            yield Progress(0, total, f"A, {step.what}")
        return side.lm.residual(tokens, stage)

    def _start(self, n: int) -> Tensor:
        return self._step(n, BEGIN, self.ids[n], {})

    def _remember(self, n: int, stage: int, x: Tensor) -> None:
        """Every residual, or every few where all of them would be too large."""
        if stage % self._stride == 0 or stage in (self.begin, self.depth):
            self._residuals[n][stage] = x

    def _entering(self, stage: int) -> list[Tensor | None]:
        """The residual of every side entering a stage, from the nearest one that was kept; what is shared is one tensor."""
        if not self._residuals[0]:
            for _ in self.walk():
                pass
        if stage == BEGIN:
            return list(self.ids)
        near = max((s for s in self._residuals[0] if s <= stage), default=None)
        if near is None:
            return self._from_a(stage)
        xs = [kept.get(near, self._residuals[0][near]) for kept in self._residuals]
        for between in range(near, stage):
            xs = self._advanced(between, xs)
        return [x if self._own(n, stage) is not None else None for n, x in enumerate(xs)]

    def _from_a(self, stage: int) -> list[Tensor]:
        """A stage above the first difference: one computation, A's."""
        x = self._start(0)
        for earlier in range(stage):
            x = self._step(0, earlier, x, {})
        return [x] * len(self.sides)

    def _advanced(self, stage: int, xs: list[Tensor]) -> list[Tensor]:
        kept, after = self._patches(stage), []
        for n, x in enumerate(xs):
            if self._own(n, stage) is None:
                after.append(x)
            elif n and stage < self.first[n]:
                after.append(after[0])
            else:
                watchers = {self.taps[0][name]: [keep] for name, keep in kept.items()} if n == 0 else {}
                after.append(self._step(n, stage, x, watchers, kept))
        return after

    def _patches(self, stage: int) -> dict[str, Kept]:
        names = {e.tap for side in self.sides[1:] for e in side.edits if e.what == "patch" and self.stage_of(e.tap) == stage}
        return {name: Kept(self.taps[0][name]) for name in names}
