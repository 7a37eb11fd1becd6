"""From LLVM text to machine code in memory: compiled once by Numba's LLVM, kept on disk.

This is Numba's code generator with its settings (a test holds one against the other), less what
its import takes: 0.15 s, several times what compiling a program does. It needs llvmlite alone.
"""

import ctypes
import itertools
import os
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fnx.core.errors import CompileError
from fnx.lowering.target.processor import processor

from . import cache

PIPELINE = "7"  # names the settings below in keys of the cache; change it with them
Imports = Mapping[str, int] | Callable[[bytes], Mapping[str, int]] | None
_MEMORY_LIMIT = 1024  # programs that stay loaded though nobody may use them any more


@dataclass(eq=False)
class Code:
    """Machine code in memory: the addresses of its functions, and how it came there."""

    key: str  # in the cache
    addresses: dict[str, int]
    origin: str  # "compiled" or "disk"
    llvm_seconds: float
    load_seconds: float
    imports: tuple[str, ...]  # the routines that it was told the addresses of
    keep: Any = field(repr=False, default=None)  # unloads the code when it dies


_lock = threading.RLock()
os.register_at_fork(after_in_child=_lock._at_fork_reinit)  # another thread may hold it
_loaded: OrderedDict[str, Code] = OrderedDict()
_counts = {"compiled": 0, "disk_hits": 0, "memory_hits": 0}


def stats() -> dict[str, int]:
    """How many programs were compiled, read from the disk, and found in memory."""
    return dict(_counts)


def program(
    text: str, exports: Sequence[str], imports: Imports = None, key: str = ""
) -> tuple[Code, bool]:
    """The loaded code of a user's program, by its text; and whether it was in memory.

    `key` is that of code that was seen before, whose text need not be known; CacheMiss if it is
    gone.
    """
    key = key or cache.key("code", PIPELINE, "program", text, sources=False)
    with _lock:
        found = _loaded.get(key)
        if found is not None:
            _counts["memory_hits"] += 1
            _loaded.move_to_end(key)
            return found, True
        found = _loaded[key] = _code(key, text, exports, imports, "program")
        _counts["compiled" if found.origin == "compiled" else "disk_hits"] += 1
        while len(_loaded) > _MEMORY_LIMIT:
            _loaded.popitem(last=False)
    return found, False


class CacheMiss(LookupError):
    """Code is not on disk (any more), and there is no text to make it from."""


def code(
    text: str | Callable[[], str],
    exports: Sequence[str],
    imports: Imports = None,
    kind: str = "program",
    name: str = "",
) -> Code:
    """The loaded code of an LLVM module: from disk, or compiled now.

    `exports` are the functions whose addresses are wanted. `imports` are the addresses of symbols
    that the process does not know by name, or a function that tells those that an object uses.
    `kind` chooses the passes (PASSES). A `name` stands for the text as long as fnx's sources are
    the same; the text is then made only if it is not on disk.
    """
    key = cache.key("code", PIPELINE, kind, name or _made(text), sources=bool(name))
    return _code(key, text, exports, imports, kind)


def _made(text: str | Callable[[], str]) -> str:
    return text() if callable(text) else text


def _code(
    key: str, text: str | Callable[[], str], exports: Sequence[str], imports: Imports, kind: str
) -> Code:
    start = time.perf_counter()
    binary, llvm_seconds, origin = cache.get(key), 0.0, "disk"
    if binary is not None:
        try:
            linked = link(binary, exports, imports)
        except RuntimeError:
            binary = None  # whatever it is, it is not this program: compile anew
    if binary is None:
        if not text:
            raise CacheMiss(key)
        begin = time.perf_counter()
        binary, origin = compile_text(_made(text), kind), "compiled"
        llvm_seconds = time.perf_counter() - begin
        linked = link(binary, exports, imports)
        cache.put(key, binary)
    spent = time.perf_counter() - start - llvm_seconds
    addresses, known, keep = linked
    return Code(key, addresses, origin, llvm_seconds, spent, known, keep)


def forget() -> None:
    """Drop loaded programs that no executable holds, and set the counts to zero (for tests)."""
    with _lock:
        _loaded.clear()
        for name in _counts:
            _counts[name] = 0


# --- compile: the settings of Numba's code generator -------------------------------------------


