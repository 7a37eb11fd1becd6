"""`jit` under its name from the time when it had two."""

from fnx.jitted import jit as pjit

__all__ = ["pjit"]
