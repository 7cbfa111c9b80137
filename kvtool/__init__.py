"""kvtool: saved llama-server slots as ordinary files over content-defined chunks."""

__version__ = "0.1.0"
