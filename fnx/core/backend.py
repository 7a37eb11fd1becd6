"""What compiles jaxprs: the protocol that `Jit` and loops hold their backend by."""

from collections.abc import Callable, Sequence
from typing import Protocol

from fnx.core.array import Array
from fnx.core.jaxpr import Jaxpr

Compiled = Callable[[Sequence[Array]], Sequence[Array]]


class Backend(Protocol):
    """Makes functions on concrete arrays of jaxprs."""

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: tuple[int, ...] = (),
        simplified: Callable[[], Jaxpr] | None = None,
    ) -> Compiled:
        """`simplified` makes the jaxpr that is compiled, where the given one is not known already."""
        ...
