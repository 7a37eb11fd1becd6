"""How many threads OpenBLAS uses: one for small work, or if fnx is to use one.

OpenBLAS shares out matrix times vector from 9000 elements on, a triangular solve from order 8 on.
Waking a second thread costs more than that, and where cores are busy (a container with a quota, one
process a core) a whole time slice: 10 ms instead of 10 us. Calls of its routines are therefore
between `enter`, which is told how much work there is, and `leave`. Products of real matrices are not
OpenBLAS's (gemm.py).
"""

import ctypes
import os
from functools import cache, lru_cache

from fnx.lowering.cpu.jit import code_cache
from fnx.lowering.cpu.jit.session import once
from fnx.lowering.cpu.llvm.ir_builder import Function, Module, i32, i64
from fnx.lowering.cpu.processor import thresholds

from . import thread_pool

EXPORTS = ("fnx_blas_enter", "fnx_blas_leave", "fnx_blas_reset", "fnx_blas_threads")


def text() -> str:
    """The LLVM IR of `i64 fnx_blas_enter(i64 work)` and `void fnx_blas_leave(i64 entered)`.

    OpenBLAS has one number of threads for all its callers. It is as it was when the last of those
    has left who entered in one thread.
    """
    module = Module()
    module.variable("fnx_blas_threads", "i64", "1", public=True)  # that fnx may use
    for name in ("inside", "before"):
        module.variable(name, "i64")
    module.variable("lock", "i32")
    with Function(module, "acquire", "void") as f:
        with f.forever() as done:
            with f.when(f.exchange_if(f.object("lock"), i32(0), i32(1)), likely=True):
                f.leave(done)
            f.call("sched_yield", "i32")
        f.ret()
    with Function(module, "fnx_blas_enter", "i64", "i64", public=True) as f:
        several = f.compare("sgt", f.load(f.object("fnx_blas_threads")), 1)
        with f.when(f.both(several, f.compare("sge", f.args[0], thresholds.BLAS_WORK))):
            f.ret(i64(0))
        f.call("acquire", "void")
        inside = f.load(f.object("inside"))
        with f.when(f.compare("eq", inside, 0)):
            before = f.call("get_threads", "i32")
            f.store(f.convert("sext", before, "i64"), f.object("before"))
            with f.when(f.compare("sgt", before, 1)):
                f.call("set_threads", "void", i32(1))
        f.store(f.add(inside, 1), f.object("inside"))
        f.atomic_store(i32(0), f.object("lock"))
        f.ret(i64(1))
    with Function(module, "fnx_blas_leave", "void", "i64", public=True) as f:
        with f.when(f.compare("eq", f.args[0], 0)):
            f.ret()
        f.call("acquire", "void")
        inside = f.sub(f.load(f.object("inside")), 1)
        f.store(inside, f.object("inside"))
        before = f.convert("trunc", f.load(f.object("before")), "i32")
        with f.when(f.both(f.compare("eq", inside, 0), f.compare("sgt", before, 1))):
            f.call("set_threads", "void", before)
        f.atomic_store(i32(0), f.object("lock"))
        f.ret()
    with Function(module, "fnx_blas_reset", "void", public=True) as f:
        # What a forked child does: of those who have entered, none came with it.
        f.atomic_store(i32(0), f.object("lock"))
        inside = f.load(f.object("inside"))
        f.store(0, f.object("inside"))
        before = f.convert("trunc", f.load(f.object("before")), "i32")
        with f.when(f.both(f.compare("sgt", inside, 0), f.compare("sgt", before, 1))):
            f.call("set_threads", "void", before)
        f.ret()
    return str(module)


def compiled(get: int, put: int) -> code_cache.Code:
    """The code, for these functions that read and set the number of OpenBLAS's threads."""
    imports = {"get_threads": get, "set_threads": put}
    return code_cache.code(text, EXPORTS, imports, "glue", "fnx_blas")


@once
def _code() -> code_cache.Code:
    get, put = _controls() or _nothing()
    code = compiled(get, put)
    code_cache.keep_forever(code.keep)
    reset = ctypes.PYFUNCTYPE(None)(code.addresses["fnx_blas_reset"])
    os.register_at_fork(after_in_child=reset)
    ours = ctypes.c_int64.from_address(code.addresses["fnx_blas_threads"])
    ours.value = thread_pool.get_num_threads()
    thread_pool.watchers.append(lambda n: setattr(ours, "value", n))
    return code


def address(name: str) -> int:
    """The address of `fnx_blas_enter` or `fnx_blas_leave`."""
    return _code().addresses[name]


@lru_cache(maxsize=1)
def _nothing() -> tuple[int, int]:
    """For another BLAS: it always has one thread."""
    functions = ctypes.CFUNCTYPE(ctypes.c_int32)(lambda: 1), ctypes.CFUNCTYPE(None)(lambda: None)
    code_cache.keep_forever(functions)
    one, none = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions)
    return one, none


@cache
def _controls() -> tuple[int, int] | None:
    """Addresses of the functions that read and set how many threads SciPy's OpenBLAS uses."""
    for path in _loaded():
        try:
            library = ctypes.CDLL(path, os.RTLD_NOLOAD)  # what is not loaded stays so
        except (OSError, UnicodeDecodeError):  # a file of numbers, say; of a name that is no text
            continue
        for prefix in ("scipy_openblas", "openblas"):
            found = [
                getattr(library, f"{prefix}_{verb}_num_threads", None) for verb in ("get", "set")
            ]
            if all(found):
                return tuple(ctypes.cast(f, ctypes.c_void_p).value for f in found)  # type: ignore
    return None


def _loaded() -> list[str]:
    """Files of the OpenBLAS libraries in this process whose integers have 32 bits."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    except OSError:
        return []
    names = {path: path.rpartition("/")[2] for path in paths}
    return sorted(p for p in paths if "openblas" in names[p] and "64_" not in names[p])
