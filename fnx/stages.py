"""Stages of compilation under the name of JAX's module: `fnx.transforms.aot` defines them."""

from fnx.transforms.aot import ArgInfo, Compiled, Lowered, Traced
from fnx.transforms.jit import CompilerOptions
from fnx.transforms.jit import Jitted as Wrapped

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]
