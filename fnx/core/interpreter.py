"""Interpreters: who processes a primitive now. The root one evaluates; the others transform.

An interpreter owns its tracers and unwraps only its own (`tracer.owner is self`); what is not its
own it passes down to its `parent`, and it runs rules under its parent.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import GenericAlias
from typing import Any, Protocol

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, as_array, no_truth
from fnx.core.aval import ShapedArray, check_size, too_large
from fnx.core.buffer import on_host
from fnx.core.errors import (
    ConcretizationTypeError,
    FnxError,
    MissingRule,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    TypeMismatch,
    UnexpectedTracerError,
)
from fnx.core.source import Source, at_line
from fnx.core.threads import at_exit  # noqa: F401  # ends threads that run what is here
from fnx.core.threads.atomic import during, setter


class Operation(Protocol):
    """What interpreters ask of a primitive (`fnx/core/primitive.py`), which itself asks for `current`."""

    name: str
    multiple_results: bool
    linearize: Any
    effects: bool
    typed_by: Any

    def impl(self, *values: Any) -> Any: ...

    def abstract(self, *avals: Any) -> Any: ...

    def is_computed_wider(self) -> bool: ...

    def widened(self) -> Any: ...

    def handed_to(self, trace: Any, args: tuple) -> Any: ...


class Interpreter:
    """Processes primitives. `what` names the transformation in errors."""

    what = "an interpreter"
    parent: "Interpreter | None" = None
    looks = False  # whether it says of results where they come from
    run_public: Callable | None = (
        None  # how it runs a public function, if it looks at it as a whole
    )
    ended = False  # whether the transformation is over and its tracers are dead
    __class_getitem__: Any = classmethod(GenericAlias)  # programs name the type of its tracers
    source: Source | None = None  # where the user called the transformation

    @property
    def main(self) -> "Interpreter":
        """Itself: what programs for JAX tell transformations apart by."""
        return self

    def process(self, prim: Operation, args: tuple) -> tuple:
        """By the methods that interpreters written for JAX have, which say themselves what is current."""
        with use(evaluate):
            outs = prim.handed_to(self, args)
        return tuple([as_array(o) for o in (outs if prim.multiple_results else (outs,))])

    def full_raise(self, x: Any) -> Any:
        """A value as it is: interpreters take arrays of others."""
        return x

    def process_primitive(self, primitive: Any, tracers: tuple, params: dict) -> Any:
        """Results of a primitive, as `params` say, of tracers and arrays: for interpreters of users'."""
        raise MissingRule(f"{type(self).__name__} has no process_primitive for {primitive}")

    def process_custom_jvp_call(
        self, primitive: Any, fun: Any, jvp: Any, tracers: tuple, *, symbolic_zeros: bool
    ) -> Any:
        """Results of a function with a rule of its own for tangents."""
        raise MissingRule(f"{type(self).__name__} has no process_custom_jvp_call")

    def process_custom_vjp_call(
        self, primitive: Any, fun: Any, fwd: Any, bwd: Any, tracers: tuple,
        out_trees: Any, symbolic_zeros: bool,
    ) -> Any:  # fmt: skip
        """Results of a function with a rule of its own for cotangents."""
        raise MissingRule(f"{type(self).__name__} has no process_custom_vjp_call")

    def concrete(self, tracer: "Tracer") -> Array | None:
        """The value to which a tracer's Python truth is asked of, or None if it has none."""
        return None


def is_recorded(interpreter: Interpreter) -> bool:
    """Whether what it is given ends in equations, or is looked at: it then says where it comes from."""
    while interpreter.parent is not None and not interpreter.looks:
        interpreter = interpreter.parent
    return interpreter is not evaluate


def public_runner() -> Callable | None:
    """How public functions are run now, if not by calling them."""
    interpreter = current.get()
    while interpreter.parent is not None and not interpreter.looks:
        interpreter = interpreter.parent
    return interpreter.run_public


