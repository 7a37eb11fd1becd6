"""`jit` under its name from the time when it had two."""

from fnx.transforms.jit import jit as pjit

__all__ = ["pjit"]
