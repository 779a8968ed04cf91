"""The same prompt through two to four models that differ in one part: how far each tensor moved, and what that does."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from model.delta import Delta, Difference, Part, within
from model.difference import CHANGED, ONLY_A, ONLY_B, PLACE, SAME, SHAPE, Cell
from model.errors import UnknownTap
from model.identities import Identity, check
from model.lockstep import Running, Side
from model.outcome import Losses, Outcome, losses, outcome
from model.place import Place
from model.reduce import Reduction
from model.stages import Progress
from model.taps import Tap
from model.view import Request

__all__ = ["CHANGED", "ONLY_A", "ONLY_B", "PLACE", "SAME", "SHAPE", "Cell", "Delta", "Lockstep", "Losses", "Outcome", "Side"]


class Lockstep(Running):
    """What a comparison is asked once its sides have been walked through, or before."""

    def delta(self, tap: str, select: Sequence = (), budget: int = 16_384) -> Delta:
        """One tensor of every side and its difference from A's, selected and pooled by peak.

        `select`: (axis, index) pairs for all sides, or a list of such for each side, where a head reads other KV heads.
        """
        each = select if select and isinstance(select, list) else [select] * len(self.sides)
        if not any(tap in taps for taps in self.taps):
            raise UnknownTap(f"no side has a tensor {tap!r}")
        stage = self.stage_of(tap, next(n for n, taps in enumerate(self.taps) if tap in taps))
        entering, patches = self._entering(stage), self._patches(stage)
        kept, views, changes = None, [], []
        for n, x in enumerate(entering):
            here = self.taps[n].get(tap)
            if self._own(n, stage) is None or (here is None and not (n == 0 and patches)):
                views.append(None)
                changes += [None] if n else []
                continue
            x = x[:, -1:] if stage == self.depth else x
            watchers: dict[Tap, list] = {}
            view = difference = None
            if here is not None:
                view = Reduction(here, Request(tap, select=within(here, each[n]), budget=budget))
                watchers[here] = [view]
                if n == 0:
                    kept = Part(here, dict(view.fixed))
                    watchers[here].append(kept)
                elif kept is not None and self.at is None and not tap.startswith(self.elsewhere(n, stage)):
                    difference = Difference(tap, here, kept, view.fixed, budget)
                    watchers[here].append(difference)
            if n == 0:
                for name, keep in patches.items():
                    watchers.setdefault(self.taps[0][name], []).append(keep)
            self._step(n, stage, x, watchers, patches)
            views.append(view.view() if view is not None else None)
            if n:
                changes.append(difference.view() if difference is not None else None)
        return Delta(tap, tuple(views), tuple(changes))

    def identities(self, n: int, layer: int) -> list[Identity]:
        """The equations of one side's block, measured on its own residual."""
        if self._own(n, layer) is None or not 0 <= layer < self.depth:
            return []
        x = self._entering(layer)[n]
        lm = self.sides[n].lm
        return check(lm.block(layer), *lm.stages.bring(layer, x, Place.of(x)))

    def outcomes(self, k: int = 5) -> list[Outcome | str]:
        """What each side says comes next, and KL(A || side); a sentence where a side's logits cannot be ranked."""
        if not self._last:
            self._entering(self.depth)
        rows = [self._last[n] for n in range(len(self.sides))]
        a = rows[0] if self.one_vocabulary else None
        return [outcome(a, row, side.lm, k) for row, side in zip(rows, self.sides, strict=True)]

    def losses(self) -> Iterator[Progress]:
        """Per-token loss of each side, and KL(A || side) at every position, some positions at a time -> Losses."""
        entering = self._entering(self.depth)
        rows = max(1, (32 << 20) // (4 * max(side.lm.config.d_vocab for side in self.sides)))
        return losses([ids[0] for ids in self.ids], entering, self._logits, rows, self.one_vocabulary)

    def _logits(self, n: int, x: Tensor) -> Tensor:
        return self._step(n, self.depth, x, {})

    def where(self, n: int = 1) -> str | None:
        """The first tensor that differs on side n, in the order in which it is computed; None where nothing does."""
        moved = [cell for cell in self.cells[n - 1].values() if cell.state != SAME]
        return next((cell.tap for cell in sorted(moved, key=lambda cell: cell.state == ONLY_A)), None)
