"""Functions that are written with many primitives, called eagerly with small arrays.

Around each primitive that is called by itself Python does several times the work of NumPy: promotion,
shapes, axes. A replayed function is traced when it is called with arguments of the same types again; later
calls run the `impl` of each equation of its jaxpr, one after the other. So results are those of the plain
call, to the bit, and nothing is compiled: tracing takes half a millisecond.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from fnx.core import config, dtypes
from fnx.core.array import Array, ConcreteArray, any_placed, as_array, when_placed
from fnx.core.aval import ShapedArray
from fnx.core.errors import FnxError
from fnx.core.interpreter import _IGNORE, _float_errors, _float_errors_of
from fnx.core.jaxpr import Jaxpr, Var
from fnx.numpy.arrays.util import eager

_SMALL = 1 << 12  # elements; with more the time is NumPy's
_MANY = 64  # signatures of a function
_PLAIN = 1 << 31  # larger numbers may have no place in the dtype of others
_STATIC = frozenset([int, bool, str, type(None), type])
_NUMBERS = frozenset([int, float, complex, bool])
_functions: list[Any] = []


def replayed(*numbers: str) -> Callable[[Callable], Callable]:
    """Makes a function one that is replayed; Python numbers are values of the arguments `numbers`.

    Those of other arguments are part of the signature, as strings and None are.
    """

    def make(f: Callable) -> Callable:
        replays = _Replays(f, numbers)

        @wraps(f)
        def call(*args: Any, **kwargs: Any) -> Any:
            found = replays(args, kwargs) if eager() and not config.overridden.get() else None
            return f(*args, **kwargs) if found is None else found

        call.replays = replays  # type: ignore[attr-defined]
        _functions.append(call)
        return call

    return make


class _Replays:
    """The jaxprs of a function, by the types of arrays and the values of other arguments."""

    def __init__(self, f: Callable, numbers: Sequence[str]):
        inner = f
        while hasattr(inner, "__wrapped__"):
            inner = inner.__wrapped__
        names = inner.__code__.co_varnames  # arguments first
        self.f, self.programs, self.seen = f, dict[tuple, Any](), set[tuple]()
        self.numbers = frozenset([*numbers, *map(names.index, numbers)])

    def __call__(self, args: tuple, kwargs: dict) -> Any:
        """The results; None where the plain call is the better way, or raises the better error."""
        key: list = []
        values: list[np.ndarray] = []
        for k, x in (*enumerate(args), *kwargs.items()):
            kind = type(x)
            if kind in _NUMBERS and k in self.numbers and abs(x) <= _PLAIN:
                x = as_array(x)
                kind = ConcreteArray
            if kind is ConcreteArray:
                value = x._value
                if type(value) is not np.ndarray or value.size > _SMALL:
                    return None
                values.append(value)
                key.append((k, value.shape, value.dtype, x.weak_type))
            elif kind in _STATIC or kind is tuple and all([type(n) is int for n in x]):
                key.append((k, kind, x))
            else:
                return None
        signed = tuple(key)
        program = self.programs.get(signed)
        if program is None:
            program = self._seen(signed, args, kwargs)
        return program(values) if type(program) is Program else None

    def _seen(self, key: tuple, args: tuple, kwargs: dict) -> "Program | str":
        """What is found from now on: that there was a call, or that there will be no program."""
        if key not in self.seen:
            if len(self.seen) >= _MANY:
                self.seen.clear()
                self.programs.clear()
            self.seen.add(key)
            return "seen"
        program: Program | str = self._made(_program, key, args, kwargs)
        self.programs[key] = program
        return program

    def _made(self, make: Callable, key: tuple, args: tuple, kwargs: dict) -> Any:
        try:
            return make(self.f, key, args, kwargs)
        except (FnxError, TypeError, ValueError, ArithmeticError, LookupError):
            return "none"  # it depends on values, or the arguments do not fit

    def at_once(self, args: tuple, kwargs: dict) -> Any:
        """The results for arrays of any size, by one operation; None where that is not the same."""
        given = {**dict(enumerate(args)), **kwargs}
        arrays, key = [], []
        for k, x in given.items():
            number = type(x) in _NUMBERS and k in self.numbers and abs(x) <= _PLAIN
            if number or type(x) is ConcreteArray:
                arrays.append(as_array(x))
                a = arrays[-1].aval
                key.append((k, a.shape, a.dtype, a.weak_type))
            elif type(x) in _STATIC or type(x) is tuple and all([type(n) is int for n in x]):
                key.append((k, type(x), x))
            else:
                return None
        signed = ("at once", *key)
        if signed not in self.programs:
            self.programs[signed] = self._made(_traced, tuple(key), args, kwargs)
        if self.programs[signed] == "none":
            return None
        from fnx.interpreters.primitives import jit

        jaxpr, consts, structure = self.programs[signed]
        return _built(structure, jit.Jit(jaxpr, self.f.__name__).apply(*consts, *arrays))


def _see_placed() -> None:
    short = _Replays.__call__

    def call(self: _Replays, args: tuple, kwargs: dict) -> Any:
        seen = any_placed(args) or any_placed(kwargs.values())
        return self.at_once(args, kwargs) if seen else short(self, args, kwargs)

    _Replays.__call__ = call  # type: ignore[method-assign]


when_placed(_see_placed)


def _forget() -> None:
    for f in _functions:
        f.replays.programs.clear()
        f.replays.seen.clear()


config.hooks.append(_forget)  # jaxprs depend on settings


def _program(f: Callable, key: tuple, args: tuple, kwargs: dict) -> "Program | str":
    found = _traced(f, key, args, kwargs)
    if type(found) is str:
        return found
    if any([v.aval.dtype in dtypes.SMALL for e in found[0].eqns for v in (*e.inputs, *e.outs)]):
        return "none"  # these are not computed by `impl` alone
    return Program(*found)


def _traced(f: Callable, key: tuple, args: tuple, kwargs: dict) -> Any:
    """A function's jaxpr and its constants, and what kind of sequence its results are, if they are."""
    from fnx.interpreters.trace import trace

    places = [entry[0] for entry in key if len(entry) == 4]
    avals = [ShapedArray(*entry[1:]) for entry in key if len(entry) == 4]
    structure: list = []

    def flat(*xs: Array) -> list[Array]:
        given: dict = {**dict(enumerate(args)), **kwargs, **dict(zip(places, xs, strict=True))}
        out = f(*[given.pop(k) for k in range(len(args))], **given)
        structure.append(type(out) if isinstance(out, (tuple, list)) else None)
        return list(out) if structure[0] else [out]

    jaxpr, consts = trace(flat, avals, what=f.__name__)
    if not all([type(c) is ConcreteArray for c in consts]):
        return "none"
    return jaxpr, consts, structure[0]


