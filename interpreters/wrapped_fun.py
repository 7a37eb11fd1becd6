"""Functions as jaxprs carry them, for programs that are written for JAX."""

from collections.abc import Callable
from typing import Any


class WrappedFun:
    """A function; `call_wrapped` calls it.

    >>> fnx.extend.linear_util.WrappedFun(max).call_wrapped(2, 3)
    3
    """

    def __init__(self, f: Callable, params: dict | None = None, debug_info: Any = None):
        self.f, self.params, self.debug_info = f, params or {}, debug_info
        self.__name__ = getattr(f, "__name__", "f")

    def call_wrapped(self, *args: Any, **kwargs: Any) -> Any:
        """The function's result."""
        return self.f(*args, **self.params, **kwargs)

    def __repr__(self) -> str:
        return f"WrappedFun({self.f!r})"
