"""Traces of profilers, a module path of JAX."""

from fnx.observe.profiler import *  # noqa: F403
from fnx.observe.profiler import __all__ as __all__
