"""What is left of an array whose memory was given away: its type, and an error for whoever reads it."""

from typing import Any, NoReturn

import numpy as np

from fnx.core.errors import FnxError


class DeletedArray(FnxError, RuntimeError):
    """An array was read after it was deleted, or donated to a jitted function that took its memory."""


class Deleted:
    """Stands for the numbers of a deleted array: knows shape and dtype."""

    def __init__(self, value: np.ndarray):
        self.shape, self.dtype = value.shape, value.dtype
        self.ndim, self.size, self.nbytes = value.ndim, value.size, value.nbytes

    def _fail(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise DeletedArray(
            f"Array has been deleted with shape={self.shape} and dtype={self.dtype}. Expected an array "
            "that was neither deleted nor donated (donate_argnums, donate_argnames of jit): use what "
            "the function returned instead, or do not donate."
        )

    def __getattr__(self, name: str) -> NoReturn:
        self._fail()

    __array__ = __bool__ = __int__ = __float__ = __complex__ = __index__ = __len__ = _fail
    __getitem__ = __iter__ = __format__ = _fail
