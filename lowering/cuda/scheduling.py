"""What the ways of making kernels ask of the schedule at work."""

from collections.abc import Sequence
from typing import Protocol

from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer, Stmt

from .plan import Shape
from .thresholds import Limits

Axes = list[tuple[Expr, Expr]]  # indices, and how many iterations each has


class Scheduling(Protocol):
    """Adds kernels to a plan, in order."""

    limits: Limits
    halves: dict[Expr, int]

    def launch(
        self,
        shape: Shape,
        axes: Axes,
        body: list[Stmt],
        name: str = "",
        note: str = "",
        atomic: Sequence[Buffer] = (),
    ) -> None:
        """A kernel of its own."""
        ...

    def temporary(self, dtype: str, size: int) -> Buffer:
        """Memory for what one kernel leaves for the next."""
        ...

    def statement(self, s: Stmt, name: str = "", note: str = "") -> None:
        """Make steps of a statement."""
        ...
