"""Changes between which and the note of them no interrupt can come.

Python looks for signals after each call. So an interrupt may come when `token = variable.set(x)` has set
the variable, but nobody knows the token by which it is reset: a `try` that begins on the next line is too
late. It does not look after a subscript.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import Any


def setter(variable: Any) -> Any:
    """`token = setter(variable)[x]` does what `token = variable.set(x)` does, in one step."""
    call = variable.set
    return type(
        "Setter",
        (),
        {
            "__getitem__": call if isinstance(call, BuiltinFunctionType) else staticmethod(call),
            "variable": variable,
        },
    )()


@contextmanager
def during(setting: Any, value: Any) -> Iterator[None]:
    """Within it the variable of a setter has a value.

    What is closed may have been forgotten, since a signal came where its `with` was to end: who is outside
    may have undone it, and gone on. It is undone then only if the value is there still, over one of
    which nothing says that it has `ended`.
    """
    token = setting[value]
    try:
        yield
    except GeneratorExit:
        ended = getattr(token.old_value, "ended", False)
        if setting.variable.get(token) is value and not ended:
            setting.variable.reset(token)
        raise
    except BaseException:
        setting.variable.reset(token)
        raise
    else:
        setting.variable.reset(token)
