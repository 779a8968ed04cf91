"""What a model remembers of its runs, bounded in bytes: the residual stream entering each stage, and views."""

from torch import Tensor

from model.kept import ByteLRU


class Remembered:
    """`residuals`: (key, stage) -> the stream entering it [1, pos, d_model]; `views`: (key, anything asked) -> its answer.

    `key` is what decides every number of a run: the variant of the model and the tokens.
    """

    def __init__(self, memory: int):
        self.residuals, self.views = ByteLRU(memory // 2), ByteLRU(memory // 2)

    def plan(self, key: tuple, last: int, needed: set[int]) -> tuple[list[int], dict[int, Tensor]]:
        """The stages -1..`last` to run, in order: those needed, and before each those that lead to it from the nearest kept
        residual. Beside them the residuals from which they start."""
        have = {stage for stage in range(last + 1) if (key, stage) in self.residuals}
        while True:
            steps = set(needed)
            for stage in range(max(needed, default=-1), -1, -1):
                if stage in steps and stage not in have:
                    steps.add(stage - 1)
            first = [stage for stage in steps if stage > -1 and stage - 1 not in steps]
            starts = {stage: self.residuals.get((key, stage)) for stage in first}
            if not (gone := {stage for stage, x in starts.items() if x is None}):  # another visitor's run drove it out
                return sorted(steps), starts
            have -= gone

    def keep(self, key: tuple, last: int, stage: int, x: Tensor) -> None:
        """Every residual of a run that fits in memory, of a longer one each so many stages."""
        every = -(-(last + 1) * x.nbytes // max(self.residuals.limit, 1))
        if stage <= last and (stage % every == 0 or stage == last):
            self.residuals.put((key, stage), x, x.nbytes)
