"""Launches of kernels by CUDA's driver: the words that a kernel gets, kept from call to call."""

import ctypes
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .driver import Argument


class Launch:
    """A kernel with its arguments: a word for each, in memory that launches are pointed to."""

    def __init__(
        self,
        driver: Any,
        function: Any,
        shape: tuple[int, ...],
        arguments: Sequence[Argument],
    ):
        from cuda.bindings.driver import cuLaunchKernel

        self.driver, self.function = driver, function
        self._ask = partial(cuLaunchKernel, function.handle, *shape, 0)
        given, self._places = words(
            [
                (a.memory.address + a.offset, a.size, np.dtype(a.dtype).itemsize, a.is_array)
                for a in arguments
            ]
        )
        self._words = (ctypes.c_uint64 * len(given))(*given)
        start = ctypes.addressof(self._words)
        pointers = [start + 8 * k for k in range(len(given))]
        self._pointers = (ctypes.c_void_p * len(given))(*pointers)
        self._given = ctypes.addressof(self._pointers)

    def move(self, k: int, address: int) -> None:
        self._words[self._places[k]] = address

    def __call__(self) -> None:
        driver, function = self.driver, self.function
        (error,) = self._ask(driver.target("a launch"), self._given, 0)
        if error:
            raise driver.failure(f"the launch of {function.name}", repr(error))
        driver.asked[function] = None


def words(places: Iterable[tuple[int, int, int, bool]]) -> tuple[list[int], list[int]]:
    """What a kernel gets for buffers, and where their addresses are in it.

    That is an address, and of arrays all of Numba's fields. Each buffer is (address, elements, bytes of
    an element, whether it is an array).
    """
    found: list[int] = []
    where = []
    for address, size, itemsize, is_array in places:
        if is_array:  # owner, parent, length, itemsize, data, shape, stride
            found += [0, 0, size, itemsize]
        where.append(len(found))
        found.append(address)
        if is_array:
            found += [size, itemsize]
    return found, where
