"""The one error that a person may cause: its text is a sentence to show as it is."""


class BlockscopeError(ValueError):
    """What was wrong, where, what was expected, what to do. Pages show `str(error)` and nothing else."""


class UnknownTap(BlockscopeError, KeyError):
    """A tap was asked for that this model does not have, or that never fired."""

    __str__ = ValueError.__str__  # KeyError would print the repr of the sentence


class TooLarge(BlockscopeError):
    """The work was refused before it ran; the sentence says what it would have cost."""
