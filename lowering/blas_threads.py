"""One thread for small triangular solves, which OpenBLAS would share out from order 8 on.

Waking a second thread costs more than such a solve, and where cores are busy (a container with a
quota, one process a core) a whole time slice: 10 ms instead of 10 us at order 60. For products
OpenBLAS chooses well by itself.
"""

import ctypes
from functools import cache

from . import machine

ROUTINES = tuple(f"{letter}{name}" for letter in "sdcz" for name in ("trsm", "trmm"))
LIMIT = 2_000_000  # m n (m + n), below which one thread solves

_ARGUMENTS = 11  # side, uplo, transa, diag, m, n, alpha, a, lda, b, ldb; all by reference
_CODE = """
define void @solve({parameters}) {{
  %m32 = load i32, ptr %p4
  %n32 = load i32, ptr %p5
  %m = sext i32 %m32 to i64
  %n = sext i32 %n32 to i64
  %sum = add i64 %m, %n
  %area = mul i64 %m, %n
  %work = mul i64 %area, %sum
  %before = call i32 @get_threads()
  %large = icmp sgt i64 %work, {limit}
  %single = icmp sle i32 %before, 1
  %plain = or i1 %large, %single
  br i1 %plain, label %asis, label %alone
asis:
  call void @routine({arguments})
  ret void
alone:
  call void @set_threads(i32 1)
  call void @routine({arguments})
  call void @set_threads(i32 %before)
  ret void
}}
declare i32 @get_threads()
declare void @set_threads(i32)
declare void @routine({types})
"""


def text() -> str:
    """The LLVM module of a routine that calls another one, with one thread if there is little to do."""
    names = [f"%p{k}" for k in range(_ARGUMENTS)]
    listed = ", ".join(f"ptr {name}" for name in names)
    types = ", ".join(["ptr"] * _ARGUMENTS)
    return _CODE.format(parameters=listed, arguments=listed, types=types, limit=LIMIT)


@cache
def guarded(address: int) -> int:
    """The address of a routine that does the same as that at `address`; itself without OpenBLAS."""
    controls = _controls()
    if controls is None:
        return address
    get, put = controls
    imports = {"get_threads": get, "set_threads": put, "routine": address}
    made = machine.code(text(), ["solve"], imports, kind="glue")
    machine.keep_forever(made.keep)
    return made.addresses["solve"]


@cache
def _controls() -> tuple[int, int] | None:
    """Addresses of the functions that read and set how many threads SciPy's OpenBLAS uses."""
    for path in _loaded():
        library = ctypes.CDLL(path)
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
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    except OSError:
        return []
    return sorted(p for p in paths if "64_" not in p.rpartition("/")[2])
