"""Dtypes: which exist, how they are ordered, and JAX's promotion lattice with weak Python scalars."""

import re
from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np  # before ml_dtypes, which begins with a part of it that others may be waiting for

from fnx.core.source import brief

# isort: split
import ml_dtypes

from fnx.core import config
from fnx.core.errors import TypeMismatch, TypePromotionError

bfloat16 = np.dtype(ml_dtypes.bfloat16)
bool_ = np.dtype(np.bool_)
float32, float64 = np.dtype(np.float32), np.dtype(np.float64)
int32, int64 = np.dtype(np.int32), np.dtype(np.int64)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)
float0 = np.dtype([("float0", np.void, 0)])  # the dtype of tangents of integers in JAX's interface

_NAMES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float16 float32 float64 complex64 complex128"
).split()
# Dtypes that only keep numbers small, by name, with that in which they are computed.
COMPUTED = {
    name: name.replace("2", "8").replace("4", "8") for name in ("int2", "int4", "uint2", "uint4")
}
COMPUTED["float4_e2m1fn"] = "float32"
for _format in "e3m4 e4m3 e4m3b11fnuz e4m3fn e4m3fnuz e5m2 e5m2fnuz e8m0fnu".split():
    COMPUTED[f"float8_{_format}"] = "float32"
SMALL = {np.dtype(getattr(ml_dtypes, name)): np.dtype(wide) for name, wide in COMPUTED.items()}
_BITS = {d: int(re.findall(r"\d+", d.name)[0]) for d in SMALL}
ALL = (*(np.dtype(name) for name in _NAMES), bfloat16, *SMALL)
_NATIVE = {d: d for d in ALL}  # NumPy's own object of each dtype, which may be compared by `is`
_KIND = {d: d.kind for d in ALL} | {bfloat16: "f"} | {d: wide.kind for d, wide in SMALL.items()}
NAME = {d: d.name for d in ALL}  # np.dtype.name is slow


def kind(dtype: np.dtype) -> str:
    """'b', 'i', 'u', 'f' (bfloat16 too) or 'c'; NumPy's own word for those of ml_dtypes is 'V'."""
    return _KIND.get(dtype) or dtype.kind


FOREIGN = frozenset(["bfloat16", *COMPUTED])  # names that NumPy does not know
_INEXACT = frozenset(d for d in ALL if _KIND[d] in "fc")


def is_inexact(dtype: np.dtype) -> bool:
    return dtype in _INEXACT


def is_float(dtype: np.dtype) -> bool:
    return kind(dtype) == "f"


def is_integer(dtype: np.dtype) -> bool:
    return kind(dtype) in "iu"


def is_complex(dtype: np.dtype) -> bool:
    return kind(dtype) == "c"


_REAL: dict[np.dtype, np.dtype] = {complex64: float32, complex128: float64}


def real_of(dtype: np.dtype) -> np.dtype:
    """float32 for complex64, float64 for complex128, other dtypes themselves."""
    return _REAL.get(dtype, dtype)


def complex_of(dtype: np.dtype) -> np.dtype:
    """The complex dtype that holds values of `dtype`."""
    if is_complex(dtype):
        return dtype
    return complex128 if dtype == float64 or not is_float(dtype) else complex64


def default_for(kind_: str) -> np.dtype:
    """What Python scalars of a kind become: float64, int64, complex128, or their halves."""
    half = config.default_float32.value
    table: dict[str, np.dtype] = {
        "b": bool_,
        "i": int32 if half else int64,
        "u": np.dtype("u4" if half else "u8"),
    }
    table |= {"f": float32 if half else float64, "c": complex64 if half else complex128}
    return table[kind_]


_known = set(ALL) - set(SMALL)  # what users' words need not be looked up for
first_small: list[Callable[[], None]] = []  # who has work when the first small dtype is named
_PYTHON_OF: dict[str, Callable] = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_PYTHON = {bool: "b", int: "i", float: "f", complex: "c"}


@lru_cache(maxsize=512)
def _canonical(dtype: Any) -> np.dtype:
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise TypeMismatch(f"{dtype!r} is not a dtype") from error
    if found == float0:
        return found
    native = _NATIVE.get(found.newbyteorder("="))
    if native in SMALL and native not in _known:
        _known.update(SMALL)
        for told in first_small:
            told()
    if native is None:
        raise TypeMismatch(
            f"dtype {found} does not exist in fnx; the dtypes are {', '.join(NAME[d] for d in ALL)}"
        )
    return native


