"""The core: avals, arrays, primitives, jaxprs, the current interpreter, and what lowering is told."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import Interpreter as Trace
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, Var
from fnx.core.jaxpr import eval_jaxpr as _eval_jaxpr
from fnx.core.primitive import Primitive

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

AbstractValue = ShapedArray  # there are no others


class DropVar(Var):
    """The name of a result that nobody reads, in JAX's jaxprs; those of fnx name all results.

    >>> issubclass(fnx.extend.core.DropVar, fnx.extend.core.Var)
    True
    """

    __slots__ = ()


__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Jaxpr",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "get_aval",
    "pytype_aval_mappings",
]


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence, *args: object) -> list[Array]:
    """Results of a jaxpr, of the arrays that it closed over and its arguments."""
    return _eval_jaxpr(jaxpr, [*map(as_array, consts), *map(as_array, args)])


# How to find the type of values that are no arrays, where a program has said so.
pytype_aval_mappings: dict[type, Callable[[Any], ShapedArray]] = {
    np.ndarray: lambda x: as_array(x).aval
}


def get_aval(x: object) -> ShapedArray:
    """The type of a value."""
    rule = pytype_aval_mappings.get(type(x))
    return as_array(x).aval if rule is None else rule(x)
