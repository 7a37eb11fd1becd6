"""What kernels are translated to, run on the CPU: each thread of a block is one of the host's.

NVVM's LLVM IR is LLVM's own but for a few functions, which are given here: the numbers of a thread, the
barriers, the exchange between lanes, libdevice's mathematics.
"""

import ctypes
import re
import threading
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
import numpy as np

from fnx.lowering.cuda import device_code
from fnx.lowering.cuda.launches import words
from fnx.lowering.cuda.nvvm import translation
from fnx.lowering.cuda.simulated_driver import SimulatedDriver

_here = threading.local()  # of a thread: its numbers, and those it meets
_POINTER = re.compile(
    r"(?:\{[^{}]*\}|\[[^\[\]]*\]|i\d+|double|float)(?P<space> addrspace\(3\))?\*+"
)
_REGISTER = re.compile(r"@llvm\.nvvm\.read\.ptx\.sreg\.(\w+)\.(\w)")
_MEETINGS = ("@llvm.nvvm.barrier0", "@llvm.nvvm.bar.warp.sync", "@llvm.nvvm.shfl.sync.i32")
_PATIENCE = 60.0  # seconds: threads that do not meet are an error

_DEFINED = """
declare i32 @fnx_register(i32, i32)
declare void @fnx_meet()
declare i32 @fnx_exchange(i32, i32)
define void @fnx_meet_lanes(i32 %mask) {
  call void @fnx_meet()
  ret void
}
define {i32, i1} @fnx_shuffle(i32 %mask, i32 %mode, i32 %x, i32 %apart, i32 %clamp) {
  %found = call i32 @fnx_exchange(i32 %x, i32 %apart)
  %pair = insertvalue {i32, i1} {i32 undef, i1 true}, i32 %found, 0
  ret {i32, i1} %pair
}
"""
_SMALL = {
    "double @__nv_dmul_rn(double %a, double %b)": "%r = fmul double %a, %b",
    "float @__nv_fmul_rn(float %a, float %b)": "%r = fmul float %a, %b",
    "i64 @__nv_double_as_longlong(double %a)": "%r = bitcast double %a to i64",
    "double @__nv_longlong_as_double(i64 %a)": "%r = bitcast i64 %a to double",
    "i32 @__nv_float_as_int(float %a)": "%r = bitcast float %a to i32",
    "float @__nv_int_as_float(i32 %a)": "%r = bitcast i32 %a to float",
    "i32 @__nv_popcll(i64 %a)": "%w = call i64 @llvm.ctpop.i64(i64 %a)\n%r = trunc i64 %w to i32",
    "i32 @__nv_clzll(i64 %a)": "%w = call i64 @llvm.ctlz.i64(i64 %a, i1 false)\n"
    "%r = trunc i64 %w to i32",
    "i32 @__nv_isfinited(double %a)": "%d = fsub double %a, %a\n%c = fcmp ord double %d, %d\n"
    "%r = zext i1 %c to i32",
    "i32 @__nv_finitef(float %a)": "%d = fsub float %a, %a\n%c = fcmp ord float %d, %d\n"
    "%r = zext i1 %c to i32",
}
_LIBM = "libm.so.6"


def on_cpu(module: str) -> str:
    """The module with what a CPU's LLVM has: pointers without types, functions that are there."""
    kept = [
        line
        for line in module.splitlines()
        if not line.startswith(("target ", "@llvm.used", "!")) and not _is_given(line)
    ]
    text = _POINTER.sub(lambda m: f"ptr{m['space'] or ''}", "\n".join(kept))
    text = text.replace(" addrspace(3)", "").replace("addrspacecast", "bitcast")
    number = lambda m: "tid ntid ctaid nctaid".split().index(m[1])
    text = _REGISTER.sub(lambda m: f"@fnx_register_{number(m)}_{'xyz'.index(m[2])}", text)
    text = re.sub(
        r"call i32 @fnx_register_(\d)_(\d)\(\)", r"call i32 @fnx_register(i32 \1, i32 \2)", text
    )
    text = text.replace("@llvm.nvvm.barrier0", "@fnx_meet")
    text = text.replace("@llvm.nvvm.bar.warp.sync", "@fnx_meet_lanes")
    text = text.replace("@llvm.nvvm.shfl.sync.i32", "@fnx_shuffle")
    small = [
        f"define {head} {{\n{body}\nret {head.split()[0]} %r\n}}" for head, body in _SMALL.items()
    ]
    names = [re.search(r"@(\w+)", head)[1] for head in _SMALL]
    for name in set(re.findall(r"@__nv_(\w+)", text)):
        if f"__nv_{name}" not in names:
            text = re.sub(rf"@__nv_{name}\b", f"@{name}", text)
    return "\n".join([text, _DEFINED, *small])


