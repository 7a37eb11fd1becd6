"""`jax._src.xla_bridge`: the backends that run already."""

from typing import Any

from fnx.extend.backend import get_backend
from fnx.process.devices import are_counted


def __getattr__(name: str) -> Any:
    if name != "_backends":  # chex
        raise AttributeError(name)
    return {"cpu": get_backend()} if are_counted else {}
