"""From LLVM text to object code, with the settings of Numba's code generator.

Numba itself would take 0.15 s to import, several times what compiling a program does; a test holds
one generator against the other. This needs llvmlite alone.
"""

import ctypes
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache, partial, wraps
from typing import Any

from fnx.core.errors import CompileError
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import processor

from . import compile_threads, llvm_options, partition

_session = fork_safe(threading.RLock())


class _Session:
    """A context manager of a generator, which is closed where an interrupt comes on entering."""

    def __init__(self, steps: Any):
        self.steps = steps

    def __enter__(self) -> compile_threads.Crew:
        try:
            return next(self.steps)
        except BaseException:
            self.steps.close()
            raise

    def __exit__(self, *_: Any) -> None:
        self.steps.close()


def session(helpers: bool = False) -> _Session:
    """LLVM for this thread and a crew that it leads, with helpers where much is to be compiled.

    LLVM's options are process-wide: Numba does not compile meanwhile, nor do other threads.
    """
    return _Session(_session_steps(helpers))


def _session_steps(helpers: bool) -> Iterator[compile_threads.Crew]:
    found = compile_threads.current()
    if found is not None:
        yield found
        return
    crew = compile_threads.Crew(compile_threads.size() if helpers else 1)
    owned, numbas = _is_owned(_llvms_lock()), _numbas_lock()
    ours = numbas is not None and not numbas._is_owned()
    end = partial(_end, crew, not owned, numbas if ours else None)
    with _session:
        try:  # in one frame: an interrupt between two context managers would forget one of them
            if ours:
                numbas.acquire()
            compile_threads.here.crew = crew
            yield crew
        finally:
            try:
                end()
            finally:  # all of it once more, for an interrupt within that
                end()


def _end(crew: compile_threads.Crew, llvms: bool, numbas: Any) -> None:
    """Let go of all that a session took, as far as that is not done; `llvms`: LLVM's lock, too."""
    compile_threads.here.crew = None
    _give_back(_llvms_lock(), llvms)  # helpers want it
    crew.disperse()
    crew.tasks.put(None)
    llvm_options.restore()
    _give_back(_llvms_lock(), llvms)
    _give_back(numbas, True)


# Of Numba and llvmlite the locks inside of theirs: those are taken and given back by methods written in
# Python, where an interrupt may leave them taken.


def _numbas_lock() -> Any:
    """What Numba locks while it compiles, if it is there: it may be held when a process forks."""
    numba = sys.modules.get("numba.core.compiler_lock")
    lock = getattr(numba, "global_compiler_lock", None)
    return None if lock is None else getattr(_known_to_forks(lock), "_lock", None)


def _llvms_lock() -> Any:
    """What llvmlite locks in each function."""
    lib = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    return getattr(getattr(lib, "_lock", None), "_lock", None)


def _is_owned(lock: Any) -> bool:
    return lock is not None and lock._is_owned()


def _give_back(lock: Any, ours: bool) -> None:
    """Release a lock as often as this thread took it, if that was here."""
    while ours and _is_owned(lock):
        lock.release()


@cache
def _known_to_forks(lock: Any) -> Any:
    """A lock of llvmlite's or Numba's, which both hold one of Python's."""
    inner = getattr(lock, "_lock", None)
    if hasattr(inner, "_at_fork_reinit"):
        fork_safe(inner)
    return lock


def once(function: Callable) -> Callable:
    """The function, computed once for each argument, by one thread of those that ask.

    Its `soon` lets the crew of this thread compute what will be asked for.
    """
    values: dict[Hashable, Any] = {}
    locks: dict[Hashable, Any] = {}
    os.register_at_fork(after_in_child=locks.clear)

    @wraps(function)
    def of(*key: Hashable) -> Any:
        if key not in values:
            # A session first: whoever leads one may wait for helpers that wait for this lock.
            with session(), locks.setdefault(key, threading.RLock()):
                if key not in values:
                    values[key] = function(*key)
        return values[key]

    def soon(*key: Hashable) -> None:
        if key not in values:
            compile_threads.soon(of, *key)

    of.values, of.soon = values, soon  # type: ignore[attr-defined]
    return of


_idle: dict[bool, deque] = {False: deque(), True: deque()}  # target machines, by `quick`


@contextmanager
def target_machine(quick: bool = False) -> Iterator[Any]:
    """A target machine that nobody else uses meanwhile, within a session."""
    from llvmlite.binding import ffi

    _known_to_forks(getattr(ffi.lib, "_lock", None))
    llvm_options.leave_out_passes()
    try:
        machine = _idle[quick].pop()
    except IndexError:
        machine = _target_machine(quick)
    yield machine
    _idle[quick].append(machine)


def _target_machine(quick: bool) -> Any:
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
    """The module of a text, for a target machine.

    Its context frees it: where a traceback is kept, the collector gets to see both, and may finalise the
    context first. llvmlite's `parse_assembly` lets each free the module.
    """
    from llvmlite.binding import context, ffi
    from llvmlite.binding.module import ModuleRef

    owner = context.create_context()
    with ffi.OutputString() as error:
        found = ffi.lib.LLVMPY_ParseAssembly(owner, ctypes.c_char_p(text.encode()), error)
        if not found:
            raise CompileError(f"LLVM rejects the text of a program: {error}")
        module = ModuleRef.__new__(ModuleRef)
        module._owned = True
        module.__init__(found, owner)  # type: ignore[misc]
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    return module


