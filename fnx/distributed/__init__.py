"""Processes that work together, a module path of JAX; `python -m fnx.distributed SCRIPT` runs a rank."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from fnx.core import lazy_imports as _later
from fnx.process.distributed import initialize, is_initialized, shutdown

if _TYPE_CHECKING:
    from fnx.distributed.mapping import map as map

_later.add("fnx.distributed", "fnx.distributed.mapping", "map")


def __getattr__(name: str) -> object:
    return _later.find("fnx.distributed", name)


__all__ = ["initialize", "is_initialized", "map", "shutdown"]
