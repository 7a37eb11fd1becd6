"""Calling native programs: any arrays in, new arrays out, by ctypes; always correct, not fast."""

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.errors import ShapeError

from . import host, library

_ENTRY = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_void_p] * 4)
CANCELLED, CALLBACK_FAILED = 1, 2
_ALIGNMENT = 64
Spec = tuple[tuple[int, ...], np.dtype]


def aligned(size: int) -> np.ndarray:
    """Bytes whose address is a multiple of 64."""
    try:
        raw = np.empty(size + _ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise MemoryError(
            f"a program needs {size} bytes of work memory, which cannot be had; "
            "use smaller arrays or batches, or checkpoint parts of it"
        ) from error
    offset = -raw.ctypes.data % _ALIGNMENT
    return raw[offset : offset + size]


class Executable:
    """A loaded program bound to its numbers: `executable(arrays)` gives a list of new arrays.

    Times are in seconds: `emit_seconds`, `llvm_seconds` (0 if the code was on disk or in memory)
    and `load_seconds`. `cache_hit` is True if nothing was compiled.
    """

    def __init__(
        self,
        code: Any,
        params: list,
        inputs: list[Spec],
        outputs: list[Spec],
        workspace_bytes: int,
        memory_hit: bool = False,
        emit_seconds: float = 0.0,
    ):
        self.code, self.inputs, self.outputs = code, inputs, outputs
        self.workspace_bytes = workspace_bytes
        self.emit_seconds = emit_seconds
        self.llvm_seconds = 0.0 if memory_hit else code.llvm_seconds
        self.load_seconds = 0.0 if memory_hit else code.load_seconds
        self.cache_hit = memory_hit or code.origin == "disk"
        self._callbacks: list[host.Callback] = []
        self._params = np.array([self._number(p) for p in params] or [0], np.int64)
        self._entry = _ENTRY(code.addresses["entry"])
        self._spare: np.ndarray | None = None
        self._spare_lock = threading.Lock()

    def _number(self, param: Any) -> int:
        """A parameter as 64 bits: a number, the address of a routine or of a callback."""
        if not isinstance(param, tuple):
            bits = int(param)
        elif param[0] == "symbol":
            bits = library.resolve(param[1])
        elif param[0] == "host":
            self._callbacks.append(host.Callback.of(param[1]))
            bits = self._callbacks[-1].address
        else:
            bits = int(param[-1])
        return bits - (1 << 64) if bits >= 1 << 63 else bits

    @property
    def llvm_text(self) -> str:
        return self.code.text

    def asm(self) -> str:
        """The assembly of the program."""
        return self.code.asm()

    def __call__(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        if len(arrays) != len(self.inputs):
            raise ShapeError(
                f"a program of {len(self.inputs)} inputs was called with {len(arrays)} arrays"
            )
        given = [_as_input(x, *spec) for x, spec in zip(arrays, self.inputs, strict=True)]
        results = [np.empty(shape, dtype) for shape, dtype in self.outputs]
        pointers = np.array([a.ctypes.data for a in (*given, *results)] or [0], np.uint64)
        self._run(pointers)
        return results

    def _run(self, pointers: np.ndarray) -> None:
        workspace = self._borrow()
        address = workspace.ctypes.data if workspace is not None else None
        status = self._entry(pointers.ctypes.data, self._params.ctypes.data, address, None)
        self._spare = workspace
        if status:
            raise host.take_error()

    def _borrow(self) -> np.ndarray | None:
        """The work memory of the last call, or a new one while another thread has that."""
        if not self.workspace_bytes:
            return None
        with self._spare_lock:
            spare, self._spare = self._spare, None
        return aligned(self.workspace_bytes) if spare is None else spare


def _as_input(x: Any, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    array = np.asarray(x)
    if array.shape != shape or array.dtype != dtype:
        raise ShapeError(
            f"a program for an array of shape {shape} and dtype {dtype} was called with shape "
            f"{array.shape} and dtype {array.dtype}"
        )
    return np.require(array, dtype, ["C", "ALIGNED"]) if array.ndim else array.copy()
