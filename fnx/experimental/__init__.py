"""What JAX keeps in jax.experimental and programs use; the larger parts are modules of their own."""

from typing import Any as _Any

from fnx.process.settings import enable_x64
from fnx.transforms.callbacks import io_callback

__all__ = ["cur_qdd", "enable_x64", "io_callback"]


def cur_qdd(x: _Any) -> _Any:
    """What a changing value of a library's own type holds now, as its method `cur_qdd` says it.

    >>> class Box:
    ...     def cur_qdd(self):
    ...         return "an array of rank 0"
    >>> fnx.experimental.cur_qdd(Box())
    'an array of rank 0'
    """
    return x.cur_qdd()
