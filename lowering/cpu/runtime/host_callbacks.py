"""Host callbacks: native code calls Python in the middle of a program.

The address of a callback is that of a C function `int32 (void **pointers)` with the addresses of its
inputs, then outputs. It returns 1, or 0 after an exception, which is kept for the thread and raised
by the call of the program once the native code has returned 2. A signal may be delivered before the
first line of a callback is reached: ctypes then returns anything, and reports what nobody could catch;
the program ends there, or at its next callback.
"""

import ctypes
import functools
import math
import sys
import threading
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import numpy as np

Spec = tuple[tuple[int, ...], Any]
_SIGNATURE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))
_errors: dict[int, BaseException] = {}  # by thread, of which native code has some of its own

contexts: dict[
    int, Context
] = {}  # by thread that is native code's own: where its program was called


class Callback:
    """A Python function as a C function; the address is valid while this object lives."""

    def __init__(self, function: Callable, inputs: Sequence[Spec], outputs: Sequence[Spec]):
        self.function = function
        self.inputs = [(tuple(shape), _dtype(dtype)) for shape, dtype in inputs]
        self.outputs = [(tuple(shape), _dtype(dtype)) for shape, dtype in outputs]
        one = len(self.inputs) == len(self.outputs) == 1
        self.borrows = one and getattr(function, "borrows", False)
        if self.borrows:  # few programs have such a callback
            from fnx.core.transport import destination

            self._destination = destination
        self._lent: Any = (
            None,
        )  # addresses, and the arrays there: in loops they are the same ones
        self._native = _SIGNATURE(self._enter)
        self.address = ctypes.cast(self._native, ctypes.c_void_p).value

    @classmethod
    def of(cls, call: Any) -> "Callback":
        """The callback of a `kernel.CallHost` statement."""
        specs = [
            [(shape, dtype) for _, shape, dtype in side] for side in (call.inputs, call.outputs)
        ]
        return cls(call.callback, *specs)

    def _enter(self, pointers: Any) -> int:
        try:
            if threading.get_ident() in _errors:
                return 0
            count = len(self.inputs)
            if self.borrows:
                self._lend(pointers)
                return 1
            arrays = [_copy(pointers[k], *spec) for k, spec in enumerate(self.inputs)]
            results = _in_context(self.function, *arrays)
            self._store(results, [pointers[count + k] for k in range(len(self.outputs))])
        except BaseException as error:  # KeyboardInterrupt too: it must reach the caller
            keep_error(error)
            return 0
        return 1

    def _lend(self, pointers: Any) -> None:
        """The call of a function that keeps nothing: it sees the program's memory, and may write there."""
        where = pointers[0], pointers[1]
        known = self._lent
        if known[0] != where:
            given, out = _view(where[0], *self.inputs[0]), _view(where[1], *self.outputs[0])
            given.flags.writeable = False
            overlap = bool(np.may_share_memory(given, out))
            self._lent = known = where, given, out, overlap
        _, given, out, overlap = known
        if overlap:
            given = given.copy()
        token = self._destination.set(out)
        try:
            # The context of where a program was called has no destination of this thread's.
            result = _in_context(self.function, given)
        finally:
            self._destination.reset(token)
        if type(result) is not tuple or result[0] is not out:
            self._store(result, [pointers[1]])

    def _store(self, results: Any, pointers: list[int]) -> None:
        if not isinstance(results, (tuple, list)):
            results = () if results is None and not self.outputs else (results,)
        if len(results) != len(self.outputs):
            raise ValueError(
                f"a host callback returned {len(results)} arrays, {len(self.outputs)} were declared"
            )
        for result, address, (shape, dtype) in zip(results, pointers, self.outputs, strict=True):
            array = np.asarray(result)
            same = array.dtype == dtype or np.can_cast(array.dtype, dtype, "same_kind")
            if array.shape != shape or not same:
                raise ValueError(
                    f"a host callback returned an array of shape {array.shape} and dtype "
                    f"{array.dtype}, declared were shape {shape} and dtype {dtype}"
                )
            _view(address, shape, dtype)[...] = array


def _keep_early_error(report: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Reports of errors that nobody can catch, but for those of callbacks that have not begun."""

    def of(found: Any) -> None:
        if isinstance(getattr(found.object, "__self__", None), Callback) and found.exc_value:
            keep_error(found.exc_value)
        else:
            report(found)

    return of


sys.unraisablehook = _keep_early_error(sys.unraisablehook)


def _in_context(function: Callable, *args: Any) -> Any:
    """A call of a function; in a thread of native code's own, in its program's caller's context.

    Meanwhile the thread is in that context: callbacks of programs that the function calls find it so.
    """
    thread = threading.get_ident()
    context = contexts.pop(thread, None)
    if context is None:
        return function(*args)
    try:
        return context.run(function, *args)
    finally:
        contexts[thread] = context


def keep_error(error: BaseException) -> None:
    """Note the exception that ends the program which runs in this thread."""
    _errors[threading.get_ident()] = error


def take_error(thread: int | None = None) -> BaseException | None:
    """The exception that ended the last program of a thread, by default this one."""
    return _errors.pop(threading.get_ident() if thread is None else thread, None)


def _dtype(dtype: Any) -> np.dtype:
    from fnx.core import dtypes

    return dtypes.canonical(dtype)


def _copy(address: int | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """A read-only copy: the function may keep its arguments, the program goes on to use its memory."""
    array = _view(address, shape, dtype).copy()
    array.flags.writeable = False
    return array


def _view(address: int | None, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """The array at an address."""
    count = math.prod(shape) * dtype.itemsize
    if not count:
        return np.empty(shape, dtype)
    return np.ndarray(shape, dtype, _bytes(count).from_address(address))


@functools.lru_cache(maxsize=1024)
def _bytes(count: int) -> Any:
    """The C type of so many bytes; each is a class, and slow to make."""
    return ctypes.c_uint8 * count
