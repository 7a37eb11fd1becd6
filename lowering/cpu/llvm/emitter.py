"""What the printers of single operations need of the function that they print into."""

from typing import Any, Protocol

from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer

from .types import Operand


class Emitter(Protocol):
    """A function while it is printed.

    `memo` holds operands by expression, `fast` reductions; `in_vector`: LLVM makes vectors of the
    loop around.
    """

    module: Any
    memo: dict
    fast: set[Expr]
    flags: str
    in_vector: bool

    def op(self, text: str) -> str: ...

    def number(self, key: Any, value: int, t: str, positive: bool = False) -> str: ...

    def symbol(self, name: str) -> str: ...

    def load(self, buffer: Buffer, index: Operand) -> Operand: ...

    def value(self, e: Expr) -> Operand: ...

    def call_function(self, e: Expr) -> Operand: ...

    def call_helper(self, op: str, args: tuple[str, ...], result: str, operands: tuple) -> str: ...
