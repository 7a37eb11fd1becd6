"""Settings: each a named value with an environment variable and a context manager."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

from fnx.core.threads.atomic import during, setter


def _parse(variable: str, text: str, like: Any) -> Any:
    if isinstance(like, bool):
        return text.strip().lower() not in ("", "0", "false", "off", "no")
    try:
        return type(like)(text) if like is not None else text
    except ValueError:
        raise ValueError(
            f"{variable} is {text!r} in the environment; expected a number, as its default {like} is. "
            f"To do without: unset {variable}"
        ) from None


# Whether a context manager overrides what calls of compiled functions depend on: they then take the
# careful way. Changes for good run the hooks instead.
overridden: ContextVar[bool] = ContextVar("fnx_overridden", default=False)
hooks: list[Callable[[], None]] = []
# Whether jaxprs have inputs for arrays of rank 0 that functions close over, as for larger ones: those
# of make_jaxpr do. In compiled programs they are literals, so that the compiler sees their values.
rank_0_consts: ContextVar[bool] = ContextVar("fnx_rank_0_consts", default=False)
# Axes of meshes whose members' types say along which of them they vary, while a member's program is traced.
checked_axes: ContextVar[frozenset] = ContextVar("fnx_checked_axes", default=frozenset())
set_overridden, set_rank_0_consts = setter(overridden), setter(rank_0_consts)
set_checked_axes = setter(checked_axes)
# Who runs functions in Python, for people to look into them (fnx/observe/explore.py), if anybody does.
exploration: ContextVar[Any] = ContextVar("fnx_exploration", default=None)
set_exploration = setter(exploration)

# Records of how far loops are that are interpreted, by the places of the loops (LoopSite).
told: ContextVar[dict[Any, Any]] = ContextVar("fnx_told", default={})  # noqa: B039  # nobody writes to it


class Setting:
    """A value that is read by `.value`, set for good by `.set`, or for a while by calling it.

    `calls` says that calls of compiled functions depend on it.
    """

    def __init__(self, name: str, default: Any, doc: str, calls: bool = False):
        self.name, self.doc, self.calls = name, doc, calls
        self.variable = "FNX_" + name.upper()
        text = os.environ.get(self.variable)
        self._default = default if text is None else _parse(self.variable, text, default)
        self._var: ContextVar[Any] = ContextVar("fnx_" + name)
        self._set_var = setter(self._var)

    @property
    def value(self) -> Any:
        return self._var.get(self._default)

    def set(self, value: Any) -> None:
        """Change the value everywhere where no context manager overrides it."""
        self._default = value
        if self.calls:
            for hook in hooks:
                hook()

    @contextmanager
    def __call__(self, value: Any = True) -> Iterator[None]:
        calls = during(set_overridden, True) if self.calls else nullcontext()
        with during(self._set_var, value), calls:
            yield


check = Setting(
    "check", False, "check jaxprs and Kernel IR between passes, and what ranks exchange"
)
disable_jit = Setting("disable_jit", False, "run jitted functions eagerly", calls=True)
default_float32 = Setting(
    "default_float32", False, "Python floats make float32, ints int32", calls=True
)
debug_nans = Setting(
    "debug_nans", False, "raise FloatingPointError where a nan first appears", calls=True
)
debug_infs = Setting(
    "debug_infs", False, "raise FloatingPointError where an infinity first appears", calls=True
)
traceback_filtering = Setting("traceback_filtering", True, "hide fnx's frames in tracebacks")
cache = Setting("cache", True, "keep compiled code on disk")
num_devices = Setting(
    "num_devices", 1, "how many devices pmap and meshes find: threads of this CPU"
)
exchange_timeout = Setting(
    "exchange_timeout", 0.0, "seconds a rank waits for others before it ends the job; 0: for ever"
)
backend = Setting(
    "backend", "cpu", "what jit compiles for: cpu, cuda, numba, reference", calls=True
)
debug_index = Setting(
    "debug_index", False, "raise IndexError where an index is out of bounds", calls=True
)
check_static_indices = Setting(
    "check_static_indices",
    False,
    "raise IndexError where an integer known as Python's is out of bounds",
    calls=True,
)
numpy_dtype_promotion = Setting(
    "numpy_dtype_promotion", "standard", "strict: raise where arrays of two dtypes meet", calls=True
)
numpy_rank_promotion = Setting(
    "numpy_rank_promotion",
    "allow",
    "raise or warn where arrays of two ranks are broadcast",
    calls=True,
)
default_matmul_precision = Setting(
    "default_matmul_precision", None, "tensorfloat32: how a GPU may round products of float32"
)
default_prng_impl = Setting(
    "default_prng_impl",
    "threefry2x32",
    "the generator of keys of which none is named: threefry2x32, rbg, unsafe_rbg",
    calls=True,
)
no_tracing = Setting("no_tracing", False, "raise where jit would trace a function")
no_execution = Setting("no_execution", False, "raise where a jitted function would run", calls=True)
progress = Setting("progress", False, "show how far compiled loops are", calls=True)
log_compiles = Setting(
    "log_compiles", False, "log what is traced and compiled, and how long it took"
)
explain_cache_misses = Setting("explain_cache_misses", False, "log why functions are traced again")
callback_arrays = Setting(
    "callback_arrays", False, "functions that programs call back get arrays, as in JAX, not NumPy's"
)
retrace_notes = Setting(
    "retrace_notes", False, "warn, once, of a function that is traced for the third time, and why"
)


def of_traces() -> tuple:
    """The values of the settings on which it depends what a function's jaxpr is."""
    return (
        default_float32.value,
        numpy_dtype_promotion.value,
        numpy_rank_promotion.value,
        check_static_indices.value,
        default_prng_impl.value,
        rank_0_consts.get(),
        checked_axes.get(),
    )
