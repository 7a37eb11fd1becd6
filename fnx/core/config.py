"""Settings: each a named value with an environment variable and a context manager."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


def _parse(text: str, like: Any) -> Any:
    if isinstance(like, bool):
        return text.strip().lower() not in ("", "0", "false", "off", "no")
    return type(like)(text) if like is not None else text


class Setting:
    """A value that is read by `.value`, set for good by `.set`, or for a while by calling it."""

    def __init__(self, name: str, default: Any, doc: str):
        self.name, self.doc = name, doc
        text = os.environ.get("FNX_" + name.upper())
        self._default = default if text is None else _parse(text, default)
        self._var: ContextVar[Any] = ContextVar("fnx_" + name)

    @property
    def value(self) -> Any:
        return self._var.get(self._default)

    def set(self, value: Any) -> None:
        """Change the value everywhere where no context manager overrides it."""
        self._default = value

    @contextmanager
    def __call__(self, value: Any = True) -> Iterator[None]:
        token = self._var.set(value)
        try:
            yield
        finally:
            self._var.reset(token)


check = Setting("check", False, "check jaxprs and Kernel IR between passes")
disable_jit = Setting("disable_jit", False, "run jitted functions eagerly")
default_float32 = Setting("default_float32", False, "Python floats make float32, ints int32")
debug_nans = Setting("debug_nans", False, "raise FloatingPointError where a nan first appears")
traceback_filtering = Setting("traceback_filtering", True, "hide fnx's frames in tracebacks")
cache = Setting("cache", True, "keep compiled code on disk")
backend = Setting("backend", "cpu", "what jit compiles for: cpu, reference")

_BY_NAME = {
    "jax_disable_jit": disable_jit,
    "jax_debug_nans": debug_nans,
    "jax_enable_checks": check,
}


def update(name: str, value: Any) -> None:
    """Set a setting by name; JAX's names of settings that do not exist here are accepted.

    `jax_enable_x64` chooses what Python numbers become: float64 and int64 (True, the default), or
    float32 and int32 (False).
    """
    if name == "jax_enable_x64":
        default_float32.set(not value)
    elif name in _BY_NAME:
        _BY_NAME[name].set(value)
    elif isinstance(globals().get(name), Setting):
        globals()[name].set(value)
    elif not name.startswith("jax_"):
        raise AttributeError(f"fnx.config has no setting {name!r}")
