"""Changes between which and the note of them no interrupt can come.

Python looks for signals after each call. So an interrupt may come when `token = variable.set(x)` has set
the variable, but nobody knows the token by which it is reset: a `try` that begins on the next line is too
late. It does not look after a subscript.
"""

from types import BuiltinFunctionType
from typing import Any


def setter(variable: Any) -> Any:
    """`token = setter(variable)[x]` does what `token = variable.set(x)` does, in one step."""
    call = variable.set
    return type(
        "Setter",
        (),
        {"__getitem__": call if isinstance(call, BuiltinFunctionType) else staticmethod(call)},
    )()
