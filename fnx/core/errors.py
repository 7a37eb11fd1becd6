"""The errors that users meet; each is also the builtin error that NumPy or JAX users expect."""

import re
from collections.abc import Callable
from functools import cache, partial, wraps
from types import TracebackType
from typing import Any, TypeVar, cast

from fnx.core import config
from fnx.core.source import at_line, is_internal, public_function, user_source

_ADDRESS = r" at 0x[0-9a-f]+"  # in the repr of functions: it tells users nothing


class FnxError(Exception):
    """Base of all errors of fnx: what happened, what was expected, how to mend it.

    The line of the user's code that was running is added to the message and kept as `source`.

    >>> try:
    ...     jnp.ones(2) + jnp.ones(3)
    ... except fnx.errors.FnxError as error:
    ...     print(type(error).__name__)
    ShapeError
    """

    def __init__(self, message: str, *rest: object):
        self.source = user_source()
        name = public_function() if self.source else ""
        message = re.sub(_ADDRESS, "", message)
        called = f", in {name}" if name and name not in message else ""
        super().__init__(message + at_line(self.source) + called, *rest)

    def __reduce__(self) -> tuple:
        """Sent to another process, it keeps what it says."""
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else {}
        return _again, (type(self), self.args), {"source": None, **notes}


def _again(kind: type, args: tuple) -> BaseException:
    """An error of another process, with its words."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error


class TypeMismatch(FnxError, TypeError):
    """Wrong dtypes, shapes or kinds of values where types are checked (JAX raises TypeError).

    >>> lax.add(jnp.ones(2), jnp.arange(2))
    Traceback (most recent call last):
    fnx.core.errors.TypeMismatch: add of operands of dtypes float64, int64; expected equal ...
    >>> jnp.add(jnp.ones(2), jnp.arange(2))  # fnx.numpy promotes
    Array([1., 2.], dtype=float64)
    """


class TypePromotionError(TypeMismatch, ValueError):
    """Arrays of two dtypes meet where the settings forbid it.

    >>> with fnx.numpy_dtype_promotion("strict"):
    ...     jnp.ones(2) + jnp.arange(2)
    Traceback (most recent call last):
    fnx.core.errors.TypePromotionError: operands of dtypes float64, int64 (* of Python numbers) ...
    """


class TangentMismatch(TypeMismatch, ValueError):
    """A tangent or cotangent that is not of its value's dtype; JAX raises either builtin.

    >>> fnx.jvp(jnp.sin, (1.0,), (np.float32(1.0),))
    Traceback (most recent call last):
    fnx.core.errors.TangentMismatch: a tangent of jvp has dtype float32; expected float64
    >>> fnx.jvp(jnp.sin, (0.0,), (1.0,))[1]
    Array(1., dtype=float64, weak_type=True)
    """


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together; a TypeError as in JAX and a ValueError as in NumPy.

    >>> jnp.ones(2) + jnp.ones(3)
    Traceback (most recent call last):
    fnx.core.errors.ShapeError: add got incompatible shapes for broadcasting: (2,), (3,); axes ...
    >>> jnp.ones((2, 1)) + jnp.ones(3)  # all sums of pairs
    Array([[2., 2., 2.],
           [2., 2., 2.]], dtype=float64)
    """


class TooLarge(FnxError, MemoryError, ValueError):
    """An array for which there is no memory, or with more bytes than 63 bits count.

    >>> jnp.ones((2**31, 2**31, 2**31))
    Traceback (most recent call last):
    fnx.core.errors.TooLarge: an array of shape (2147483648, 2147483648, 2147483648) ...
    """


class InvalidValue(FnxError, ValueError):
    """An argument outside what a function accepts (an axis, a mode, a length).

    >>> jnp.linalg.qr(jnp.eye(2), mode="fast")
    Traceback (most recent call last):
    fnx.core.errors.InvalidValue: qr with mode='fast'; expected 'reduced', 'complete', ...
    """


class ClosedOverValue(InvalidValue):
    """A function with a rule of its own closed over a value that is being differentiated.

    >>> def scaled(x, a):
    ...     f = fnx.custom_jvp(lambda v: v * a)
    ...     f.defjvp(lambda primals, tangents: (*primals, *tangents))
    ...     return fnx.jit(f)(x)
    >>> fnx.grad(scaled, 1)(3.0, 2.0)
    Traceback (most recent call last):
    fnx.core.errors.ClosedOverValue: the custom_jvp function <lambda> closed over a value that is being ...
    """


class MixedDevices(InvalidValue):
    """Arrays that were put on different devices met in one operation or program.

    >>> devices = [fnx.devices()[0], type(fnx.devices()[0])(1)]
    >>> x, y = (fnx.device_put(np.ones(2), d) for d in devices)
    >>> fnx.jit(lambda x, y: x + y)(x, y)
    Traceback (most recent call last):
    fnx.core.errors.MixedDevices: <lambda> got arrays of different devices: x, float64[2] on ...
    """


