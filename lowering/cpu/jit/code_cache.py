"""From LLVM text to machine code in memory: compiled once, kept on disk.

On Linux and x86-64 what is kept is a linked image (`linker.py`, `image.py`), so that a process that finds
its code on disk needs no LLVM. Elsewhere it is object files, which LLVM's JIT linker links each time.
"""

import ctypes
import itertools
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fnx.core.fast_dataclasses import dataclass
from fnx.core.threads.fork_safety import fork_safe
from fnx.lowering.cpu.processor import features, thresholds

from . import disk_cache
from .image import Image
from .session import session

PIPELINE = "12"  # names the compiler's settings in keys of the cache; change it with them
Imports = Mapping[str, int] | Callable[[bytes], Mapping[str, int]] | None


@dataclass(eq=False, repr=False)
class Code:
    """Machine code in memory: the addresses of its functions, and how it came there."""

    key: str  # in the cache
    addresses: dict[str, int]
    origin: str  # "compiled" or "disk"
    llvm_seconds: float
    load_seconds: float
    imports: tuple[str, ...]  # the routines that it was told the addresses of
    keep: Any  # unloads the code when it dies


_lock = fork_safe(threading.RLock())
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
    key = key or disk_cache.key("code", PIPELINE, "program", text, sources=False)
    with _lock:
        found = _loaded.get(key)
        if found is not None:
            _counts["memory_hits"] += 1
            _loaded.move_to_end(key)
            return found, True
    found = _code(key, text, exports, imports, "program")
    with _lock:
        _loaded[key] = found
        _counts["compiled" if found.origin == "compiled" else "disk_hits"] += 1
        while len(_loaded) > thresholds.LOADED_PROGRAMS:
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
    key = disk_cache.key("code", PIPELINE, kind, name or _made(text), sources=bool(name))
    return _code(key, text, exports, imports, kind)


def _made(text: str | Callable[[], str]) -> str:
    return text() if callable(text) else text


def _code(
    key: str, text: str | Callable[[], str], exports: Sequence[str], imports: Imports, kind: str
) -> Code:
    start = time.perf_counter()
    data, llvm_seconds, origin = disk_cache.get(key), 0.0, "disk"
    linked = None if data is None else _from_disk(data, exports, imports)
    if linked is None:
        if not text:
            raise CacheMiss(key)
        begin = time.perf_counter()
        binaries, origin = _compiled(_made(text), kind, imports), "compiled"
        llvm_seconds = time.perf_counter() - begin
        linked, data = _linked(binaries, exports, imports)
        disk_cache.put(key, data)
    spent = time.perf_counter() - start - llvm_seconds
    addresses, known, keep = linked
    return Code(key, addresses, origin, llvm_seconds, spent, known, keep)


def _compiled(text: str, kind: str, imports: Imports) -> list[bytes]:
    """The objects of a module; a program's parts are compiled side by side.

    What a part turns out to import is got ready meanwhile.
    """
    from . import partition  # a process that finds its code on disk needs no compiler
    from .compiler import compile_text

    if kind != "program":
        return [compile_text(text, kind)]
    soon = getattr(imports, "soon", None)

    def made(part: str) -> bytes:
        binary = compile_text(part, kind)
        if soon is not None:
            soon(binary)
        return binary

    with session(helpers=True) as crew:
        first, *others = partition.split(text, thresholds.PARTS)
        tasks = [crew.start(made, part) for part in others]
        binaries = [made(first)]
        crew.work()
        binaries += [task.result() for task in tasks]
        crew.work()
    return binaries


def forget() -> None:
    """Drop loaded programs that no executable holds, and set the counts to zero (for tests)."""
    with _lock:
        _loaded.clear()
        for name in _counts:
            _counts[name] = 0


def routine(
    name: str, text: Callable[[], str], exports: Sequence[str], imports: Mapping[str, int]
) -> Code:
    """The loaded code of a routine of fnx's own; it stays, since programs hold bare addresses."""
    # Tests write routines for other vectors than this CPU's.
    made = code(text, exports, imports, "routine", f"{name} {features.vector_bits()}")
    keep_forever(made.keep)
    return made


def keep_forever(owner: Any) -> None:
    """Code that may run while the interpreter shuts down must outlive it."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner))


# --- linking -----------------------------------------------------------------------------------

_IMAGE, _OBJECTS = b"I", b"O"  # what an entry of the cache holds


# Code in memory: addresses of its exports, the routines told to it, what keeps it there.
_Linked = tuple[dict[str, int], tuple[str, ...], Any]


def _from_disk(data: bytes, exports: Sequence[str], imports: Imports) -> _Linked | None:
    """An entry's code; None if it is not what is wanted, or not of use here."""
    try:
        if data[:1] == _IMAGE:
            image = Image.unpacked(data[1:])
            return _placed(image, imports) if set(exports) == set(image.exports) else None
        return _by_llvm(_unpacked(data[1:]), exports, imports) if data[:1] == _OBJECTS else None
    except (RuntimeError, OSError, LookupError, ValueError, EOFError, TypeError, struct.error):
        return None


def _linked(
    binaries: Sequence[bytes], exports: Sequence[str], imports: Imports
) -> tuple[_Linked, bytes]:
    """The code of objects in memory, and the entry that later processes find."""
    from . import linker as elf

    try:
        image = elf.image(binaries, exports)
        return _placed(image, imports), _IMAGE + image.packed()
    except (elf.Unlinked, OSError, LookupError):
        return _by_llvm(binaries, exports, imports), _OBJECTS + _packed(binaries)


def _placed(image: Image, imports: Imports) -> _Linked:
    known = _known(imports, "".join([f"{name}\0" for name in image.names]).encode())
    addresses, keep = image.place(known)
    return addresses, tuple(known), keep


def _known(imports: Imports, names: bytes) -> Mapping[str, int]:
    return imports(names) if callable(imports) else imports or {}


def _packed(binaries: Sequence[bytes]) -> bytes:
    return b"".join([struct.pack("<Q", len(b)) + b for b in binaries])


def _unpacked(data: bytes) -> list[bytes]:
    binaries = []
    while data:
        size = int.from_bytes(data[:8], "little")
        binaries.append(data[8 : 8 + size])
        data = data[8 + size :]
    return binaries


_serial = itertools.count()


def _by_llvm(binaries: Sequence[bytes], exports: Sequence[str], imports: Imports) -> _Linked:
    """The code of objects, by LLVM's JIT linker."""
    from llvmlite.binding import JITLibraryBuilder

    builder = JITLibraryBuilder().add_current_process()
    for binary in binaries:
        builder.add_object_img(binary)
    known = _known(imports, b"".join(binaries))
    for name, address in known.items():
        builder.import_symbol(name, address)
    for name in exports:
        builder.export_symbol(name)
    with _lock:
        tracker = builder.link(_linker(), f"fnx{next(_serial)}")
    return {name: tracker[name] for name in exports}, tuple(known), tracker


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
