"""From the source of a kernel to the device's code: PTX by NVIDIA's compiler, cubins by its linker.

None of it needs a driver or a GPU. Cubins are kept on disk under a digest of the source, the compute
capability and the versions of what compiles them. What `nvvm` does not translate, Numba-CUDA compiles.
"""

import importlib.util
import json
import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from fnx.core.errors import CompileError, InvalidValue, MissingPackage
from fnx.core.fast_dataclasses import dataclass
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.jit import compile_threads, disk_cache
from fnx.lowering.numba import shortened

from . import simulator
from .executable import stored
from .kernels.kernel_printer import Printed
from .nvvm import compiler, translation

INSTALL = "pip install 'fnx[cuda]'"
_COMMON = (8, 0)  # the compute capability that PTX is made for
_numba = fork_safe(threading.RLock())  # whose settings are the process's


@dataclass(eq=False)
class Code:
    """A kernel for one compute capability: its cubin, its entry, and what the linker says of it."""

    cubin: bytes
    entry: str
    registers: int
    spills: int  # bytes stored and loaded
    shared: int  # bytes a block


def capability(device: str) -> tuple[int, int]:
    """The compute capability of a name such as "sm_90"."""
    found = re.fullmatch(r"sm_(\d+)(\d)", device) if isinstance(device, str) else None
    if found is None:
        raise InvalidValue(
            f'{device!r} is no compute capability; expected one as "sm_90" or "sm_120"'
        )
    return int(found[1]), int(found[2])


def ptx(printed: Printed, device: str) -> str:
    """The PTX of a kernel."""
    needed()
    made = _compiled(printed, lambda: _made(printed, capability(device)))
    return b"".join(made).decode()


def cubins(kernels: Sequence[Printed], device: str) -> list[Code]:
    """The machine code of kernels, made side by side: NVIDIA's compilers let other threads run."""
    with compile_threads.gathered(len(kernels) > 1) as crew:
        tasks = [crew.start(cubin, p, device) for p in kernels]
        crew.work()
        return [task.result() for task in tasks]


def cubin(printed: Printed, device: str) -> Code:
    """The machine code of a kernel, from disk if it is there."""
    capability(device)
    key = disk_cache.key("cubin", printed.source, repr(_types(printed)), device, _toolkit())
    known = disk_cache.get(key, "cubin")
    if known is not None:
        head, _, code = known.partition(b"\n")
        return Code(code, **json.loads(head))
    made = _compiled(printed, lambda: _linked(printed, device))
    head = {"entry": made.entry, "registers": made.registers, "spills": made.spills}
    head["shared"] = made.shared
    disk_cache.put(key, json.dumps(head).encode() + b"\n" + made.cubin, "cubin")
    return made


def _types(printed: Printed) -> list[tuple[str, bool]]:
    return [(stored(b.dtype), a) for b, a in zip(printed.buffers, printed.arrays, strict=True)]


def _function(printed: Printed) -> tuple[Any, Any, Any]:
    from numba import cuda, types

    space = dict(simulator.names())
    exec(shortened.kernel(printed.source, f"<{printed.name}>", space), space)
    arguments = []
    for dtype, is_array in _types(printed):
        of = getattr(types, dtype)
        arguments.append(of[::1] if is_array else types.CPointer(of))
    return cuda, space[printed.name], types.void(*arguments)


def _linked(printed: Printed, device: str) -> Code:
    from cuda.core import Linker, LinkerOptions, ObjectCode

    objects = [ObjectCode.from_ptx(text) for text in _intermediate(printed, device)]
    # No cache of the linker's own: what it finds there it links without a word of entry and registers.
    options = LinkerOptions(arch=device, verbose=True, no_cache=True)
    linker = Linker(*objects, options=options)
    code = linker.link("cubin").code
    log = linker.get_info_log()
    entry = re.search(r"Compiling entry function '([^']+)'", log)
    if entry is None:
        raise ValueError(f"the linker names no kernel: {log}")
    number = lambda pattern: sum(map(int, re.findall(pattern, log)))
    return Code(
        bytes(code),
        entry[1],
        number(r"Used (\d+) registers"),
        number(r"(\d+) bytes spill"),
        number(r"(\d+) bytes smem"),
    )


