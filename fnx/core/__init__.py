"""The core: avals, arrays, primitives, jaxprs, the current interpreter, and what lowering is told."""

from fnx.core.aval import ShapedArray
from fnx.core.interpreter import Tracer
from fnx.core.jaxpr import ClosedJaxpr, Jaxpr, Literal, Var
from fnx.core.primitive import Primitive

__all__ = ["ClosedJaxpr", "Jaxpr", "Literal", "Primitive", "ShapedArray", "Tracer", "Var"]
