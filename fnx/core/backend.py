"""What compiles jaxprs: the protocol that `Jit` and loops hold their backend by."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from fnx.core.array import Array
from fnx.core.jaxpr import Jaxpr

Compiled = Callable[[Sequence[Array]], Sequence[Array]]


class Memory(NamedTuple):
    """How far the memory of a machine is, for those who choose between storing and computing again."""

    near: int = 5 << 19  # bytes which stay in a cache of a core, or nearly so, from loop to loop
    near_row: int = 12 << 10  # bytes of a row of independent columns that stay there strip by strip


class Backend(Protocol):
    """Makes functions on concrete arrays of jaxprs."""

    @property
    def memory(self) -> Memory:
        """That of the machine which runs them."""
        ...

    def compile(
        self,
        jaxpr: Jaxpr,
        donated: tuple[int, ...] = (),
        simplified: Callable[[], Jaxpr] | None = None,
    ) -> Compiled:
        """`simplified` makes the jaxpr that is compiled, where the given one is not known already."""
        ...
