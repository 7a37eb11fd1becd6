"""From LLVM text to object code, with the settings of Numba's code generator.

Numba itself would take 0.15 s to import, several times what compiling a program does; a test holds
one generator against the other. This needs llvmlite alone.
"""

import ctypes
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fnx.core.errors import CompileError
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import processor

from . import llvm_options, partition
from .session import known_to_forks, session

_idle: dict[bool, deque] = {False: deque(), True: deque()}  # target machines, by `quick`


@contextmanager
def target_machine(quick: bool = False) -> Iterator[Any]:
    """A target machine that nobody else uses meanwhile, within a session."""
    from llvmlite.binding import ffi

    known_to_forks(getattr(ffi.lib, "_lock", None))
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


_BLOCK_ENDS = re.compile(r"^\S", re.MULTILINE)  # instructions are indented, all else is not


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
        with llvm_options.making_code(_ways(text)):
            return _emitted(module, machine, as_object)


def _ways(text: str) -> list[str]:
    """In which ways LLVM is to make the code of a module."""
    ways = [llvm_options.IN_ORDER] if partition.IN_ORDER in text else []
    if text.count("\n") > thresholds.LONG_BLOCK:
        lengths = [part.count("\n") for part in _BLOCK_ENDS.split(text)]
        ways += [llvm_options.LONG_BLOCKS] if max(lengths) > thresholds.LONG_BLOCK else []
    return ways


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