def _built(structure: type | None, results: Sequence[Array]) -> Any:
    """What a function returns of these results."""
    if structure is None:
        return results[0]
    fields = getattr(structure, "_fields", None)
    return structure(results) if fields is None else structure(*results)  # type: ignore[call-arg]


class Program:
    """A jaxpr whose equations are evaluated one after the other; values have numbers."""

    def __init__(self, jaxpr: Jaxpr, consts: list[Array], structure: type | None):
        number: dict[Var, int] = {v: k for k, v in enumerate(jaxpr.inputs)}
        known = [c._value for c in consts]  # type: ignore[attr-defined]
        blank: list = [*known, *[None] * (len(jaxpr.inputs) - len(known))]

        def place(atom: Any) -> int:
            if type(atom) is Var and atom in number:
                return number[atom]
            blank.append(None if type(atom) is Var else atom.value._value)
            if type(atom) is Var:
                number[atom] = len(blank) - 1
            return len(blank) - 1

        self.steps = [
            (e.prim.impl, [place(a) for a in e.inputs], [place(v) for v in e.outs])
            for e in jaxpr.eqns
        ]
        self.outs = [(place(a), a.aval.weak_type) for a in jaxpr.outs]
        self.blank, self.inputs, self.structure = (
            blank,
            slice(len(known), len(jaxpr.inputs)),
            structure,
        )

    def __call__(self, inputs: list[np.ndarray]) -> Any:
        values = self.blank.copy()
        values[self.inputs] = inputs
        token = _float_errors_of[_IGNORE]
        try:
            for impl, ins, outs in self.steps:
                found = impl(*[values[k] for k in ins])
                for k, x in zip(outs, found if type(found) is tuple else (found,)):
                    if type(x) is ConcreteArray:
                        x = x._value
                    if type(x) is not np.ndarray or not x.flags.c_contiguous:
                        x = np.asarray(x, order="C")
                    values[k] = x
        finally:
            _float_errors.reset(token)
        return _built(self.structure, [ConcreteArray(values[k], weak) for k, weak in self.outs])


def functions() -> list[Callable]:
    """All replayed functions."""
    return _functions


__all__ = ["functions", "replayed"]
