"""`jax._src.core`: what the public modules have, and the state of tracing."""

from typing import Any

from fnx.core import *
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import Tracer, current, evaluate
from fnx.extend.core import *  # type: ignore[assignment]

__all__ = ["full_lower", "physical_aval", "trace_ctx", "trace_state_clean"]


def trace_state_clean() -> bool:  # numpyro
    """Whether nothing is being traced."""
    now = current.get()
    return now is evaluate or (now.looks and now.parent is evaluate)  # as debug_nans does


class _Context:
    """The state of tracing of this thread."""

    trace = property(lambda self: current.get())


trace_ctx = _Context()  # quax


def full_lower(x: Any) -> Any:  # quax
    """A value without tracers that stand for nothing."""
    return x.full_lower() if isinstance(x, Tracer) else x


def physical_aval(aval: ShapedArray) -> ShapedArray:  # flax
    """The type of the numbers that a value is made of: its own."""
    return aval
