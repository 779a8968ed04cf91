"""GGUF, the file format of llama.cpp and Ollama."""

from model.checkpoints.gguf.reader import open_gguf

__all__ = ["open_gguf"]
