"""`jax._src.core`: what the public modules have, and the state of tracing."""

from fnx.core import *
from fnx.core.interpreter import current, evaluate
from fnx.extend.core import *  # type: ignore[assignment]

__all__ = ["TraceTag", "trace_ctx", "trace_state_clean"]


class TraceTag:  # quax
    """What traces of one transformation have in common: compared by identity."""


def trace_state_clean() -> bool:  # numpyro
    """Whether nothing is being traced."""
    return current.get() is evaluate


class _Context:
    """The state of tracing of this thread."""

    trace = property(lambda self: current.get())


trace_ctx = _Context()  # quax
