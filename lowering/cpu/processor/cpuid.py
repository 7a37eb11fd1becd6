"""What an x86-64 CPU says of itself, asked by its own instruction: what LLVM looks at, without LLVM."""

import ctypes
from functools import lru_cache

from . import code_pages

# void (u32 leaf, u32 subleaf, u32 registers[4])
_CPUID = bytes.fromhex(
    "53 4989d0 89f8 89f1"  # push rbx; mov r8, rdx; mov eax, edi; mov ecx, esi
    "0fa2"  # cpuid
    "418900 41895804 41894808 4189500c"  # eax, ebx, ecx, edx to r8[0..3]
    "5b c3"  # pop rbx; ret
)
# u32 (void): which registers the system saves
_XGETBV = bytes.fromhex("31c9 0f01d0 c3")  # xor ecx, ecx; xgetbv; ret

_EAX, _EBX, _ECX, _EDX = range(4)
# Leaves, and the registers that are the same on each core of a CPU.
_LEAVES = (
    (0, 0, (_EBX, _ECX, _EDX)),  # who made it
    (1, 0, (_EAX, _ECX, _EDX)),  # its model; features, as all that follow
    (7, 0, (_EBX, _ECX, _EDX)),
    (7, 1, (_EAX, _EBX, _ECX, _EDX)),
    (0xD, 1, (_EAX,)),
    (0x14, 0, (_EBX,)),
    (0x19, 0, (_EBX,)),
    (0x1E, 1, (_EAX,)),
    (0x24, 0, (_EBX,)),
    (0x80000001, 0, (_ECX, _EDX)),
    (0x80000008, 0, (_EBX,)),
)
_SAVES = 1 << 27  # in ecx of leaf 1: xgetbv may be asked
_FMA, _AVX, _F16C = 1 << 12, 1 << 28, 1 << 29  # in ecx of leaf 1
_AVX2, _AVX512F = 1 << 5, 1 << 16  # in ebx of leaf 7
_YMM, _ZMM = 0x06, 0xE6  # what the system must save for them


@lru_cache(maxsize=1)
def answers() -> dict[tuple[int, int], tuple[int, ...]] | None:
    """The registers by leaf, those of xgetbv under (-1, 0); None where this cannot be asked."""
    if not code_pages.usable():
        return None
    try:
        memory = code_pages.Pages(code_pages.PAGE)
        ctypes.memmove(memory.address, _CPUID.ljust(64, b"\xcc") + _XGETBV, 64 + len(_XGETBV))
        memory.seal(memory.size)
    except OSError:
        return None
    u32 = ctypes.c_uint32
    cpuid = ctypes.CFUNCTYPE(None, u32, u32, ctypes.c_void_p)(memory.address)
    registers = (u32 * 4)()

    def ask(leaf: int, subleaf: int) -> tuple[int, ...]:
        cpuid(leaf, subleaf, ctypes.addressof(registers))
        return tuple(registers)

    most = {0: ask(0, 0)[_EAX], 1 << 31: ask(1 << 31, 0)[_EAX]}
    found = {}
    for leaf, subleaf, kept in _LEAVES:
        if leaf <= most[leaf & 1 << 31]:
            given = ask(leaf, subleaf)
            found[leaf, subleaf] = tuple([given[k] if k in kept else 0 for k in range(4)])
    if found[1, 0][_ECX] & _SAVES:
        found[-1, 0] = (ctypes.CFUNCTYPE(u32)(memory.address + 64)(),)
    return found


def family() -> tuple[str, int] | None:
    """Who made the CPU, and which family of theirs it is; None where this cannot be asked."""
    found = answers()
    if found is None:
        return None
    _, b, c, d = found[0, 0]
    model = found[1, 0][_EAX]
    base, more = model >> 8 & 0xF, model >> 20 & 0xFF
    maker = b"".join(x.to_bytes(4, "little") for x in (b, d, c)).decode("ascii", "replace")
    return maker, base + more if base == 0xF else base


def features() -> frozenset[str] | None:
    """Those of "+avx2", "+avx512f", "+f16c", "+fma" that there are; None where this cannot be asked."""
    found = answers()
    if found is None:
        return None
    old, new = found[1, 0][_ECX], found.get((7, 0), (0,) * 4)[_EBX]
    saved = found.get((-1, 0), (0,))[0]
    has_vectors = old & _AVX and saved & _YMM == _YMM
    has = {
        "+fma": has_vectors and old & _FMA,
        "+f16c": has_vectors and old & _F16C,
        "+avx2": has_vectors and new & _AVX2,
        "+avx512f": saved & _ZMM == _ZMM and new & _AVX512F,
    }
    return frozenset([name for name, there in has.items() if there])
