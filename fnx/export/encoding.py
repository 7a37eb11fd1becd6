"""Jaxprs as trees of lists, numbers and strings, which files can hold, and back; no code among them.

A tree is None, a bool, an int, or a list that begins with a tag. Classes and primitives are written by
name, and found again only where they are what primitives of fnx consist of.
"""

import base64
import dataclasses
import enum
import importlib
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive
from fnx.ops.base.broadcast import Constant

_ROOMS = ("fnx.core.", "fnx.ops.", "fnx.interpreters.", "fnx.lax.")  # of what has a name in a file


# --- names -------------------------------------------------------------------------------------


def _name(thing: Any) -> str:
    module, name = thing.__module__ or "", thing.__qualname__
    if not module.startswith(_ROOMS) or "<" in name:
        raise InvalidValue(
            f"a program that contains {module}.{name} cannot be exported; expected operations of fnx "
            "alone: callbacks, users' primitives and Python functions live in one process"
        )
    return f"{module}:{name}"


def _named(text: Any) -> Any:
    module, _, name = str(text).partition(":")
    if not module.startswith(_ROOMS):
        raise InvalidValue(f"{text!r:.80} is no name of what programs consist of")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    if isinstance(found, types.ModuleType) or getattr(found, "__module__", module) != module:
        raise InvalidValue(f"{text!r:.80} is no name of what programs consist of")
    return found


def _kind(text: Any, base: type) -> Any:
    found = _named(text)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InvalidValue(f"{text!r:.80} is no {base.__name__}")
    return found


_places: dict[int, str] = {}  # of primitives that are compared by identity, by their id


def _place(prim: Primitive) -> str:
    """The module and name under which a primitive that has no parameters lies."""
    if id(prim) not in _places:
        for module in [m for n, m in list(sys.modules.items()) if n.startswith("fnx.ops.")]:
            for name, value in list(vars(module).items()):
                if isinstance(value, Primitive) and type(value).__eq__ is object.__eq__:
                    _places.setdefault(id(value), f"{module.__name__}:{name}")
    if id(prim) not in _places:
        raise InvalidValue(
            f"a program with the primitive {prim.name!r} cannot be exported; expected operations of fnx "
            "alone: callbacks, users' primitives and Python functions live in one process"
        )
    return _places[id(prim)]


