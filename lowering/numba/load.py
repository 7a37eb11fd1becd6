"""Programs of Numba's as callables: compiled, or found on disk; called as all native programs are."""

import marshal
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numba

from fnx.core.fast_dataclasses import dataclass
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.jit import disk_cache
from fnx.lowering.cpu.jit.session import session
from fnx.lowering.cpu.loader import executable
from fnx.lowering.cpu.processor import thresholds, ufunc_loops
from fnx.lowering.ir.kernel import Program

_KIND = "numba"  # of an entry on disk
_lock = fork_safe(threading.RLock())
_loaded: OrderedDict[str, "Code"] = OrderedDict()  # the one that was asked for last at the end


@dataclass(eq=False)
class Code:
    """Native code as the loader takes it: addresses by name, and what was spent."""

    library: Any  # holds the memory of the code
    addresses: dict[str, int]
    llvm_seconds: float
    load_seconds: float
    origin: str
    imports: tuple[str, ...] = ()


def load(
    printed: Any, program: Program, inputs: Sequence[tuple], outputs: Sequence[tuple]
) -> executable.Executable:
    """The executable of a printed program on arrays of these shapes and dtypes."""
    params: list[Any] = []
    if printed.calls:
        params = [("symbol", "fnx_poll"), 0, *map(_param, printed.hosts)]
    made = executable.Executable(
        _code(printed),
        params,
        [executable.Spec.of(*spec) for spec in inputs],
        [executable.Spec.of(*spec) for k, spec in enumerate(outputs) if k not in program.aliases],
        program.workspace,
    )
    made.aliases = dict(program.aliases)
    return made


def _param(call: Any) -> tuple:
    """What the loader makes the address of a call of."""
    if isinstance(call, tuple):
        return call
    if not isinstance(call, str):
        return "host", call
    name, _, given = call.removeprefix("special:").partition("/")
    return "symbol", f"special:{name}/{ufunc_loops.special_types(name, given)}"


def _code(printed: Any) -> Code:
    places = str([(b.dtype, b.space, b.place) for b in printed.buffers])
    key = disk_cache.key(_KIND, numba.__version__, printed.source, places)
    with _lock:
        found = _loaded.get(key)
    if found is None:
        with session():  # Numba compiles nothing meanwhile
            found = _found(key, f"fnx_{key}") or _made(key, printed, f"fnx_{key}")
    with _lock:
        _loaded[key] = found
        _loaded.move_to_end(key)
        while len(_loaded) > thresholds.LOADED_PROGRAMS:
            _loaded.popitem(last=False)
    return found


def forget() -> None:
    """Let go of all code; that of programs lives on with them."""
    with _lock:
        _loaded.clear()


def _found(key: str, entry: str) -> Code | None:
    """Code that is on disk."""
    data = disk_cache.get(key, _KIND)
    if data is None:
        return None
    from numba.core.registry import cpu_target

    start = time.perf_counter()
    library = cpu_target.target_context.codegen().unserialize_library(marshal.loads(data))
    address = library.get_pointer_to_function(entry)
    return Code(library, {"entry": address}, 0.0, time.perf_counter() - start, "disk")


def _made(key: str, printed: Any, entry: str) -> Code:
    """Code that Numba makes now, and that is kept on disk."""
    start = time.perf_counter()
    from . import compiler

    library = compiler.library(printed, entry)
    address = library.get_pointer_to_function(entry)
    seconds = time.perf_counter() - start
    disk_cache.put(key, marshal.dumps(library.serialize_using_object_code()), _KIND)
    return Code(library, {"entry": address}, seconds, 0.0, "compiled")


def jit_is_disabled() -> bool:
    """Whether Numba is told to compile nothing (NUMBA_DISABLE_JIT)."""
    return bool(numba.config.DISABLE_JIT)
