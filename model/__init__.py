"""Blockscope's model side: hooked decoder blocks, and the one door to run them.

from model import load, count, PRESETS
"""

from model.count import count
from model.load import load
from model.presets import PRESETS

__all__ = ["PRESETS", "count", "load"]
