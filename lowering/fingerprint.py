"""Names for jaxprs: the same for the same program, in every process.

Code on disk is found by such a name without being generated again. A name covers all that lowering
may look at. A jaxpr that holds what cannot be named, a user's function say, has none.
"""

import enum
import marshal
import types
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.dtypes import NAME
from fnx.core.jaxpr import Atom, Jaxpr, Literal, Var, made_once

try:  # as in the cache
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b


class Nameless(Exception):
    """A value that means something in this process only."""


def of(jaxpr: Jaxpr, *more: Any) -> bytes | None:
    """The bytes that tell a jaxpr, and more values, from others; None where there are none."""
    try:
        # Version 2 writes equal values equally; later ones note which objects are shared.
        return marshal.dumps((_jaxpr(jaxpr), _value(more)), 2)
    except (Nameless, RecursionError, ValueError):
        return None


def _jaxpr(jaxpr: Jaxpr) -> tuple:
    numbers: dict[Var, int] = {}

    def define(variables: tuple[Var, ...]) -> tuple:
        for v in variables:
            numbers[v] = len(numbers)
        return tuple([_aval(v.aval) for v in variables])

    def use(atoms: tuple[Atom, ...]) -> tuple:
        return tuple([numbers[a] if type(a) is Var else _literal(a) for a in atoms])

    inputs = define(jaxpr.inputs)
    lines = [(_value(e.prim), use(e.inputs), define(e.outs)) for e in jaxpr.eqns]
    return "jaxpr", jaxpr.consts, inputs, tuple(lines), use(jaxpr.outs)


@made_once
def _inner(jaxpr: Jaxpr) -> tuple:
    """A jaxpr in a primitive, which may be in many."""
    data = marshal.dumps(_jaxpr(jaxpr), 2)
    return "jaxpr", blake2b(data, digest_size=32).digest()


def _aval(aval: ShapedArray) -> tuple:
    dtype = aval.dtype
    return tuple(map(int, aval.shape)), NAME.get(dtype) or str(dtype), aval.weak_type


def _literal(atom: Literal) -> tuple:
    return _array(atom.value)


def _array(array: Any) -> tuple:
    if not isinstance(array, (ConcreteArray, np.ndarray, np.generic)):
        raise Nameless
    value = array._value if isinstance(array, ConcreteArray) else np.asarray(array)
    if value.dtype.hasobject:
        raise Nameless
    weak = getattr(array, "weak_type", False)
    return "array", value.shape, str(value.dtype), weak, value.tobytes()


# What marshal writes as it is, each with its type; all else becomes a tuple that begins with a word.
_PLAIN = frozenset({type(None), bool, int, float, complex, str, bytes})


def _value(value: Any) -> Any:
    """A value as nested tuples of what marshal writes."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is tuple or kind is list:
        return kind.__name__, *[x if type(x) in _PLAIN else _value(x) for x in value]
    named = _NAMED.get(kind)
    if named is not None:
        return named(value)
    if isinstance(value, enum.Enum):
        return _own(kind), value.name
    if isinstance(value, tuple):  # with names
        return _own(kind), tuple([_value(x) for x in value])
    if isinstance(value, np.dtype):
        return "dtype", str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return _primitive(value) if kind.__eq__ is object.__eq__ else _record(value)
    if isinstance(value, type):
        return "class", value.__module__, value.__qualname__
    return _array(value)


def _record(value: Any) -> tuple:
    kind = type(value)
    return _own(kind), *[_value(getattr(value, f)) for f in _fields(kind)]


@lru_cache(1024)
def _primitive(value: Any) -> tuple:
    """Elementwise primitives are compared by identity: the same is met in nearly every equation."""
    return _record(value)


def _function(function: types.FunctionType) -> tuple:
    """A function of fnx, by where it stands in the source and what it closed over."""
    inside = [cell.cell_contents for cell in function.__closure__ or ()]
    extra = (*inside, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
    line = function.__code__.co_firstlineno
    return _own(function), line, function.__code__.co_code, _value(extra)


def _own(thing: Any) -> str:
    """The full name of a class or function of fnx, whose sources belong to every name."""
    module = thing.__module__ or ""
    if not module.startswith("fnx."):
        raise Nameless
    return f"{module}.{thing.__qualname__}"


def _fields(kind: type) -> list[str]:
    """The fields that values of a class are told apart by.

    Elementwise primitives are compared by identity; name and scalar operation tell them apart.
    """
    if kind not in _known:
        chosen = [f for f in fields(kind) if f.compare]
        if kind.__eq__ is object.__eq__:
            chosen = [f for f in chosen if f.name in ("name", "expr")]
            if len(chosen) != 2:
                raise Nameless
        _known[kind] = [f.name for f in chosen]
    return _known[kind]


_known: dict[type, list[str]] = {}
_NAMED: dict[type, Any] = {
    Jaxpr: _inner,
    ShapedArray: lambda aval: ("aval", *_aval(aval)),
    types.FunctionType: _function,
    np.ufunc: lambda ufunc: ("ufunc", ufunc.__name__),
    slice: lambda s: ("slice", _value((s.start, s.stop, s.step))),
    range: lambda r: ("range", r.start, r.stop, r.step),
    dict: lambda d: ("dict", tuple([(_value(k), _value(v)) for k, v in d.items()])),
    frozenset: lambda s: ("frozenset", tuple(sorted([_value(x) for x in s]))),
}
