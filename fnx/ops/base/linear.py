"""The base of primitives of one operand that are linear in it: their tangent map is themselves."""

from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive


@dataclass(frozen=True)
class Linear(Primitive):
    """A linear primitive of one operand; subclasses say how it is transposed."""

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        return (self(primals[0]),), (self(tangents[0]),)