@lru_cache(maxsize=2)
def target_machine(quick: bool = False) -> Any:
    """LLVM for this CPU, with the settings of Numba's JIT code generator and the small code model.

    All sections of a program lie in one block of memory, so that constants and functions are in
    reach of 32-bit offsets, which are shorter to compile and to run than Numba's 64-bit ones.
    The `quick` one chooses instructions in a tenth of the time, and not so well.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    settings = {"reloc": "pic", "codemodel": "small", "jit": True}
    cpu, features = processor()
    # LLVM avoids 512-bit vectors on Intel's CPUs, the first of which ran slower with them.
    # Those with VBMI do not; there 512 bits take 0.5 to 0.75 of the time of 256.
    if "+avx512vbmi," in features:
        features += ",-prefer-256-bit"
    return target.create_target_machine(
        cpu=cpu, features=features, opt=0 if quick else 3, **settings
    )


def parse(text: str, machine: Any) -> Any:
    """The module of a text, for a target machine."""
    import llvmlite.binding as llvm

    try:
        module = llvm.parse_assembly(text)
    except RuntimeError as error:
        raise CompileError(f"LLVM rejects the text of a program: {error}") from error
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module


# What is done to a module. Programs get LLVM's O2: O3 differs in that more is unrolled, which was no
# faster, and O2 compiled in 0.85 of the time. Straight code of vector functions needs little, and
# routines that were written with vectors; the call wrapper and its like are long, and well served by
# code that is chosen quickly.
PASSES = {
    "program": None,
    "function": ("always_inliner", "instruction_combine", "new_gvn", "dead_code_elimination"),
    "routine": ("sroa", "instruction_combine", "loop_rotate", "simplify_cfg"),
    "glue": ("sroa", "simplify_cfg", "instruction_combine"),
}


def _optimized(text: str, kind: str) -> tuple[Any, Any]:
    """The target machine, and the module of a text after its optimisation passes."""
    import llvmlite.binding as llvm

    machine = target_machine(quick=kind == "glue")
    module = parse(text, machine)
    listed = PASSES[kind]
    settings = llvm.create_pipeline_tuning_options(speed_level=2 if listed is None else 0)
    settings.loop_vectorization, settings.slp_vectorization = listed is None, False
    builder = llvm.create_pass_builder(machine, settings)
    if listed is None:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in listed:
            getattr(passes, f"add_{name}_pass")()
    passes.run(module, builder)
    return machine, module


def compile_text(text: str, kind: str = "program") -> bytes:
    """The object code of an LLVM module."""
    with _compiler_lock(), _fewer_passes():
        machine, module = _optimized(text, kind)
        return machine.emit_object(module)


def assembly(text: str, kind: str = "program") -> str:
    """The assembly of an LLVM module."""
    with _compiler_lock(), _fewer_passes():
        machine, module = _optimized(text, kind)
        return machine.emit_assembly(module)


@contextmanager
def _compiler_lock() -> Iterator[None]:
    """Ours, and Numba's, since what follows sets an option of LLVM that Numba's code must not see."""
    numba = sys.modules.get("numba.core.compiler_lock")
    with _lock, getattr(numba, "global_compiler_lock", None) or nullcontext():
        yield


# Passes that are left out, by options of LLVM, which are process-wide; and their defaults.
# - Loop strength reduction takes up to three quarters of the time of stencils. Measured over 50
#   programs: code as fast without it (geometric mean 0.99, stencils 0.9), compiled in 0.86 of the
#   time (stencils 0.4).
# - Partial redundancy elimination of loads in loops keeps x[i + 1] for the next round, where it is
#   x[i]. The vectoriser then finds rounds that depend on each other: stencils ran at a third.
_LEFT_OUT = {"disable-lsr": ("true", "false"), "enable-load-in-loop-pre": ("false", "true")}


@contextmanager
def _fewer_passes() -> Iterator[None]:
    """Leave out passes that cost more than they bring."""
    import llvmlite.binding as llvm

    # Not tried before LLVM 20; it ends the process if it does not know an option.
    if llvm.llvm_version_info[0] < 20:
        yield
        return
    for option, (ours, _) in _LEFT_OUT.items():
        llvm.set_option("fnx", f"-{option}={ours}")
    try:
        yield
    finally:
        for option, (_, default) in _LEFT_OUT.items():
            llvm.set_option("fnx", f"-{option}={default}")


def warm_up() -> None:
    """Import what compiling needs, so that the first program does not wait for it."""
    with _lock:
        target_machine()
        _linker()


# --- link: LLVM's JIT linker -------------------------------------------------------------------

_serial = itertools.count()


@lru_cache(maxsize=1)
def _linker() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
        opt=0, reloc="pic", codemodel="small", jit=True
    )
    linker = llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
    keep_forever(linker)
    return linker


def keep_forever(owner: Any) -> None:
    """Code that may run while the interpreter shuts down must outlive it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


def link(
    binary: bytes, exports: Sequence[str], imports: Imports = None
) -> tuple[dict[str, int], tuple[str, ...], Any]:
    """Addresses of the functions that an object exports, its imports, and what keeps it loaded."""
    from llvmlite.binding import JITLibraryBuilder

    builder = JITLibraryBuilder().add_object_img(binary).add_current_process()
    known = imports(binary) if callable(imports) else imports or {}
    for name, address in known.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        tracker = builder.link(_linker(), f"fnx{next(_serial)}")
    return {name: tracker[name] for name in exports}, tuple(known), tracker
