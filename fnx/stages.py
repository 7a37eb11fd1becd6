"""Stages of compilation under the name of JAX's module: `fnx.aot` defines them."""

from fnx.aot import ArgInfo, Compiled, Lowered, Traced
from fnx.jitted import Jitted as Wrapped

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
