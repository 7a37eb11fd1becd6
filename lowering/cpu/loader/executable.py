"""Calling native programs: leaves in, new arrays out.

`Executable.fast` is a builtin function (see `wrapper`) for leaves that are just what the program
expects; `Executable.__call__` takes whatever can be made so; `Executable.by_ctypes` does the same
without the wrapper, on interpreters that it does not know.
"""

import ctypes
import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import ShapeError, TooLarge
from fnx.core.threads import at_exit
from fnx.core.threads.fork_safety import cached_property
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.runtime import abi, call_wrapper_loader, host_callbacks

from . import symbols
from .native_calls import no_memory

if TYPE_CHECKING:
    from .progress import Record

CANCELLED = 1
_MANY = 8192  # more arrays than this would need too much stack in the wrapper
FAR = 1 << 62  # bytes that no machine has, so that sums of sizes fit in 64 bits
_SCALARS = {"float64": abi.FLOAT64, "float32": abi.FLOAT32, "int64": abi.INT64}
_SCALARS |= {"int32": abi.INT32, "bool": abi.BOOL}
_NUMBERS = (bool, int, float, complex)
_words = {None: 0, True: id(True), False: id(False)}


class Spec(NamedTuple):
    """What an input must be, or an output will be; `weak_type` None means any."""

    shape: tuple[int, ...]
    dtype: np.dtype
    weak_type: bool | None = None

    @classmethod
    def of(cls, shape: Sequence[int], dtype: Any, weak_type: bool | None = None) -> "Spec":
        dtype = np.dtype(dtypes.canonical(dtype).type)  # the one object that NumPy's arrays have
        return cls(tuple(map(int, shape)), dtype, weak_type)

    @property
    def bytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def accept(self, x: Any) -> np.ndarray:
        """`x` as an array that the native code may read."""
        array = x._value if type(x) is ConcreteArray else np.asarray(x)
        same = array.dtype.newbyteorder("=") == self.dtype or isinstance(x, _NUMBERS)
        if array.shape != self.shape or not same:
            raise ShapeError(
                f"a program for an array of shape {self.shape} and dtype {self.dtype} was called "
                f"with one of shape {array.shape} and dtype {array.dtype}"
            )
        return np.require(array, self.dtype, ["C", "ALIGNED"])


