"""One text cut into different tokens: the positions at which every side has read exactly the same characters."""

from collections.abc import Sequence

from model.errors import BlockscopeError


def aligned(ends: Sequence[Sequence[int]]) -> list[list[int]] | None:
    """Where each side's tokens end in the text, in characters -> each side's positions, equally many, at common ends.

    Of several tokens with one end (bytes of a character) the last counts: with it the character has been read. None: every
    side cuts the text at the same places, so that all positions stand for each other.
    """
    if all(list(own) == list(ends[0]) for own in ends):
        return None
    last = [{end: i for i, end in enumerate(own)} for own in ends]
    common = sorted(set.intersection(*(set(own) for own in last)))
    if not common:
        raise BlockscopeError("the sides cut this text at no common place, so their positions cannot be compared")
    return [[own[end] for end in common] for own in last]
