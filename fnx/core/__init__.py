"""The core: avals, arrays, primitives, jaxprs, the current interpreter, and what lowering is told."""

from collections.abc import Sequence

from fnx.core.array import Array, as_array
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import Interpreter as Trace
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import Atom, ClosedJaxpr, Jaxpr, Literal, Var
from fnx.core.jaxpr import eval_jaxpr as _eval_jaxpr
from fnx.core.primitive import Primitive

AbstractValue = ShapedArray  # there are no others

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "Jaxpr",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "get_aval",
]


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence, *args: object) -> list[Array]:
    """Results of a jaxpr, of the arrays that it closed over and its arguments."""
    return _eval_jaxpr(jaxpr, [*map(as_array, consts), *map(as_array, args)])


def get_aval(x: object) -> ShapedArray:
    """The type of a value."""
    return as_array(x).aval
