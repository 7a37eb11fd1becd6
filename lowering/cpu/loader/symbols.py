"""Addresses of routines outside a program: BLAS and LAPACK, the C library, fnx's own run time."""

import ctypes
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fnx.core.errors import CompileError
from fnx.lowering.cpu.jit import compile_threads
from fnx.lowering.cpu.jit.image import address_in_process
from fnx.lowering.cpu.jit.session import once


@once
def resolve(name: str) -> int:
    """The address of a routine.

    `name` is "blas:dgemm", "lapack:dgetrf", "libm:erf", "fnx:fnx_poll", or a bare name, which is
    looked for in fnx's run time, BLAS, LAPACK and the C library, in this order. "special:" and a name
    and types stand for the address of a record.
    """
    kind, _, bare = name.rpartition(":")
    if kind == "special":
        return _special_function(bare)
    places = {kind: _PLACES[kind]} if kind else _PLACES
    for place in places.values():
        address = place(bare)
        if address:
            return address
    raise CompileError(f"the library routine {name!r} does not exist on this machine")


def _runtime(name: str) -> int | None:
    if name.startswith("fnx_v_"):
        from fnx.lowering.cpu.jit import vector_library

        return vector_library.address(name)
    maker = RUNTIME.get(name)
    if maker is not None:
        return maker()
    from fnx.lowering.cpu.kernels import library

    return library.find(name)


def _poll() -> int:
    from fnx.lowering.cpu.runtime import interrupts

    return interrupts.address()


def _parallel_for() -> int:
    from fnx.lowering.cpu.runtime import thread_pool

    return thread_pool.address()


def _parallel_for_polled() -> int:
    from fnx.lowering.cpu.runtime import thread_pool

    return thread_pool.pool().polled


def _fourier() -> int:
    from fnx.lowering.cpu.kernels import fft_executor

    return fft_executor.address()


def _fourier_plan(name: str) -> tuple[int, Any]:
    from fnx.lowering.cpu.kernels import fft_plan

    plan = fft_plan.plan(name)
    return plan.address, plan


def _team() -> Any:
    from fnx.lowering.cpu.loader import team

    return team


def _exchange() -> int:
    return _team().address("fnx_exchange")


def _special_function(name: str) -> int:
    from fnx.lowering.cpu.processor import ufunc_loops

    return ufunc_loops.special(name)


class ArrayName(str):
    """A name for the data of an array of NumPy's, which it holds, as programs then do."""

    array: Any


_arrays: WeakValueDictionary[str, Any] = WeakValueDictionary()  # for texts that know names alone


def keep(array: Any) -> str:
    """The name of an array."""
    name = ArrayName(f"array:{id(array)}")
    name.array = _arrays[str(name)] = array
    return name


def owned(name: str) -> tuple[int, Any]:
    """An address as `resolve` finds it, and the object that has to live as long as it is used."""
    if isinstance(name, ArrayName):
        return name.array.ctypes.data, name.array
    if name.startswith("array:"):
        return _arrays[name].ctypes.data, _arrays[name]
    if name.startswith("fft:"):
        return _fourier_plan(name.removeprefix("fft:"))
    if name.startswith("exchange:"):
        found = _team().record(name.removeprefix("exchange:"))
        return found.ctypes.data, found
    return resolve(name), None


def soon(name: str) -> None:
    """Let the crew of this thread, if there is one, find what will be asked for."""
    if name.startswith("fft:"):
        compile_threads.soon(owned, name)
    elif name.startswith("exchange:"):
        pass  # is made at once
    elif not isinstance(name, ArrayName):
        resolve.soon(name)


def forget() -> None:
    """Let go of tables that no program uses."""
    plans = sys.modules.get("fnx.lowering.cpu.kernels.fft_plan")
    if plans is not None:
        plans.forget()


def _threads_of_blas(name: str) -> Callable[[], int]:
    def address() -> int:
        from fnx.lowering.cpu.runtime import blas_threads

        return blas_threads.address(name)

    return address


RUNTIME = {"fnx_poll": _poll, "fnx_fft": _fourier, "fnx_parallel_for": _parallel_for}
RUNTIME |= {"fnx_parallel_for_polled": _parallel_for_polled, "fnx_exchange": _exchange}
RUNTIME |= {name: _threads_of_blas(name) for name in ("fnx_blas_enter", "fnx_blas_leave")}
_DECLARED = r"^declare [^@\n]*@(fnx_\w+)\("


class Runtime:
    """The routines of fnx's run time that a module declares, as what objects import.

    A module declares more than its object code uses: each vector function in all its widths.
    """

    def __init__(self, text: str):
        self.declared = []
        if "@fnx_" in text:
            self.declared = sorted(set(re.findall(_DECLARED, text, re.MULTILINE)))

    def _used(self, binary: bytes) -> list[str]:
        # An object lists the names of its symbols, each ended by a zero.
        return [name for name in self.declared if f"{name}\0".encode() in binary]

    def __call__(self, binary: bytes) -> dict[str, int]:
        return addresses(self._used(binary))

    def soon(self, binary: bytes) -> None:
        """Have the routines ready that an object uses."""
        for name in self._used(binary):
            resolve.soon(f"fnx:{name}")


def addresses(names: Sequence[str]) -> dict[str, int]:
    """The addresses of routines of fnx's run time."""
    return {name: resolve(f"fnx:{name}") for name in names}


# --- BLAS and LAPACK: pointers that SciPy exports ----------------------------------------------

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype, _capsule_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _scipy(module: str, name: str) -> int | None:
    capsules = _exported(module)
    return pointer(capsules[name]) if name in capsules else None


@once
def _exported(module: str) -> dict:
    capsules = _extension(f"scipy.linalg.{module}").__pyx_capi__
    # Cython writes the C signature into the capsule's name; Fortran integers are passed as int *.
    probe = {"cython_blas": "daxpy", "cython_lapack": "dgetrf"}[module]
    signature = _capsule_name(capsules[probe]).decode()
    if not re.search(r"\(int \*", signature):
        raise CompileError(
            f"scipy.linalg.{module} takes integers of another width than 32 bits ({signature}); "
            "fnx needs a SciPy whose BLAS has 32-bit integers (LP64), as the wheels have"
        )
    return capsules


def _extension(name: str) -> Any:
    """A compiled module of SciPy, if possible without the packages around it, which take 0.2 s."""
    if name in sys.modules:
        return sys.modules[name]
    package, _, last = name.rpartition(".")
    try:
        root = importlib.util.find_spec("scipy").submodule_search_locations[0]  # type: ignore
        folder = Path(root, *package.split(".")[1:])
        files = [folder / (last + end) for end in importlib.machinery.EXTENSION_SUFFIXES]
        file = next(f for f in files if f.is_file())
        spec = importlib.util.spec_from_file_location(name, file)
        module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
    except (ImportError, StopIteration):  # laid out in another way
        return importlib.import_module(name)
    return module


def pointer(capsule: object) -> int:
    """The address inside a PyCapsule."""
    return _capsule_pointer(capsule, _capsule_name(capsule))


def _blas(name: str) -> int | None:
    return _scipy("cython_blas", name)


def _lapack(name: str) -> int | None:
    return _scipy("cython_lapack", name)


_PLACES = {"fnx": _runtime, "blas": _blas, "lapack": _lapack, "libm": address_in_process}