class Executable:
    """A loaded program bound to its numbers: `executable(arrays)` gives a list of NumPy arrays.

    `fast(leaves)` takes a list or tuple of exactly fitting leaves (fnx's arrays, NumPy arrays,
    Python numbers where the input is a weakly typed scalar) and gives a list of fnx's arrays, or
    NotImplemented where a leaf does not fit.

    Times are in seconds: `llvm_seconds` (0 if the code was on disk or in memory) and
    `load_seconds`. `cache_hit` is True if nothing was compiled.
    """

    def __init__(
        self,
        code: Any,
        params: Sequence[Any],
        inputs: Sequence[Spec],
        outputs: Sequence[Spec],
        workspace_bytes: int = 0,
        release_gil: bool | None = None,
        memory_hit: bool = False,
    ):
        self.code, self.inputs, self.outputs = code, list(inputs), list(outputs)
        self.workspace_bytes = int(workspace_bytes)
        self.llvm_seconds = 0.0 if memory_hit else code.llvm_seconds
        self.load_seconds = 0.0 if memory_hit else code.load_seconds
        self.cache_hit = memory_hit or code.origin == "disk"
        self._keep: list[Any] = []  # what lies at the addresses among the parameters
        self._callbacks: list[host_callbacks.Callback] = []
        self.records: list[Record] = []  # of loops that tell how far they are
        self._calls_back = any(name in code.imports for name in symbols.RUNTIME)
        self._params = np.array([self._number(p) for p in params] or [0], np.int64)
        self._telling = [
            k for k, p in enumerate(params) if isinstance(p, tuple) and p[0] == "progress"
        ]
        self.details: Callable[[], str] = str  # what the workspace holds, for errors
        if max([spec.bytes for spec in self.outputs], default=0) >= FAR:
            raise self._no_results()
        self.aliases: dict[int, int] = {}  # further results, by number, and the inputs they are in
        self.release_gil = self._is_long() if release_gil is None else release_gil

    def _number(self, param: Any) -> int:
        """A parameter as 64 bits: a number, the address of a routine or of a callback."""
        if not isinstance(param, tuple):
            bits = int(param)
        elif param[0] == "symbol":
            bits, owner = symbols.owned(param[1])
            self._keep.append(owner)
            self._calls_back |= param[1] in symbols.RUNTIME
        elif param[0] == "progress":
            from .progress import Record

            self.records.append(Record(param[1]))
            bits = self.records[-1].address
        elif param[0] == "host":
            self._callbacks.append(host_callbacks.Callback.of(param[1]))
            bits = self._callbacks[-1].address
            self._calls_back = True
        else:
            bits = int(param[-1])
        if not -(1 << 63) <= bits < 1 << 64:
            raise TooLarge(
                f"a program counts up to {bits}, more than 64 bits hold. Use smaller arrays or batches"
            )
        return bits - (1 << 64) if bits >= 1 << 63 else bits

    def beside(self) -> tuple[np.ndarray, list["Record"]]:
        """Parameters of one of several runs of the program at the same time, with records of its own."""
        records = [type(r)(r.site) for r in self.records]
        params = self._params.copy()
        params[self._telling] = [r.address for r in records]
        return params, records

    def _is_long(self) -> bool:
        """Whether to let other Python threads run meanwhile, which costs some 50 ns."""
        total = sum(spec.bytes for spec in (*self.inputs, *self.outputs)) + self.workspace_bytes
        return total > thresholds.WITHOUT_GIL or self._calls_back

    # --- calls

    @cached_property
    def fast(self) -> Any:
        """The builtin function `fast(leaves)`: a list of fnx's arrays, or NotImplemented."""
        return self._builtin(wrap=True) or self._boxed

    @cached_property
    def _plain(self) -> Any:
        return self._builtin(wrap=False) or self.by_ctypes

    def __call__(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        results = self._plain(arrays)
        return self._plain(self.fitting(arrays)) if results is NotImplemented else results

    def _no_results(self) -> TooLarge:
        """The error of a program whose results find no memory."""
        largest = max(self.outputs, key=lambda spec: spec.bytes)
        total = sum([spec.bytes for spec in self.outputs])
        return TooLarge(
            f"the results of a program take {total} bytes, which cannot be had; the largest has "
            f"shape {largest.shape} and dtype {largest.dtype}. Use smaller arrays or batches, or "
            "reduce the results inside of the program"
        )

    def fitting(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The arrays in the types that native code expects; raises ShapeError if they cannot be."""
        if len(arrays) != len(self.inputs):
            raise ShapeError(
                f"a program of {len(self.inputs)} inputs was called with {len(arrays)} arrays"
            )
        return [spec.accept(x) for x, spec in zip(arrays, self.inputs, strict=True)]

    def _boxed(self, leaves: Sequence[Any]) -> Any:
        """`fast` without the wrapper: nothing is too odd for it."""
        results = self.by_ctypes(leaves)
        return [
            ConcreteArray(array, bool(spec.weak_type))
            for array, spec in zip(results, self.outputs, strict=True)
        ]

    def by_ctypes(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        """The call without the wrapper; where there is one, this holds the GIL throughout."""
        given = self.fitting(arrays)
        try:
            results = [np.empty(spec.shape, spec.dtype) for spec in self.outputs]
        except MemoryError as error:
            raise self._no_results() from error
        workspace = aligned(self.workspace_bytes) if self.workspace_bytes else None
        pointers = np.array([a.ctypes.data for a in (*given, *results)] or [0], np.uint64)
        # PYFUNCTYPE keeps the GIL and raises what fnx_poll leaves pending.
        prototype = ctypes.CFUNCTYPE if call_wrapper_loader.get() is None else ctypes.PYFUNCTYPE
        entry = prototype(ctypes.c_int32, *[ctypes.c_void_p] * 4)(self.code.addresses["entry"])
        status = entry(
            pointers.ctypes.data,
            self._params.ctypes.data,
            None if workspace is None else workspace.ctypes.data,
            None,
        )
        if status:
            self._raise(status)
        return results

    def _raise(self, status: int) -> None:
        """The exception that a status stands for."""
        if status == abi.NO_RESULTS:
            raise self._no_results()
        if status == abi.NO_MEMORY:
            raise no_memory(self.workspace_bytes, self.details())
        error = host_callbacks.take_error()
        if error is not None:
            raise error
        if status == CANCELLED:
            raise SystemExit if at_exit.is_exiting() else KeyboardInterrupt
        raise RuntimeError(f"a native program ended with status {status}")

    # --- the plan of the wrapper

    def _builtin(self, wrap: bool) -> Any:
        """The builtin function of this program, or None where there can be none."""
        found = call_wrapper_loader.get()
        if found is None or len(self.inputs) + len(self.outputs) > _MANY:
            return None
        value_at, weak_at = call_wrapper_loader.slots()
        on_error = self._raise
        head = [0] * abi.HEADER
        head[abi.ENTRY] = self.code.addresses["entry"]
        head[abi.PARAMS] = self._params.ctypes.data
        head[abi.WORKSPACE] = self.workspace_bytes
        head[abi.INPUTS], head[abi.OUTPUTS] = len(self.inputs), len(self.outputs)
        head[abi.RELEASE], head[abi.WRAP] = int(self.release_gil), int(wrap)
        head[abi.ON_ERROR] = id(on_error)
        head[abi.CLASS] = id(ConcreteArray)
        head[abi.VALUE_AT], head[abi.WEAK_AT] = value_at, weak_at
        dims = np.array([n for s in (*self.inputs, *self.outputs) for n in s.shape] or [0])
        words, at = list(head), dims.ctypes.data
        for spec in self.inputs:
            weak = _words[spec.weak_type if wrap else None]
            kind = _SCALARS.get(spec.dtype.name, 0) if not spec.shape else 0
            if wrap and spec.weak_type is not None:
                kind = kind if spec.weak_type == (kind != abi.BOOL) else 0
            words += _record(spec, at, weak, kind)
            at += 8 * len(spec.shape)
        for spec in self.outputs:
            words += _record(spec, at, _words[bool(spec.weak_type)], 0)
            at += 8 * len(spec.shape)
        plan = np.array(words, np.int64)
        return found.function(plan, dims, on_error, self)


def _record(spec: Spec, dims: int, weak: int, kind: int) -> list[int]:
    record = [0] * abi.RECORD
    record[abi.DESCR], record[abi.RANK] = id(spec.dtype), len(spec.shape)
    record[abi.DIMS], record[abi.WEAK] = dims, weak
    record[abi.SCALAR], record[abi.BYTES] = kind, spec.bytes
    return record


def aligned(size: int) -> np.ndarray:
    """Bytes whose address is a multiple of 64."""
    try:
        raw = np.empty(size + abi.ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise no_memory(size) from error
    offset = -raw.ctypes.data % abi.ALIGNMENT
    return raw[offset : offset + size]


def release_memory() -> None:
    """Give the memory of freed arrays, which is kept for later ones, back to the system; tables too."""
    symbols.forget()
    found = call_wrapper_loader.get()
    if found is not None:
        found.trim()
    # What NumPy and compilers have freed, which glibc keeps where longer-lived blocks lie above it.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