def of_name(name: str) -> np.dtype:
    """The dtype of a name, as scalar expressions have them."""
    return np.dtype(getattr(ml_dtypes, name)) if name in FOREIGN else np.dtype(name)


def bits(dtype: np.dtype) -> int:
    """How many bits a number has; in memory it takes whole bytes."""
    return _BITS.get(dtype) or 8 * dtype.itemsize


def iinfo(dtype: np.dtype | str) -> Any:
    """The limits of an integer dtype."""
    dtype = of_name(dtype) if isinstance(dtype, str) else dtype
    return ml_dtypes.iinfo(dtype) if dtype in SMALL else np.iinfo(dtype)


def finfo(dtype: np.dtype) -> Any:
    """The limits of a float dtype."""
    return ml_dtypes.finfo(dtype) if NAME.get(dtype) in FOREIGN else np.finfo(dtype)


def widened(x: np.ndarray) -> np.ndarray:
    """An array in the dtype in which its numbers are computed."""
    wide = SMALL.get(x.dtype)
    return x if wide is None else x.astype(wide)


def byte(value: float, name: str) -> int:
    """A number of a small dtype as the byte that it is kept as."""
    with np.errstate(all="ignore"):
        return int(np.asarray(value).astype(of_name(name)).view(np.uint8))


def scalar_value(x: Any) -> Any:
    """An element of an array as a Python number."""
    return _PYTHON_OF[kind(x.dtype)](x)


def canonical(dtype: Any) -> np.dtype:
    """The np.dtype that a user's word for one means; Python's types mean the default ones."""
    if isinstance(dtype, np.dtype) and dtype in _known:
        return dtype
    if isinstance(dtype, type) and dtype in _PYTHON:
        return default_for(_PYTHON[dtype])
    if dtype in ("float", "int", "complex"):
        return default_for(dtype[0])
    if hasattr(dtype, "dtype") and not isinstance(dtype, type):
        dtype = dtype.dtype
    try:
        return _canonical(dtype)
    except TypeMismatch:
        raise
    except TypeError as error:  # it has no hash
        raise TypeMismatch(f"{brief(dtype)} is not a dtype") from error


def of_avals(dtype: Any) -> Any:
    """As `canonical`, but extended dtypes, of which random keys are, stay as they are."""
    return dtype if hasattr(dtype, "extended") else canonical(dtype)


def taken(dtype: Any) -> np.dtype:
    """The dtype of arrays that NumPy's of this dtype become: narrower where 32 bits are the default."""
    found = canonical(dtype)
    if config.default_float32.value and found.itemsize == 8 * (1 + is_complex(found)):
        return default_for(found.kind)
    return found


def scalar_dtype(value: Any) -> np.dtype:
    """The dtype of a Python scalar."""
    kind_ = _PYTHON.get(type(value)) or next(k for t, k in _PYTHON.items() if isinstance(value, t))
    found = default_for(kind_)
    if found.kind == "i" and not -(1 << 63) <= value < (1 << 63):
        if 0 <= value < (1 << 64):
            return np.dtype("u8")
        raise OverflowError(f"Python integer {value} does not fit in 64 bits")
    return found


# --- promotion: least upper bounds in a lattice, as JAX documents it ---------------------------
# Nodes are dtypes and three weak ones; an edge leads to each next larger type.
_W_I, _W_F, _W_C = "i*", "f*", "c*"


def _edges() -> dict[Any, list[Any]]:
    d = {name: np.dtype(name) for name in _NAMES}
    edges: dict[Any, list[Any]] = {d["bool"]: [_W_I], _W_I: [d["uint8"], d["int8"]]}
    edges |= {d["uint8"]: [d["int16"], d["uint16"]], d["uint16"]: [d["int32"], d["uint32"]]}
    edges |= {d["uint32"]: [d["int64"], d["uint64"]], d["uint64"]: [_W_F]}
    edges |= {d["int8"]: [d["int16"]], d["int16"]: [d["int32"]], d["int32"]: [d["int64"]]}
    edges |= {d["int64"]: [_W_F], _W_F: [bfloat16, d["float16"], _W_C]}
    edges |= {bfloat16: [d["float32"]], d["float16"]: [d["float32"]]}
    edges |= {d["float32"]: [d["float64"], d["complex64"]], d["float64"]: [d["complex128"]]}
    small: dict[str, list[Any]] = {"i": edges[_W_I], "u": edges[_W_I], "f": edges[_W_F]}
    for dtype in SMALL:
        small[_KIND[dtype]].append(dtype)
        edges[dtype] = []
    edges |= {_W_C: [d["complex64"]], d["complex64"]: [d["complex128"]], d["complex128"]: []}
    return edges