def _intermediate(printed: Printed, device: str) -> list[bytes]:
    """PTX, which the linker makes a device's: one for all devices from 8.0 on.

    Not NVVM's code for optimization by the linker: registers are the same without, and with it the linker
    of CUDA 13.0 crashed now and then.
    """
    least = min(capability(device), _COMMON)
    key = disk_cache.key("ptx", printed.source, repr(_types(printed)), repr(least), _toolkit())
    known = disk_cache.get(key, "ptx")
    if known is not None:
        head, _, rest = known.partition(b"\n")
        sizes = json.loads(head)
        ends = [sum(sizes[: k + 1]) for k in range(len(sizes))]
        return [rest[end - n : end] for n, end in zip(sizes, ends, strict=True)]
    found = _made(printed, least)
    disk_cache.put(key, json.dumps([*map(len, found)]).encode() + b"\n" + b"".join(found), "ptx")
    return found


def _made(printed: Printed, least: tuple[int, int]) -> list[bytes]:
    """The PTX of a kernel, and of what it calls, if it is apart."""
    needed()
    try:
        module = translation.module(printed.source, _types(printed))
    except translation.Unsupported:
        with _numba:
            return _by_numba(printed, least)
    return [compiler.ptx(module, least)]


def _by_numba(printed: Printed, least: tuple[int, int]) -> list[bytes]:
    cuda, function, signature = _function(printed)
    context = cuda.descriptor.cuda_target.typing_context
    with _linear_time(), shortened.remembering(context):
        objects, _ = cuda.compile_all(
            function, signature, cc=least, output="ptx", device=False, abi="numba"
        )
    return [_bytes(o) for o in objects]


def _bytes(code: Any) -> bytes:
    """What Numba gives: text, bytes, or an object of cuda.core's with either."""
    found = getattr(code, "code", code)
    return found.encode() if isinstance(found, str) else bytes(found)


@contextmanager
def _linear_time() -> Iterator[None]:
    """Numba's search for variables that are assigned once, which else looks at a block for each of them.

    Blocks of thousands of variables, as random numbers are, took minutes.
    """
    from numba.cuda import lowering

    lower, name = lowering.Lower, "_find_singly_assigned_variable"
    before = lower.__dict__.get(name)
    if before is None:  # a version that does otherwise
        yield
        return
    setattr(lower, name, _assigned_once)
    try:
        yield
    finally:
        setattr(lower, name, before)


def _assigned_once(self: Any) -> None:
    """In place of the method of Numba's `Lower`: the same variables, found in one pass."""
    from numba.cuda import lowering

    self._singly_assigned_vars, self._blk_local_varmap = set(), {}
    if self.func_ir.func_id.is_generator:
        return
    blocks = self.func_ir.blocks
    found = lowering.compute_use_defs(blocks)
    elsewhere = {v for used in found.usemap.values() for v in used}  # than where they are assigned
    elsewhere |= set(lowering.must_use_alloca(blocks))
    count = Counter(
        s.target.name for b in blocks.values() for s in b.find_insts(lowering.ir.assign_types)
    )
    assigned = {v for defined in found.defmap.values() for v in defined}
    self._singly_assigned_vars = {v for v in assigned - elsewhere if count[v] == 1}


def _compiled(printed: Printed, make: Any) -> Any:
    """What a compiler makes; CompileError with the source where it does not."""
    try:
        return make()
    except (ImportError, InvalidValue):
        raise
    except Exception as error:
        path = disk_cache.folder() / "failed"
        path.mkdir(parents=True, exist_ok=True)
        file = path / f"{printed.name}.py"
        file.write_text(printed.source)
        raise CompileError(
            f"the kernel {printed.name} failed to compile for a GPU: {error}. Expected code that "
            f'Numba-CUDA takes; its source is in {file}. backend="cpu" computes the same.'
        ) from error


@lru_cache
def _toolkit() -> str:
    """The versions of what compiles."""
    from importlib import metadata

    found = []
    for name in ("numba-cuda", "nvidia-nvvm", "nvidia-nvjitlink", "cuda-core", "numba"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", ".join(found)


def needed() -> None:
    """MissingPackage, which says what to install, where kernels cannot be compiled."""
    if importlib.util.find_spec("numba_cuda") is None:
        raise MissingPackage(
            f"kernels for a gpu are compiled by numba-cuda, which is missing: {INSTALL}"
        )