def _is_given(line: str) -> bool:
    """Whether a line declares what is defined here."""
    return line.startswith("declare ") and (
        "@llvm.nvvm" in line or any(f"{h.split('(')[0].split()[1]}(" in line for h in _SMALL)
    )


# --- what a thread of a block calls ------------------------------------------------------------------


def _register(kind: int, axis: int) -> int:
    return _here.numbers[kind][axis]


def _meet() -> None:
    _here.block.meet()


def _exchange(x: int, apart: int) -> int:
    block, lane = _here.block, _here.numbers[0][0]
    block.words[lane] = x
    block.meet()
    found = block.words[lane ^ apart]
    block.meet()
    return found


class _Block:
    """Threads that wait for each other: those of the block, or warp, that have not ended."""

    def __init__(self, count: int):
        self.count, self.waiting, self.rounds = count, 0, 0
        self.changed = threading.Condition()
        self.words = [0] * count

    def meet(self) -> None:
        with self.changed:
            before = self.rounds
            self.waiting += 1
            self._go_on()
            if not self.changed.wait_for(lambda: self.rounds > before, _PATIENCE):
                raise RuntimeError("threads of a block do not meet")

    def leave(self) -> None:
        with self.changed:
            self.count -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self.waiting == self.count:
            self.waiting, self.rounds = 0, self.rounds + 1
            self.changed.notify_all()


@lru_cache(maxsize=1)
def _given() -> list[Any]:
    """The functions, as LLVM calls them."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.load_library_permanently(_LIBM)
    word = ctypes.c_int32
    made = [
        ("fnx_register", ctypes.CFUNCTYPE(word, word, word)(_register)),
        ("fnx_meet", ctypes.CFUNCTYPE(None)(_meet)),
        ("fnx_exchange", ctypes.CFUNCTYPE(word, word, word)(_exchange)),
    ]
    for name, function in made:
        llvm.add_symbol(name, ctypes.cast(function, ctypes.c_void_p).value)
    return made


class Translated:
    """A kernel, compiled for the CPU."""

    def __init__(self, printed: Any):
        _given()
        module = translation.module(printed.source, device_code._types(printed))
        code = llvm.parse_assembly(on_cpu(module))
        code.verify()
        machine = llvm.Target.from_default_triple().create_target_machine(opt=1)
        self.engine = llvm.create_mcjit_compiler(code, machine)
        self.engine.finalize_object()
        self.address = self.engine.get_function_address(printed.name)
        self.meets = any(name in module for name in _MEETINGS)

    def launch(self, grid: tuple, block: tuple, given: list[int]) -> None:
        """Blocks one after the other; threads that meet beside each other."""
        call = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * len(given))(self.address)
        for place in ((x, y) for y in range(grid[1]) for x in range(grid[0])):
            together = _Block(block[0] * block[1])

            def run(x: int, y: int, together: Any = together, place: tuple = place) -> None:
                _here.block = together
                _here.numbers = [(n[0], n[1], 0) for n in ((x, y), block, place, grid)]
                call(*given)
                together.leave()

            threads = [(x, y) for y in range(block[1]) for x in range(block[0])]
            if not self.meets:
                for x, y in threads:
                    run(x, y)
                continue
            all_of_them = [threading.Thread(target=run, args=t) for t in threads]
            for t in all_of_them:
                t.start()
            for t in all_of_them:
                t.join()


class TranslatedDriver(SimulatedDriver):
    """Runs what kernels are translated to."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0  # kernels that were translated

    def _loaded(self, printed: Any) -> Translated:
        self.count += 1
        return Translated(printed)

    def bind(self, function: Translated, grid: tuple, block: tuple, arguments: Any) -> Any:
        return _Launch(function, grid, block, arguments)


class _Launch:
    def __init__(self, function: Translated, grid: tuple, block: tuple, arguments: Any):
        self.function, self.shape, self.arguments = function, (grid, block), arguments
        self.addresses = [a.memory.address + a.offset for a in arguments]

    def __call__(self) -> None:
        places = [
            (at, a.size, np.dtype(a.dtype).itemsize, a.is_array)
            for at, a in zip(self.addresses, self.arguments, strict=True)
        ]
        self.function.launch(*self.shape, words(places)[0])

    def move(self, k: int, address: int) -> None:
        self.addresses[k] = address
