"""The CPU to compile for: its name, its features, the width of its vectors."""

import os
from functools import lru_cache
from typing import NamedTuple

from . import cpuid

_VARIABLES = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX")


class IterationSizes(NamedTuple):
    """The bytes that an iteration of a loop over whole vectors computes.

    `crowded`: an iteration has more operations than there are registers for several vectors of them;
    `waiting`: its operations wait for one another, so that several vectors take as long as one.
    `vectors`: how many at most LLVM is told to compute side by side.
    """

    usual: int
    crowded: int
    waiting: int
    vectors: int


_ITERATION = {
    128: IterationSizes(64, 64, 64, 1),
    256: IterationSizes(64, 32, 128, 4),
    512: IterationSizes(64, 64, 64, 1),
}


def processor() -> tuple[str, str]:
    """Name and features of the CPU to compile for; Numba's variables of the environment rule."""
    import llvmlite.binding as llvm

    name = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    chosen = os.environ.get("NUMBA_CPU_FEATURES")
    if chosen is not None:
        return name, chosen
    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # not known on every platform
        return name, ""
    if os.environ.get("NUMBA_ENABLE_AVX") == "0":
        features.update({k: False for k in features if k.startswith("avx")})
    return name, features.flatten()


@lru_cache(maxsize=1)
def _features() -> frozenset[str]:
    """The features of the CPU, at least those that are asked for here."""
    asked = None if any(name in os.environ for name in _VARIABLES) else cpuid.features()
    if asked is not None:
        return asked
    return frozenset(processor()[1].split(","))


def identity() -> tuple[str, ...]:
    """Words that are the same where `processor` is, found without LLVM if possible."""
    answers = cpuid.answers()
    if answers is None:
        return processor()
    return repr(answers), *[os.environ.get(name, "") for name in _VARIABLES]


@lru_cache(maxsize=1)
def vector_bits() -> int:
    """The width of this CPU's vectors."""
    if "+avx512f" in _features():
        return 512
    return 256 if "+avx2" in _features() else 128


def vector_registers() -> int:
    """How many vectors this CPU's registers hold."""
    import platform

    return 32 if vector_bits() == 512 or platform.machine() in ("aarch64", "arm64") else 16


def iteration_bytes() -> IterationSizes:
    """What iterations of loops over whole vectors are on this CPU."""
    return _ITERATION[vector_bits()]


def inlined_lines() -> int:
    """Lines of the mathematical functions of a program up to which LLVM gets their text.

    With few registers a call costs more: whatever lives across it goes to memory and back.
    """
    return 360 if vector_bits() == 256 else 76


def functions_together(lines: int, slow: int) -> int:
    """Vectors side by side in loops with the text of mathematical functions; 0: as many as LLVM likes.

    Where registers are few it likes one, and there is most to gain by several. More than two are not
    worth their compilation where the text is long, nor beside `slow` divisions and roots, which next to
    one another leave the other units idle.
    """
    if vector_bits() == 256:
        return 4 if lines <= 150 and slow < 2 else 2
    return 2 if vector_bits() == 512 and lines <= 60 else 0


def halves_vectors() -> bool:
    """Whether this CPU computes, loads and stores vectors of 512 bits as two halves: a Zen 4."""
    if vector_bits() < 512:
        return False
    name = os.environ.get("NUMBA_CPU_NAME")
    return name == "znver4" if name else cpuid.family() == ("AuthenticAMD", 0x19)


def side_by_side(size: int) -> int:
    """The vectors that so many bytes of an iteration are, as far as LLVM is told to make them at once."""
    return max(1, min(8 * size // vector_bits(), iteration_bytes().vectors))


def has_fma() -> bool:
    """Whether this CPU has fused multiplications and additions; if not, a slow function does them."""
    import platform

    return platform.machine() in ("aarch64", "arm64") or "+fma" in _features()


def has_half() -> bool:
    """Whether this CPU converts float16 in hardware; if not, integers do it."""
    import platform

    return platform.machine() not in ("x86_64", "AMD64") or "+f16c" in _features()
