"""The folder of compiled code: what it holds, and how to empty it."""

from fnx.process.code_cache import (
    clear,
    info,
    sweep,
)

__all__ = [
    "clear",
    "info",
    "sweep",
]
