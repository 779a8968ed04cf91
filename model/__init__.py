"""Blockscope's model side: hooked decoder blocks, and the one door to run them.

from model import load, count, PRESETS
"""

from model.load import count, load
from model.presets import PRESETS

__all__ = ["PRESETS", "count", "load"]