class Tracer(Array):
    """Stands for an array while `owner` is at work."""

    __slots__ = ("__weakref__", "owner")
    owner: Interpreter
    aval: ShapedArray  # a slot or a property of each kind of tracer

    def __init__(self, trace: Interpreter, aval: ShapedArray | None = None):
        """For kinds of tracers that programs for JAX define, which have no slots."""
        self.owner = trace
        if aval is not None:
            self.aval = aval  # type: ignore[misc]

    @property
    def weak_type(self) -> bool:
        return self.aval.weak_type

    def full_lower(self) -> Array:
        """The array itself; kinds of tracers may know of one that needs no tracer."""
        return self

    @property
    def _trace(self) -> Interpreter:
        """Its interpreter, under the name that programs for JAX look it up by."""
        return self.owner

    @_trace.setter
    def _trace(self, owner: Interpreter) -> None:
        self.owner = owner

    def made_at(self) -> Source | None:
        """Where this value was made."""
        return self.owner.source

    def _concrete(self, error: type[Exception], use: str) -> Any:
        value = self.owner.concrete(self)
        if value is None:
            raise error(
                f"{use} of a traced value of type {self.aval.str_short()} inside {self.owner.what}"
                f"{at_line(self.made_at()).replace('at', 'made at', 1)}\n"
                f"{_HINTS[error]}"
            )
        return value

    def __bool__(self) -> bool:
        if self.size != 1:  # whatever its numbers are
            raise no_truth(self)
        return bool(self._concrete(TracerBoolConversionError, "the truth"))

    def __int__(self) -> int:
        return int(self._concrete(ConcretizationTypeError, "int()"))

    def __float__(self) -> float:
        return float(self._concrete(ConcretizationTypeError, "float()"))

    def __complex__(self) -> complex:
        return complex(self._concrete(ConcretizationTypeError, "complex()"))

    def __index__(self) -> int:
        use = "use as an index, a length or an entry of a shape"
        return self._concrete(TracerIntegerConversionError, use).__index__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._concrete(TracerArrayConversionError, "the NumPy array"), dtype)

    def __reduce__(self) -> Any:
        raise ConcretizationTypeError(
            f"a pickle of a traced value of type {self.aval.str_short()} inside {self.owner.what}: it has "
            "no numbers of its own. Return it, and pickle what the transformed function gives."
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeMismatch("len() of an array of rank 0")
        return self.shape[0]

    def __repr__(self) -> str:
        text = f"Tracer<{self.aval.str_short()}> of {self.owner.what}"
        if config.exploration.get() is None:
            return text
        value: Array | None = self
        while isinstance(value, Tracer):
            value = value.owner.concrete(value)
        return text if value is None else f"{text}, whose value is {value}"

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __copy__(self) -> "Tracer":
        return self

    def __deepcopy__(self, memo: dict) -> "Tracer":
        return self


_HINTS: dict[type, str] = {
    TracerBoolConversionError: (
        "Its value is not known while the function is traced, so Python cannot branch on it. Use "
        "jnp.where or lax.cond for a choice, lax.while_loop for a loop, or mark the argument that "
        "it comes from static (static_argnums, static_argnames)."
    ),
    ConcretizationTypeError: (
        "Its value is not known while the function is traced. Keep it an array (x.astype(...)), or "
        "mark the argument that it comes from static (static_argnums, static_argnames)."
    ),
    TracerIntegerConversionError: (
        "Its value is not known while the function is traced, so it cannot be a Python integer. "
        "Index arrays (jnp.asarray(list)[i]), not lists; loop with lax.fori_loop; or mark the "
        "argument that it comes from static (static_argnums, static_argnames)."
    ),
    TracerArrayConversionError: (
        "NumPy needs the numbers, which are not known while the function is traced. Use fnx.numpy "
        "instead of numpy, or fnx.pure_callback for code that needs NumPy."
    ),
}


try:
    # Of np.errstate only what it does in the end: the whole costs more than a small addition.
    from numpy._core.umath import _extobj_contextvar as _float_errors  # type: ignore[attr-defined]
    from numpy._core.umath import _make_extobj  # type: ignore[attr-defined]

    _IGNORE = _make_extobj(all="ignore")
except ImportError:

    class _float_errors:  # type: ignore[no-redef]
        """The same by public functions."""

        @staticmethod
        def set(settings: dict) -> Any:
            return np.seterr(**settings)

        @staticmethod
        def reset(settings: dict) -> None:
            np.seterr(**settings)

    _IGNORE = {"all": "ignore"}  # type: ignore[assignment]


_float_errors_of = setter(_float_errors)


class Eval(Interpreter):
    """The root: runs each primitive's `impl` on NumPy arrays at once."""

    what = "eager evaluation"

    def process(self, prim: Operation, args: tuple) -> tuple:
        try:
            values = [a._value for a in args]
        except AttributeError:
            args = tuple(evaluable(a, prim) for a in args)
            values = [a._value for a in args]
        token = _float_errors_of[_IGNORE]
        try:
            outs = prim.impl(*values)
        except Exception as error:  # LAPACK's wrappers have errors of their own
            if not isinstance(error, FnxError) and prim.linearize is None and not prim.effects:
                avals = prim.abstract(*[a.aval for a in args])  # says more than NumPy, and where
                check_size(*avals)
                if isinstance(error, MemoryError):
                    raise too_large(*avals) from error
            raise
        finally:
            _float_errors.reset(token)
        for a in args if prim.typed_by is None else args[prim.typed_by]:
            if not a.weak_type:
                break
        else:
            if args:
                return self._weak(prim, args, outs)
        if type(outs) is np.ndarray:
            return (ConcreteArray(outs),)
        if type(outs) is tuple:
            if any([a.weak_type for a in args]):  # each result has a type of its own
                return self._weak(prim, args, outs)
            return tuple(
                [o if type(o) is ConcreteArray else ConcreteArray(_array(o)) for o in outs]
            )
        return (ConcreteArray(_array(outs)),)

    def _weak(self, prim: Operation, args: tuple, outs: Any) -> tuple:
        many = outs if type(outs) is tuple else (outs,)
        if all([type(o) is ConcreteArray for o in many]):
            return many
        avals = prim.abstract(*[a.aval for a in args])
        return tuple(
            o if type(o) is ConcreteArray else ConcreteArray(_array(o), a.weak_type)
            for o, a in zip(many, avals, strict=True)
        )


Process = Callable[[Eval, Operation, tuple], tuple]
_process_at_once: Process = Eval.process
_ways: list[Callable[[Process, Eval, Operation, tuple], tuple]] = []


def evaluate_by(
    way: Callable[[Process, Eval, Operation, tuple], tuple], inner: bool = False
) -> None:
    """Let `way` evaluate from now on; it is given how that was done, or, `inner`, is at once."""
    _ways.insert(0 if inner else len(_ways), way)
    process = _process_at_once
    for known in _ways:
        process = _through(known, process)
    Eval.process = process  # type: ignore[method-assign, assignment]


def _through(way: Callable, process: Process) -> Process:
    return lambda self, prim, args: way(process, self, prim, args)


def _process_small(process: Process, self: Eval, prim: Operation, args: tuple) -> tuple:
    """As Eval's, where small dtypes are in use: what computes is run in wider ones and rounded."""
    small = any([getattr(a, "dtype", None) in dtypes.SMALL for a in args])  # numbers have none
    if not small or not prim.is_computed_wider():
        return process(self, prim, args)
    known = [evaluable(a, prim) for a in args]
    avals = prim.abstract(*[a.aval for a in known])
    wide = [ConcreteArray(dtypes.widened(on_host(a._value)), a.weak_type) for a in known]
    outs = process(self, prim.widened(), tuple(wide))
    return tuple(
        [
            o if o.dtype == a.dtype else ConcreteArray(o._value.astype(a.dtype), a.weak_type)
            for o, a in zip(outs, avals, strict=True)
        ]
    )


def _array(value: Any) -> np.ndarray:
    # NumPy gives scalars for results of rank 0, and views that are not contiguous for some calls.
    if type(value) is np.ndarray and value.flags.c_contiguous:
        return value
    return np.asarray(value, order="C")


def evaluable(x: Any, prim: Operation) -> ConcreteArray:
    if isinstance(x, Tracer):
        raise leaked(x, prim)
    return as_array(x)  # type: ignore[return-value]


def leaked(x: Tracer, prim: Operation) -> UnexpectedTracerError:
    """The error for a tracer that is used outside its transformation."""
    return UnexpectedTracerError(
        f"a traced value of type {x.aval.str_short()} was used by {prim.name} after "
        f"{x.owner.what} had ended{at_line(x.made_at()).replace('at', 'made at', 1)}\n"
        "Values leave a transformed function only as its results: return it, instead of storing "
        "it in a global, an attribute or a list."
    )


evaluate = Eval()
dtypes.first_small.append(lambda: evaluate_by(_process_small, inner=True))
current: ContextVar[Interpreter] = ContextVar("interpreter", default=evaluate)
set_current = setter(current)


def use(interpreter: Interpreter) -> AbstractContextManager[None]:
    """Make `interpreter` the current one for a while."""
    return during(set_current, interpreter)


# How to find the type of values that are no arrays, where a program has said so.
pytype_aval_mappings: dict[type, Callable[[Any], ShapedArray]] = {
    np.ndarray: lambda x: as_array(x).aval
}


def get_aval(x: object) -> ShapedArray:
    """The type of a value."""
    rule = pytype_aval_mappings.get(type(x))
    return as_array(x).aval if rule is None else rule(x)
