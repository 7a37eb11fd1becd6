"""The errors that users meet; each is also the builtin error that NumPy or JAX users expect."""

from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from fnx.core import config
from fnx.core.source import at_line, is_internal, user_source


class FnxError(Exception):
    """Base of all errors of fnx: what happened, what was expected, how to mend it.

    The line of the user's code that was running is added to the message and kept as `source`.
    """

    def __init__(self, message: str, *rest: object):
        self.source = user_source()
        super().__init__(message + at_line(self.source), *rest)


class TypeMismatch(FnxError, TypeError):
    """Wrong dtypes, shapes or kinds of values where types are checked (JAX raises TypeError)."""


class TypePromotionError(TypeMismatch, ValueError):
    """Arrays of two dtypes meet where the settings forbid it."""


class TangentMismatch(TypeMismatch, ValueError):
    """A tangent or cotangent that is not of its value's dtype; JAX raises either builtin."""


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together; a TypeError as in JAX and a ValueError as in NumPy."""


class InvalidValue(FnxError, ValueError):
    """An argument outside what a function accepts (an axis, a mode, a length)."""


class TracerArrayConversionError(FnxError, TypeError):
    """A traced value was asked for its NumPy array, which does not exist while tracing."""


class ConcretizationTypeError(FnxError, TypeError):
    """A traced value was used where Python needs a known number."""


class TracerBoolConversionError(ConcretizationTypeError):
    """A Python branch (`if`, `while`, `and`, `assert`) on a traced value.

    Use `lax.cond`, `jnp.where` or `lax.while_loop`, or mark the argument static.
    """


class TracerIntegerConversionError(FnxError, TypeError):
    """A traced value was used as a Python integer (an index of a list, a length, `range`)."""


class NonConcreteBooleanIndexError(FnxError, IndexError):
    """A traced mask as an index: the shape of the result would depend on values."""


class UnexpectedTracerError(FnxError):
    """A traced value outlived the transformation that made it (a leak by a side effect)."""


class UnboundAxis(FnxError, NameError):
    """A collective over a named axis that no vmap, pmap or shard_map around it binds."""


class MissingRule(FnxError, NotImplementedError):
    """A primitive lacks a rule that a transformation needs."""


class KeyReuseError(FnxError, RuntimeError):
    """A random key was used twice."""


class CompileError(FnxError, RuntimeError):
    """Native code could not be made; names the file with the Kernel IR and the way around."""


# --- tracebacks --------------------------------------------------------------------------------


def hide_frames(error: Exception) -> None:
    """Cut fnx's frames out of a traceback, unless the error is fnx's own fault.

    The setting `traceback_filtering` (FNX_TRACEBACK_FILTERING=0) keeps them.
    """
    tracebacks: list[TracebackType] = []
    tb = error.__traceback__
    while tb is not None:
        tracebacks.append(tb)
        tb = tb.tb_next
    if not tracebacks or not config.traceback_filtering.value:
        return
    inside = is_internal(tracebacks[-1].tb_frame.f_code.co_filename)
    if inside and not isinstance(error, FnxError):
        return
    kept: TracebackType | None = None
    for t in reversed(tracebacks):
        if not is_internal(t.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, t.tb_frame, t.tb_lasti, t.tb_lineno)
    error.__traceback__ = kept


F = TypeVar("F", bound=Callable)


def entrance(fun: F) -> F:
    """Decorates functions that users call: errors that leave them show the user's frames."""

    @wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return fun(*args, **kwargs)
        except Exception as error:
            hide_frames(error)
            raise

    return cast(F, call)
