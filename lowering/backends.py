"""Backends by name, each loaded when a program is first compiled for it."""

import importlib
from functools import lru_cache
from typing import Any

from fnx.core.errors import InvalidValue

NAMES = {
    "cpu": "fnx.lowering.cpu.backend",
    "cuda": "fnx.lowering.cuda.backend",
    "numba": "fnx.lowering.numba.backend",
    "reference": "fnx.lowering.reference",
}


def check(name: str) -> str:
    """The name itself; InvalidValue where there is no such backend."""
    if name not in NAMES:
        raise InvalidValue(f"there is no backend {name!r}; there are {', '.join(NAMES)}")
    return name


@lru_cache
def get(name: str) -> Any:
    """The backend of a name: `compile(jaxpr, donated, simplified)` makes a callable."""
    return importlib.import_module(NAMES[check(name)]).backend