# What is done to a module. Programs get LLVM's O1, with its vectoriser. Of 145 parts of programs O2 made
# the same code of 127; the others ran as fast (geometric mean 1.00). It took 1.2 times as long, 1.5
# times for long kernels: what it does besides is to look for loads and stores that are not needed
# (GVN, DSE), and texts are such that each number is loaded once. O3 unrolls more, which was no faster.
# Straight code of vector functions needs little, and routines that were written with vectors (those of
# Fourier transforms repeat addresses); the call wrapper and its like are long, and well served by
# code that is chosen quickly.
PASSES = {
    "program": None,
    "function": ("always_inliner", "instruction_combine", "new_gvn", "dead_code_elimination"),
    "routine": ("sroa", "instruction_combine", "loop_rotate", "simplify_cfg"),
    "transform": (
        *("sroa", "instruction_combine", "new_gvn", "loop_rotate"),
        *("instruction_combine", "simplify_cfg"),
    ),
    "straight": ("always_inliner", "sroa", "instruction_combine"),
    "rare": ("always_inliner",),
    "glue": ("sroa", "simplify_cfg", "instruction_combine"),
}


def _optimized(text: str, kind: str, machine: Any) -> Any:
    """The module of a text after its optimisation passes."""
    import llvmlite.binding as llvm

    module = parse(text, machine)
    listed = PASSES[kind]
    settings = llvm.create_pipeline_tuning_options(speed_level=1 if listed is None else 0)
    settings.loop_vectorization, settings.slp_vectorization = listed is None, False
    builder = llvm.create_pass_builder(machine, settings)
    if listed is None:
        passes = builder.getModulePassManager()
    else:
        passes = llvm.create_new_module_pass_manager()
        for name in listed:
            getattr(passes, f"add_{name}_pass")()
    try:
        _unlocked("LLVMPY_RunNewModulePassManager")(passes, module, builder)
    finally:
        _free(passes)
    return module


def _free(passes: Any) -> None:
    """Free a pass manager, some 40 KB, which llvmlite 0.50 does not: its method is hidden by another."""
    from llvmlite.binding.newpassmanagers import NewPassManager

    passes._owned = True  # from here on nobody else does
    NewPassManager._dispose(passes)


def _unlocked(name: str) -> Callable:
    """A function of llvmlite's library without the lock that admits one thread at a time.

    Modules here have contexts of their own, so that LLVM can work on several.
    """
    from llvmlite.binding import ffi

    function = getattr(ffi.lib, name)
    return getattr(function, "_cfn", function)


def _emitted(module: Any, machine: Any, as_object: bool) -> bytes:
    from llvmlite.binding import ffi

    emit = _unlocked("LLVMPY_TargetMachineEmitToMemory")
    with ffi.OutputString() as error:
        buffer = emit(machine, module, int(as_object), error)
        if not buffer:
            raise CompileError(f"LLVM cannot make code of a program: {error}")
    try:
        start = ffi.lib.LLVMPY_GetBufferStart(buffer)
        return ctypes.string_at(start, ffi.lib.LLVMPY_GetBufferSize(buffer))
    finally:
        ffi.lib.LLVMPY_DisposeMemoryBuffer(buffer)


def compile_text(text: str, kind: str = "program", as_object: bool = True) -> bytes:
    """The object code of an LLVM module, or its assembly."""
    if kind == "program" and _is_long_and_straight(text):
        kind, text = "straight", in_blocks(text)
    quick = kind in ("straight", "rare", "glue")
    with session(), target_machine(quick) as machine:
        module = _optimized(text, kind, machine)
        with llvm_options.making_code(partition.IN_ORDER in text):
            return _emitted(module, machine, as_object)


def _is_long_and_straight(text: str) -> bool:
    """Whether a program has no loop, but so many instructions that to compile it well takes seconds.

    LLVM's time grows with the square of a block's length (what a store overwrites, which value a
    load finds, which instructions do for an expression), and such code runs once in a call.
    """
    return text.count("\n") > thresholds.STRAIGHT_LINES and " phi " not in text


def in_blocks(text: str) -> str:
    """The text of a module without loops in blocks of bounded length, which LLVM takes one by one.

    It chooses the instructions of a block that loads thousands of numbers in cubic time.
    """
    lines, length = [], 0
    for line in text.split("\n"):
        lines.append(line)
        length = length + 1 if line.startswith("  %") else 0 if line.startswith("}") else length
        if length == thresholds.STRAIGHT_BLOCK and line.startswith("  %"):
            lines += [f"  br label %block{len(lines)}", f"block{len(lines)}:"]
            length = 0
    return "\n".join(lines)


def assembly(text: str, kind: str = "program") -> str:
    """The assembly of an LLVM module; of a program's, that of its parts one after the other."""
    return "".join(
        [compile_text(t, kind, as_object=False).decode() for t in partition.split(text, 1)]
    )
