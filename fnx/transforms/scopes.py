"""Scopes and views of functions: names, evaluation while tracing, types, reports of what was compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.core.config import checked_axes
from fnx.core.errors import TypeMismatch
from fnx.core.interpreter import Interpreter, Operation, Tracer, current, evaluate, use
from fnx.core.source import scopes, set_scopes
from fnx.core.threads.atomic import during
from fnx.pytree.flatten_fun import aval_like, check_callable, name_of, wraps
from fnx.transforms.jit import Jitted, jit
from fnx.transforms.mutable_refs import AbstractRef, Ref


def compile_report(fun: Callable, *args: Any, **kwargs: Any) -> str:
    """What the native program of a function on these arguments is made of.

    Kernels and what fused in them, calls of libraries and of the host, bytes, times.

    >>> report = fnx.compile_report(lambda x: jnp.sum(x**2), jnp.ones(1000))
    >>> report.splitlines()[1].strip()
    'kernel k1_reduce_sum: [1000] reduce_sum'
    """
    check_callable(fun, "compile_report")
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    return jitted.lower(*args, **kwargs).compile().report()


@contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Within it, operations on known values are computed at once, inside jit too.

    >>> @fnx.jit
    ... def scaled(x):
    ...     with fnx.ensure_compile_time_eval():
    ...         if jnp.sqrt(4.0) == 2.0:  # known while tracing
    ...             return 2 * x
    >>> float(scaled(3.0))
    6.0
    """
    with use(KnownAtOnce(current.get())):
        yield


class KnownAtOnce(Interpreter):
    """Evaluates what needs no traced value, and hands everything else to the interpreter outside."""

    what = "ensure_compile_time_eval"

    def __init__(self, parent: Interpreter):
        self.parent = parent

    def process(self, prim: Operation, args: tuple) -> tuple:
        traced = any(isinstance(a, Tracer) for a in args)
        inner = self.parent if traced and self.parent is not None else evaluate
        with use(inner):
            return inner.process(prim, args)


@contextmanager
def named_scope(name: str) -> Iterator[None]:
    """A name for what is traced within it, which equations tell. TypeError for what is no text.

    >>> @fnx.named_scope("step")
    ... def step(x):
    ...     return jnp.sin(x)
    >>> (eqn,) = fnx.make_jaxpr(step)(0.0).eqns
    >>> str(eqn.source_info.name_stack)
    'step'
    """
    if not isinstance(name, str):
        raise TypeMismatch(
            f"named_scope needs a name, a str, not a {type(name).__name__}: {name!r:.60}"
        )
    with during(set_scopes, (*scopes.get(), name)):
        yield


def named_call(fun: Callable, *, name: str | None = None) -> Callable:
    """The function under another name, and a scope of that name; its arguments may be any Python values.

    >>> fnx.named_call(lambda x: x + 1, name="increment").__name__
    'increment'
    """
    check_callable(fun, "named_call")

    @wraps(fun)
    def named(*args: Any, **kwargs: Any) -> Any:
        with named_scope(own):
            return fun(*args, **kwargs)

    own = named.__name__ = name or name_of(fun)
    return named


types_of_libraries: dict[type, Callable] = {}  # of values that are no arrays: what their types are


def typeof(x: Any) -> Any:
    """The abstract value of an array: shape, dtype, whether it is weakly typed; of Refs and keys, too.

    >>> fnx.typeof(jnp.ones((2, 3)))
    ShapedArray(float64[2,3])
    >>> fnx.typeof(fnx.random.split(fnx.random.key(0)))
    ShapedArray(key<fry>[2])
    """
    if isinstance(x, Ref):
        return AbstractRef(x.aval)
    if getattr(x, "holds_keys", False):
        return x.aval
    if type(x) in types_of_libraries:
        return types_of_libraries[type(x)](x)
    aval = aval_like(x)
    return aval.varying(aval.vma & checked_axes.get())
