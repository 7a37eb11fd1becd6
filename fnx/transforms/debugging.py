"""Looking into transformed functions while they run: print, callback, breakpoint, nans."""

import builtins
import logging
import string
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fnx.core.errors import TypeMismatch
from fnx.ops.callback import Callback
from fnx.process.nan_checks import debug_nans as nans
from fnx.pytree.flatten_fun import check_callable
from fnx.transforms.callbacks import Flat


def callback(
    callback: Callable | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function for its side effects, on NumPy arrays, each time the program comes here.

    Under vmap it is called for each batch element; derivatives call it on primal values. Calls happen
    in the order of the program, `ordered` or not. With options alone, the function that calls one:
    `callback(ordered=True)(f, x)`.

    >>> seen = []
    >>> def double(x):
    ...     fnx.debug.callback(lambda v: seen.append(float(v)), x)
    ...     return 2 * x
    >>> float(fnx.jit(double)(3.0)), seen
    (6.0, [3.0])
    """
    del ordered, partitioned
    return _now_or_later("callback", _call, callback, args, kwargs)


def _now_or_later(name: str, do: Callable, first: Any, args: tuple, kwargs: dict) -> Any:
    """What is asked for, done; without a first argument, the function that does it."""
    if first is not None:
        return do(first, *args, **kwargs)
    if args or kwargs:
        raise TypeMismatch(
            f"debug.{name} got {[*args, *kwargs]} beside options; expected them in the second call: "
            f"debug.{name}(ordered=True)(...)"
        )
    return do


def _call(callback: Callable, /, *args: Any, **kwargs: Any) -> None:
    check_callable(callback, "debug.callback")
    flat = Flat(callback, args, kwargs)

    def fn(*values: Any) -> tuple:
        flat.call(values)
        return ()

    prim = Callback(fn, (), "debug_callback", "sequential", effects=True, silent=True)
    prim(*flat.arrays)


class _Formatter(string.Formatter):
    """Refuses arguments that the text does not use."""

    def check_unused_args(self, used_args: Any, args: Any, kwargs: Any) -> None:
        unused = [k for k in (*range(len(args)), *kwargs) if k not in used_args]
        if unused:
            raise ValueError(f"debug.print got arguments that its text does not use: {unused}")


_format = _Formatter().format


def print(
    fmt: str | None = None,
    *args: Any,
    ordered: bool = False,
    partitioned: bool = False,
    skip_format_check: bool = False,
    **kwargs: Any,
) -> Any:
    """Print a text with the values of traced arrays, each time the program comes here.

    With options alone, the function that prints: `print(ordered=True)("x is {x}", x=x)`.

    >>> def f(x):
    ...     fnx.debug.print("x is {x}", x=x)
    ...     return 2 * x
    >>> float(fnx.jit(f)(3.0))
    x is 3.0
    6.0
    """
    del ordered, partitioned
    return _now_or_later("print", partial(_print, not skip_format_check), fmt, args, kwargs)


def _print(checked: bool, fmt: str, /, *args: Any, **kwargs: Any) -> None:
    if checked:
        _check(fmt, args, kwargs)
    options = np.get_printoptions()

    def show(*values: Any, **named: Any) -> None:
        with np.printoptions(**options):
            sys.stdout.write(_format(fmt, *values, **named) + "\n")
        sys.stdout.flush()

    _call(show, *args, **kwargs)


def log(fmt: str | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """As `print`, into the log "fnx.debug" of the module logging, at level INFO.

    >>> fnx.debug.log("x is {}", 3.0)
    """
    del ordered
    return _now_or_later("log", _log, fmt, args, kwargs)


def _log(fmt: str, /, *args: Any, **kwargs: Any) -> None:
    _check(fmt, args, kwargs)

    def tell(*values: Any, **named: Any) -> None:
        logging.getLogger("fnx.debug").info(_format(fmt, *values, **named))

    _call(tell, *args, **kwargs)


def _check(fmt: str, args: tuple, kwargs: dict) -> None:
    """Raise where a text is wrong, or names what is not given, while the user's line is known."""
    _format(fmt, *[_Anything()] * len(args), **dict.fromkeys(kwargs, _Anything()))


class _Anything:
    """Can be formatted in any way: it checks a text for names that are not given."""

    def __format__(self, spec: str) -> str:
        return ""

    def __getattr__(self, name: str) -> "_Anything":
        return self

    def __getitem__(self, key: Any) -> "_Anything":
        return self


def breakpoint(*args: Any, **kwargs: Any) -> None:
    """Enter Python's debugger when the program comes here; the arguments are its values to look at.

    >>> def step(x):
    ...     fnx.debug.breakpoint(x)  # a debugger opens here when it runs; "up" leads to x
    ...     return 2 * x
    """

    def stop(*values: Any, **named: Any) -> None:
        builtins.breakpoint()

    callback(stop, *args, **kwargs)


def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Say where the parts of an array are.

    >>> fnx.debug.visualize_array_sharding(jnp.ones((2, 3)))
    CPU 0: (2, 3)
    """
    from fnx.process.shards import description

    del kwargs
    sys.stdout.write(description(arr))


def inspect_array_sharding(value: Any, *, callback: Callable) -> None:
    """Call `callback` with the sharding of a value: that of the one device.

    >>> fnx.debug.inspect_array_sharding(jnp.ones(2), callback=lambda s: print(type(s).__name__))
    SingleDeviceSharding
    """
    from fnx.process.shardings import SingleDeviceSharding

    del value
    callback(SingleDeviceSharding())


__all__ = [
    "breakpoint",
    "callback",
    "inspect_array_sharding",
    "log",
    "nans",
    "print",
    "visualize_array_sharding",
]
