"""NumPy's protocols: np.sin(x), np.add.reduce(x), np.concatenate([x, y]) of arrays stay in fnx."""

import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue, TypeMismatch

_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}


API_VERSIONS = "2021.12", "2022.12", "2023.12", "2024.12"

_served: dict[str, Any] = {}  # fnx.numpy, which hands itself in when it is complete


def serve(namespace: Any) -> None:
    """Let NumPy's functions of arrays be those of this namespace."""
    _served["numpy"] = namespace


def _namespace(module: str) -> Any:
    space = _served["numpy"]
    if module.startswith("numpy.linalg"):
        return space.linalg
    return space.fft if module.startswith("numpy.fft") else space


def _foreign(kind: type, protocol: str = "__array_ufunc__") -> bool:
    """Whether a type has its own way with NumPy's functions, and is asked after arrays decline."""
    known = issubclass(kind, (Array, np.ndarray, np.generic))
    return not known and getattr(kind, protocol, None) is not None


def array_ufunc(self: Array, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
    """NumPy's ufuncs of arrays are fnx.numpy's."""
    if any(_foreign(type(x)) for x in inputs):
        return NotImplemented
    given = [v for v in options.get("out") or () if v is not None]
    if any(isinstance(v, Array) for v in given):
        raise TypeMismatch(
            f"{ufunc.__name__} with out=: arrays are immutable; use the result instead"
        )
    if given:  # a NumPy array that is written to, by out= or `+=`
        return _with_numpy(
            ufunc if method == "__call__" else getattr(ufunc, method), inputs, options
        )
    space = _namespace("numpy")
    if method == "__call__":
        fn = getattr(space, ufunc.__name__, None)
        options.pop("out", None)
        if fn is None:
            return _with_numpy(ufunc, inputs, options)
        dtype = options.pop("dtype", None)
        out = fn(*inputs, **options)
        return out if dtype is None else out.astype(dtype)
    if method == "reduce" and ufunc.__name__ in _REDUCTIONS:
        options.pop("out", None)
        options.setdefault("axis", 0)
        return getattr(space, _REDUCTIONS[ufunc.__name__])(*inputs, **options)
    if method == "outer" and hasattr(space, ufunc.__name__):
        x, y = (space.asarray(v) for v in inputs)
        return getattr(space, ufunc.__name__)(x.reshape(*x.shape, *(1,) * y.ndim), y)
    return _with_numpy(getattr(ufunc, method), inputs, options)


def array_function(self: Array, func: Callable, types: Any, args: tuple, kwargs: dict) -> Any:
    """NumPy's functions of arrays are fnx.numpy's, where it has them."""
    if any(_foreign(t, "__array_function__") for t in types):
        return NotImplemented
    space = _namespace(getattr(func, "__module__", None) or "numpy")
    fn = getattr(space, func.__name__, None)
    if fn is None or fn is func or kwargs.get("out") is not None or not _takes(fn, kwargs):
        return _with_numpy(func, args, kwargs)
    try:
        return fn(*args, **kwargs)
    except TypeMismatch:  # NumPy's functions take lists for arrays, fnx's do not
        numbers = [_numbers(x) for x in args]
        if all(x is y for x, y in zip(numbers, args, strict=True)):
            raise
    return fn(*numbers, **kwargs)


@lru_cache(maxsize=1024)
def _parameters(fn: Callable) -> frozenset[str] | None:
    """The names that a function takes; None if it takes any."""
    found = inspect.signature(fn).parameters.values()
    return None if any(p.kind is p.VAR_KEYWORD for p in found) else frozenset(p.name for p in found)


def _takes(fn: Callable, kwargs: dict) -> bool:
    """Whether a function knows what it is given by name: NumPy's know words that fnx's do not."""
    names = _parameters(fn) if kwargs else None
    return names is None or names >= kwargs.keys()


def _numbers(x: Any) -> Any:
    """A list or tuple of numbers as a NumPy array; anything else as it is."""
    if not isinstance(x, (list, tuple)) or any(isinstance(v, Array) for v in x):
        return x
    found = np.asarray(x)
    return found if found.dtype.kind in "biufc" else x


def _with_numpy(func: Callable, args: Any, kwargs: dict) -> Any:
    """The NumPy function itself, on the numbers; a traced value raises and says why."""
    return func(*_unwrapped(args), **{k: _unwrapped(v) for k, v in kwargs.items()})


def _unwrapped(x: Any) -> Any:
    if isinstance(x, Array):
        return np.asarray(x._value if type(x) is ConcreteArray else x)
    if isinstance(x, (tuple, list)):
        return type(x)(map(_unwrapped, x))
    return x


def array_namespace(self: Array, /, *, api_version: str | None = None) -> Any:
    """The namespace of the Python array API standard."""
    if api_version not in (None, *API_VERSIONS):
        raise InvalidValue(
            f"version {api_version!r} of the array API standard is not there; "
            f"leave api_version out, or choose from {', '.join(API_VERSIONS)}"
        )
    return _namespace("numpy")


def members() -> dict[str, Callable]:
    """The special methods that NumPy and the array API standard look for."""
    return {
        "__array_ufunc__": array_ufunc,
        "__array_function__": array_function,
        "__array_namespace__": array_namespace,
    }


__all__ = ["API_VERSIONS", "members"]