_EDGES = _edges()


@cache
def _above(node: Any) -> frozenset:
    seen, todo = {node}, [node]
    while todo:
        for up in _EDGES[todo.pop()]:
            if up not in seen:
                seen.add(up)
                todo.append(up)
    return frozenset(seen)


_WEAK_NODE = {"b": bool_, "i": _W_I, "u": _W_I, "f": _W_F, "c": _W_C}
_WEAK_KIND = {_W_I: "i", _W_F: "f", _W_C: "c"}
_WORDS = {_W_I: "int", _W_F: "float", _W_C: "complex"}


@lru_cache(maxsize=4096)
def _join(nodes: frozenset) -> Any:
    if float0 in nodes:
        raise TypeMismatch(
            "an array of dtype float0 in arithmetic: it is the tangent of integers, which has no values"
        )
    for node in nodes:
        if all([node in _above(n) for n in nodes]):
            return node
    common = frozenset.intersection(*(_above(n) for n in nodes))
    least = [n for n in common if all(m in _above(n) for m in common)]
    if not least:
        names = ", ".join(sorted(NAME.get(n) or f"a Python {_WORDS[n]}" for n in nodes))
        raise TypePromotionError(
            f"there is no dtype for both of {names}: numbers of 2, 4 and 8 bits are not promoted by "
            "themselves. Convert them with .astype"
        )
    return least[0]


@lru_cache(maxsize=8192)
def promote_cached(pairs: tuple, half: bool) -> tuple[np.dtype, bool]:
    """As `promote`, of a tuple of pairs; the default dtypes are part of the key."""
    del half
    if all(weak for _, weak in pairs):
        # Weak values keep a definite dtype; the result is weak again.
        node = _join(frozenset(_WEAK_NODE[kind(d)] for d, _ in pairs))
        if node is bool_ or node == bool_:
            return bool_, False
        wide = [d for d, _ in pairs if kind(d) == _WEAK_KIND[node]]
        if wide:
            result = wide[0]
            for dtype in wide[1:]:
                result = _join(frozenset((result, dtype)))
        else:
            result = default_for(_WEAK_KIND[node])
        return result, True
    node = _join(frozenset(_WEAK_NODE[kind(d)] if weak else d for d, weak in pairs))
    if node in _WEAK_KIND:
        # ints with a weak float, and uint64 with signed ones: the default float, weak as in JAX
        return default_for(_WEAK_KIND[node]), True
    return node, False


_ORDER = "biufc"  # weak numbers give way to strong ones of their kind or of a later one


def check_strict(pairs: tuple[tuple[np.dtype, bool], ...]) -> None:
    """Raise unless all strong dtypes are one, and hold the weak ones' kinds of numbers."""
    strong = {d for d, weak in pairs if not weak}
    kinds = {kind(d) for d, weak in pairs if weak}
    lowest = min((_ORDER.index(kind(d)) for d in strong), default=len(_ORDER))
    fits = all(_ORDER.index(k) <= lowest or (k == "i" and lowest == 2) for k in kinds)
    if len(strong) > 1 or (strong and not fits):
        given = ", ".join(NAME[d] + ("*" if weak else "") for d, weak in pairs)
        raise TypePromotionError(
            f"operands of dtypes {given} (* of Python numbers) while numpy_dtype_promotion is 'strict'; "
            "convert them with .astype, or allow promotion: numpy_dtype_promotion('standard')"
        )


def promote(pairs: tuple[tuple[np.dtype, bool], ...]) -> tuple[np.dtype, bool]:
    """The dtype and weak type of a result from operands' (dtype, weak type)."""
    if config.numpy_dtype_promotion.value == "strict":
        check_strict(pairs)
    return promote_cached(pairs, config.default_float32.value)


def result_dtype(*dtypes: np.dtype) -> np.dtype:
    """Promotion of strong dtypes where fnx itself computes: `numpy_dtype_promotion` is for users."""
    return promote_cached(tuple([(d, False) for d in dtypes]), config.default_float32.value)[0]


def to_inexact(dtype: np.dtype) -> np.dtype:
    """The dtype in which a float function of values of `dtype` is computed: JAX's choice."""
    if is_inexact(dtype):
        return dtype
    return default_for("f") if dtype.itemsize == 8 else float32