# --- to trees ----------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """The tree of a value; InvalidValue for what means something in this process only."""
    kind = type(value)
    if value is None or kind in (bool, int):
        return value
    if kind in _ENCODERS:
        return _ENCODERS[kind](value)
    if isinstance(value, np.dtype):
        return ["dtype", dtypes.NAME.get(value) or str(value)]
    if isinstance(value, enum.Enum):
        return ["enum", _name(kind), value.name]
    if isinstance(value, tuple):  # with names
        return ["named", _name(kind), *map(encode, value)]
    if isinstance(value, (np.ndarray, np.generic)):
        return ["numpy", *_array(value)[1:]]
    if kind is Constant:
        return ["constant", encode(value.value)]
    if isinstance(value, Primitive) and kind.__eq__ is object.__eq__:
        return ["primitive", _place(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        given = [f.name for f in dataclasses.fields(kind) if f.init and f.compare]
        return ["object", _name(kind), *[[n, encode(getattr(value, n))] for n in given]]
    if isinstance(value, type):
        return ["class", _name(value)]
    raise InvalidValue(
        f"a program that contains a {kind.__name__} cannot be exported: {value!r:.60}; expected operations "
        "of fnx alone, since Python objects live in one process"
    )


def _array(value: Any) -> list:
    numbers = np.asarray(value._value if isinstance(value, ConcreteArray) else value)
    if numbers.dtype.hasobject:
        raise InvalidValue("an array of Python objects cannot be exported; expected numbers")
    weak, name = getattr(value, "weak_type", False), encode(numbers.dtype)[1]
    if not numbers.shape and dtypes.kind(numbers.dtype) in "biuf":
        return ["number", name, weak, encode(_item(numbers))]
    data = base64.b64encode(numbers.tobytes()).decode()
    return ["array", name, weak, list(numbers.shape), data]


def _item(numbers: np.ndarray) -> Any:
    return float(numbers) if dtypes.is_float(numbers.dtype) else numbers.item()


def encode_jaxpr(jaxpr: Jaxpr) -> list:
    """A jaxpr: inputs, equations, outputs, with numbers for variables."""
    numbers: dict[Var, int] = {}

    def define(variables: tuple[Var, ...]) -> list:
        for v in variables:
            numbers[v] = len(numbers)
        return [encode(v.aval) for v in variables]

    def use(atoms: tuple[Atom, ...]) -> list:
        return [_array(a.value) if isinstance(a, Literal) else numbers[a] for a in atoms]

    inputs = define(jaxpr.inputs)
    lines = [[encode(e.prim), use(e.inputs), define(e.outs)] for e in jaxpr.eqns]
    return ["jaxpr", jaxpr.consts, jaxpr.name, inputs, lines, use(jaxpr.outs)]


_ENCODERS: dict[type, Callable[[Any], list]] = {
    str: lambda s: ["str", s],
    float: lambda x: ["float", x.hex()],
    complex: lambda z: ["complex", z.real.hex(), z.imag.hex()],
    bytes: lambda b: ["bytes", base64.b64encode(b).decode()],
    tuple: lambda t: ["tuple", *map(encode, t)],
    list: lambda t: ["list", *map(encode, t)],
    dict: lambda d: ["dict", *[[encode(k), encode(v)] for k, v in d.items()]],
    frozenset: lambda s: ["frozenset", *sorted(map(encode, s), key=repr)],
    slice: lambda s: ["slice", encode(s.start), encode(s.stop), encode(s.step)],
    range: lambda r: ["range", r.start, r.stop, r.step],
    ConcreteArray: _array,
    Jaxpr: encode_jaxpr,
    ShapedArray: lambda a: ["aval", encode(a.dtype)[1], a.weak_type, list(a.shape)],
    types.FunctionType: lambda f: ["function", _name(f)],
    np.ufunc: lambda f: ["ufunc", f.__name__],
}


# --- and back ----------------------------------------------------------------------------------


def decode(tree: Any) -> Any:
    """The value of a tree."""
    if type(tree) is not list:
        return tree
    return _DECODERS[tree[0]](*tree[1:])


def _dtype(name: str) -> np.dtype:
    return dtypes.float0 if "float0" in name else dtypes.canonical(name)


def _decode_array(name: str, weak: bool, shape: list, data: str) -> ConcreteArray:
    numbers = np.frombuffer(base64.b64decode(data), _dtype(name)).reshape(shape)
    return ConcreteArray(numbers.copy(), weak)


def _decode_number(name: str, weak: bool, value: Any) -> ConcreteArray:
    return ConcreteArray(np.asarray(decode(value), _dtype(name)), weak)


def _decode_numpy(*parts: Any) -> Any:
    made = _decode_array if len(parts) == 4 else _decode_number
    return np.asarray(made(*parts)._value)


def _decode_object(name: str, *given: list) -> Any:
    kind = _named(name)
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise InvalidValue(f"{name!r:.80} is no dataclass")
    return kind(**{n: decode(v) for n, v in given})


def _decode_primitive(place: str) -> Primitive:
    module, _, name = place.partition(":")
    if not module.startswith("fnx.ops."):
        raise InvalidValue(f"{place!r:.80} is no primitive")
    found = getattr(importlib.import_module(module), name)
    if not isinstance(found, Primitive):
        raise InvalidValue(f"{place!r:.80} is no primitive")
    return found


def _decode_function(name: str) -> Any:
    found = _named(name)
    if not isinstance(found, types.FunctionType):
        raise InvalidValue(f"{name!r:.80} is no function")
    return found


def _decode_ufunc(name: str) -> np.ufunc:
    found = getattr(np, name)
    if not isinstance(found, np.ufunc):
        raise InvalidValue(f"{name!r:.80} is no ufunc")
    return found


def decode_jaxpr(consts: int, name: str, inputs: list, lines: list, outs: list) -> Jaxpr:
    """A jaxpr of the parts of its tree."""
    variables: list[Var] = []

    def define(avals: list) -> list[Var]:
        made = [Var(decode(a)) for a in avals]
        variables.extend(made)
        return made

    def use(atoms: list) -> list[Atom]:
        return [variables[a] if type(a) is int else Literal(decode(a)) for a in atoms]

    given = define(inputs)
    eqns = []
    for prim, used, made in lines:
        operands = use(used)
        operation = decode(prim)
        if not isinstance(operation, Primitive):
            raise InvalidValue(f"{operation!r:.60} is no primitive")
        eqns.append(Eqn(operation, operands, define(made)))
    return Jaxpr(given, eqns, use(outs), consts, name)


_DECODERS: dict[str, Callable[..., Any]] = {
    "str": lambda s: s,
    "float": float.fromhex,
    "complex": lambda a, b: complex(float.fromhex(a), float.fromhex(b)),
    "bytes": base64.b64decode,
    "tuple": lambda *xs: tuple(map(decode, xs)),
    "list": lambda *xs: list(map(decode, xs)),
    "dict": lambda *pairs: {decode(k): decode(v) for k, v in pairs},
    "frozenset": lambda *xs: frozenset(map(decode, xs)),
    "slice": lambda *xs: slice(*map(decode, xs)),
    "range": range,
    "array": _decode_array,
    "number": _decode_number,
    "numpy": _decode_numpy,
    "jaxpr": decode_jaxpr,
    "aval": lambda name, weak, shape: ShapedArray(tuple(shape), _dtype(name), weak),
    "function": _decode_function,
    "ufunc": _decode_ufunc,
    "dtype": _dtype,
    "enum": lambda name, member: _kind(name, enum.Enum)[member],
    "named": lambda name, *xs: _kind(name, tuple)(*map(decode, xs)),
    "primitive": _decode_primitive,
    "object": _decode_object,
    "constant": lambda array: Constant(decode(array)),
    "class": lambda name: _kind(name, object),
}
