"""`jax` itself: fnx's face, with the version of JAX that it follows."""

import importlib
from typing import Any

import fnx
import fnx.numpy  # whole, before threads ask for parts of it that import each other
from fnx.jax.finder import API, PUBLIC

__version__ = API
__version_info__ = tuple(map(int, API.split(".")))
__path__: list[str] = []  # what is below it the finder knows


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name in PUBLIC:
        return importlib.import_module(f"jax.{name}")
    return getattr(fnx, name)


def __dir__() -> list[str]:
    return sorted({*dir(fnx), "__version__", "__version_info__"})