class InvalidIndex(FnxError, IndexError):
    """An index, or a number of axes, that an argument does not have.

    >>> jnp.vander(jnp.array(1.0))
    Traceback (most recent call last):
    fnx.core.errors.InvalidIndex: vander(f64[]) failed: ...
    """


class ConcretizationTypeError(FnxError, TypeError):
    """A traced value was used where Python needs a known number.

    >>> fnx.jit(lambda x: float(x))(1.0)
    Traceback (most recent call last):
    fnx.core.errors.ConcretizationTypeError: float() of a traced value of ...
    >>> fnx.jit(lambda x: x.astype(float))(1.0)
    Array(1., dtype=float64)
    """


class TracerArrayConversionError(ConcretizationTypeError):
    """A traced value was asked for its NumPy array, which does not exist while tracing.

    >>> fnx.jit(lambda x: np.asarray(x).sum())(np.ones(3))
    Traceback (most recent call last):
    fnx.core.errors.TracerArrayConversionError: ...
    >>> fnx.jit(lambda x: jnp.asarray(x).sum())(np.ones(3))
    Array(3., dtype=float64)
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A Python branch (`if`, `while`, `and`, `assert`) on a traced value.

    Use `lax.cond`, `jnp.where` or `lax.while_loop`, or mark the argument static.

    >>> fnx.jit(lambda x: 1.0 if x > 0 else -1.0)(3.0)
    Traceback (most recent call last):
    fnx.core.errors.TracerBoolConversionError: the truth of a traced value ...
    >>> fnx.jit(lambda x: jnp.where(x > 0, 1.0, -1.0))(3.0)
    Array(1., dtype=float64, weak_type=True)
    """


class TracerIntegerConversionError(ConcretizationTypeError):
    """A traced value was used as a Python integer (an index of a list, a length, `range`).

    >>> fnx.jit(lambda n: sum(range(n)))(4)
    Traceback (most recent call last):
    fnx.core.errors.TracerIntegerConversionError: ...
    >>> fnx.jit(lambda n: sum(range(n)), static_argnums=0)(4)
    Array(6, dtype=int64, weak_type=True)
    """


# What functions raise that want the numbers of traced values, and would go on with them.
ASKED_FOR_NUMBERS = (
    ConcretizationTypeError,
    TracerArrayConversionError,
    TracerIntegerConversionError,
)


class NonConcreteBooleanIndexError(FnxError, IndexError):
    """A traced mask as an index: the shape of the result would depend on values.

    >>> fnx.jit(lambda x: x[x > 0].sum())(jnp.array([1.0, -1.0]))
    Traceback (most recent call last):
    fnx.core.errors.NonConcreteBooleanIndexError: a traced mask of type bool[2] ...
    >>> fnx.jit(lambda x: jnp.where(x > 0, x, 0).sum())(jnp.array([1.0, -1.0]))
    Array(1., dtype=float64)
    """


class UnexpectedTracerError(FnxError):
    """A traced value outlived the transformation that made it (a leak by a side effect).

    >>> kept = []
    >>> y = fnx.jit(lambda x: kept.append(x))(1.0)
    >>> kept[0] + 1
    Traceback (most recent call last):
    fnx.core.errors.UnexpectedTracerError: a traced value of type f64[]* was used ...
    """


class UnboundAxis(FnxError, NameError):
    """A collective over a named axis that no vmap, pmap or shard_map around it binds.

    >>> lax.psum(1.0, "i")
    Traceback (most recent call last):
    fnx.core.errors.UnboundAxis: unbound axis name: i. Axis names that are bound here: none. ...
    >>> fnx.vmap(lambda x: lax.psum(x, "i"), axis_name="i")(jnp.ones(3))
    Array([3., 3., 3.], dtype=float64)
    """


class MissingRule(FnxError, NotImplementedError):
    """A primitive lacks a rule that a transformation needs.

    >>> f = lambda x: fnx.pure_callback(np.sin, x, x)
    >>> fnx.grad(f)(1.0)
    Traceback (most recent call last):
    fnx.core.errors.MissingRule: a pure_callback has no derivative: ...
    >>> g = fnx.custom_jvp(f)
    >>> g.defjvps(lambda t, y, x: t * jnp.cos(x))
    >>> fnx.grad(g)(0.0)
    Array(1., dtype=float64)
    """


class MissingPackage(FnxError, ImportError, RuntimeError):
    """What needs a package that is not installed; the message says how to install it.

    It is a RuntimeError as well, as what `devices` raises where a platform is not there.

    >>> issubclass(fnx.errors.MissingPackage, ImportError)
    True
    """


class KeyReuseError(FnxError, RuntimeError):
    """JAX's error for a random key that is used twice: fnx has the name, but does not check.

    >>> key = fnx.random.key(0)
    >>> bool(fnx.random.normal(key) == fnx.random.normal(key))
    True
    """


