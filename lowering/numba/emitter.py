"""What the texts of single operations need of the function that they are printed into."""

from typing import Protocol

from fnx.core.scalar import Expr
from fnx.lowering.ir.kernel import Buffer


class Emitter(Protocol):
    """Expressions as text while a function is printed; `memo` holds texts by expression."""

    memo: dict

    def operands(self, e: Expr, bare: bool = True) -> list[str]: ...

    def inline(self, e: Expr) -> str: ...

    def is_index(self, e: Expr) -> bool: ...

    def buffer(self, b: Buffer) -> str: ...

    def formula(self, name: str) -> str: ...

    def function(self, op: str, dtype: str) -> str: ...

    def has_function(self, name: str) -> bool: ...

    def add_function(self, name: str, text: str) -> None: ...
