"""Mistakes that ports of these models are known to make, each as a change to a right model that shows it.

The Parity page offers them for practice, and the tests prove that the comparison with transformers notices every one, first
at the tap that is named here.
"""

from model.mistakes import classic, experts, gemma, latent, llama, routing, scores
from model.mistakes.mistake import Mistake

MISTAKES: tuple[Mistake, ...] = (
    *llama.MISTAKES,
    *classic.MISTAKES,
    *gemma.MISTAKES,
    *routing.MISTAKES,
    *experts.MISTAKES,
    *scores.MISTAKES,
    *latent.MISTAKES,
)

__all__ = ["MISTAKES", "Mistake"]