class JaxRuntimeError(FnxError, RuntimeError):
    """A program failed after it was traced: it could not be compiled, or a callback raised.

    What a callback raises is an error of its own class, too.

    >>> def check(x):
    ...     raise ValueError("too large")
    >>> try:
    ...     y = fnx.pure_callback(check, fnx.ShapeDtypeStruct((), float), 9.0)
    ... except fnx.errors.JaxRuntimeError as error:
    ...     print(isinstance(error, ValueError), error)
    True a callback raised ValueError: too large
    """


@cache
def _joined(kind: type[Exception], other: type[Exception], **members: Any) -> type[Exception]:
    members |= {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    return type(kind.__name__, (kind, other), members)


def of_both(kind: type[FnxError], other: type[Exception], message: str) -> Exception:
    """An error of a class of ours that is one of another class, too, which JAX raises."""
    return _joined(kind, other)(message)  # type: ignore[arg-type]


@cache
def _raised(kind: type[Exception]) -> type[Exception]:
    def text(self: Exception) -> str:
        return f"a callback raised {kind.__name__}: {kind.__str__(self)}"

    return _joined(kind, JaxRuntimeError, __str__=text)  # type: ignore[arg-type]


def raised_by_callback(error: Exception) -> Exception:
    """What a callback raised, as an error of its own class that is a JaxRuntimeError, too."""
    if isinstance(error, (JaxRuntimeError, UnicodeError)):  # whose arguments are not only arguments
        return error
    try:
        kind = _raised(type(error))  # type: ignore[arg-type]
        made = kind.__new__(kind, *error.args)
    except TypeError:  # its class cannot be joined with another, or be made so
        return error
    made.args = error.args
    made.__dict__.update(error.__dict__)
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    return made.with_traceback(error.__traceback__)


class CompileError(JaxRuntimeError):
    """Native code could not be made; names the file with the Kernel IR and the way around.

    It is a mistake in fnx. What the file holds is what a report of it needs.

    >>> f = fnx.jit(lambda x: x + 1.0)
    >>> try:
    ...     y = f(2.0)
    ... except fnx.errors.CompileError:
    ...     fnx.config.update("backend", "reference")
    ...     y = f(2.0)
    >>> y
    Array(3., dtype=float64, weak_type=True)
    """


# --- tracebacks --------------------------------------------------------------------------------


def hide_frames(error: BaseException) -> None:
    """Cut fnx's frames out of a traceback, unless the error is fnx's own fault.

    The setting `traceback_filtering` (FNX_TRACEBACK_FILTERING=0) keeps them.
    """
    tracebacks = _tracebacks(error)
    if not tracebacks or not config.traceback_filtering.value:
        return
    ours = [is_internal(t.tb_frame.f_code.co_filename) for t in tracebacks]
    if ours[-1] and not isinstance(error, FnxError) and not _is_misfit(error, tracebacks):
        return
    kept: TracebackType | None = None
    for t, inside in zip(reversed(tracebacks), reversed(ours)):
        if not inside:
            kept = TracebackType(kept, t.tb_frame, t.tb_lasti, t.tb_lineno)
    error.__traceback__ = kept
    _hide_chain(error)


def _tracebacks(error: BaseException) -> list[TracebackType]:
    """From the outermost frame to the one that raised."""
    found: list[TracebackType] = []
    tb = error.__traceback__
    while tb is not None:
        found.append(tb)
        tb = tb.tb_next
    return found


def _is_misfit(error: BaseException, tracebacks: list[TracebackType]) -> bool:
    """Whether it is users' mistake: arguments that do not fit a function, endless recursion."""
    if isinstance(error, RecursionError):
        return not _is_inner(error)
    if type(error) is not TypeError:
        return False
    if len(tracebacks) == 1:  # what the user called was not entered
        return True
    names = tracebacks[-1].tb_frame.f_locals
    owner = getattr(names.get("self"), "__dict__", {})
    return any(_is_refusal_of(f, str(error)) for f in (*names.values(), *owner.values()))


def _is_refusal_of(f: Any, text: str) -> bool:
    """Whether a TypeError says that the arguments of a user's function do not fit."""
    while isinstance(f, partial):
        f = f.func
    code = getattr(f, "__code__", None)
    if code is None or is_internal(code.co_filename):
        return False
    return text.startswith(f"{f.__qualname__}() ")


def _hide_chain(error: BaseException) -> None:
    """What fnx caught on the way to an error of its own tells users nothing; what they caught does."""
    while error.__context__ is not None and _is_inner(error.__context__):
        if error.__context__ is error.__cause__:
            error.__context__.__traceback__ = None
            return
        error.__context__ = error.__context__.__context__


def _is_inner(error: BaseException) -> bool:
    """Whether an error came from fnx, and none of the user's functions saw it."""
    return all(is_internal(t.tb_frame.f_code.co_filename) for t in _tracebacks(error))


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
