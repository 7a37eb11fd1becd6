"""What a GPU leaves to CuPy's bindings of cuBLAS, cuSOLVER and cuFFT: on our memory, on our stream.

Products of matrices beyond a size, factorizations, triangular systems and Fourier transforms. Without CuPy
products are loops, and the rest calls of the host.

Numbers of float32 are multiplied as such: TensorFloat-32 only where default_matmul_precision asks for it.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from fnx.core import config, recipe

_DTYPES = ("float32", "float64", "complex64", "complex128")
_TF32 = ("tensorfloat32", "fastest", "bfloat16")  # JAX's words for less than float32


@lru_cache(maxsize=1)
def is_there() -> bool:
    """Whether CuPy is installed."""
    return importlib.util.find_spec("cupy") is not None


def multiplies(r: recipe.Library, least: int) -> bool:
    """Whether a product is of a size, and dtypes, for cuBLAS."""
    if not is_there() or r.name != "dot_general" or r.params[1] not in _DTYPES:
        return False
    (contracted, _), _ = r.params
    left, right = r.operands
    summed = prod(left.shape[k] for k in contracted[0])
    return prod(left.shape) * prod(right.shape) >= least * max(summed, 1)


def function(call: Any) -> Callable[[list[Any]], Sequence[Any]] | None:
    """What computes a call of the host on arrays of CuPy instead, if something does."""
    prim = getattr(call.callback, "prim", None)
    make = _FUNCTIONS.get(getattr(prim, "name", ""))
    if make is None or not is_there():
        return None
    places = [*call.inputs, *call.outputs]
    if any(prod(shape) == 0 for _, shape, _ in places):
        return None
    if any(dtype not in (*_DTYPES, "int32") for *_, dtype in places):
        return None
    return make(prim)


# --- arrays ---------------------------------------------------------------------------------------


def array(memory: Any, offset: int, shape: tuple[int, ...], dtype: str) -> Any:
    """An array of CuPy on memory of ours."""
    import cupy

    owned = cupy.cuda.UnownedMemory(memory.address, memory.nbytes, memory)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(owned, offset))


@contextmanager
def on_stream(handle: int) -> Iterator[None]:
    """CuPy's calls are asked of a stream of ours, with the precision that was set."""
    from cupy import _core

    kinds = _core._routines_linalg
    before = _core.get_compute_type("float32")
    fast = config.default_matmul_precision.value in _TF32
    wanted = kinds.COMPUTE_TYPE_TF32 if fast else kinds.COMPUTE_TYPE_DEFAULT
    _core.set_compute_type("float32", wanted)
    try:
        with _stream(handle):
            yield
    finally:
        _core.set_compute_type("float32", before)


class _External(NamedTuple):
    """A stream of ours as other libraries ask for it."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@lru_cache(maxsize=8)
def _stream(handle: int) -> Any:
    import cupy

    return cupy.cuda.Stream.from_external(_External(handle))


# --- functions of arrays --------------------------------------------------------------------------


def _product(prim: Any) -> Callable:
    (contracted, batched) = prim.dimension_numbers

    def run(arrays: list[Any]) -> list[Any]:
        import cupy

        free = [
            [k for k in range(x.ndim) if k not in (*c, *b)]
            for x, c, b in zip(arrays, contracted, batched, strict=True)
        ]
        x, y = arrays
        batch = [x.shape[k] for k in batched[0]]
        shape = (*batch, *(x.shape[k] for k in free[0]), *(y.shape[k] for k in free[1]))
        size = lambda a, axes: prod([a.shape[k] for k in axes])
        x = x.transpose(*batched[0], *free[0], *contracted[0])
        y = y.transpose(*batched[1], *contracted[1], *free[1])
        inner = size(arrays[0], contracted[0])
        x = x.reshape(*batch, size(arrays[0], free[0]), inner)
        y = y.reshape(*batch, inner, size(arrays[1], free[1]))
        return [cupy.matmul(x, y).reshape(shape)]

    return run


def _stacked(one: Callable, arrays: list[Any], ranks: Sequence[int]) -> list[Any]:
    """Results of a function of matrices, for stacks of them."""
    import cupy

    lead = arrays[0].shape[: arrays[0].ndim - ranks[0]]
    if not lead:
        return list(one(*arrays))
    flat = [
        a.reshape(prod(lead), *a.shape[a.ndim - n :]) for a, n in zip(arrays, ranks, strict=True)
    ]
    parts = [one(*[a[k] for a in flat]) for k in range(prod(lead))]
    stacks = [cupy.stack(list(x)) for x in zip(*parts, strict=True)]
    return [x.reshape(*lead, *x.shape[1:]) for x in stacks]


def _triangular_solve(prim: Any) -> Callable:
    trans = 0 if not prim.transpose_a else 2 if prim.conjugate_a else 1
    conjugated = prim.conjugate_a and not prim.transpose_a

    def one(a: Any, b: Any) -> list[Any]:
        from cupyx.scipy.linalg import solve_triangular

        a, how = a.conj() if conjugated else a, trans
        if not prim.left_side:  # the transposed system
            a, how = (a.conj(), 0) if how == 2 else (a, 1 - how)
            b = b.T
        lower, unit = prim.lower_triangle, prim.unit_diagonal
        x = solve_triangular(a, b, trans=how, lower=lower, unit_diagonal=unit, check_finite=False)
        return [x if prim.left_side else x.T]

    return lambda arrays: _stacked(one, arrays, (2, 2))


def _cholesky(prim: Any) -> Callable:
    def one(a: Any) -> list[Any]:
        import cupy
        import cupyx

        lower = cupy.tril(a)
        whole = lower + cupy.tril(a, -1).conj().T
        try:
            with cupyx.errstate(linalg="raise"):
                return [cupy.tril(cupy.linalg.cholesky(whole))]
        except cupy.linalg.LinAlgError:  # not positive definite
            return [cupy.tril(cupy.full_like(a, cupy.nan))]

    return lambda arrays: _stacked(one, arrays, (2,))


def _lu(prim: Any) -> Callable:
    def one(a: Any) -> list[Any]:
        import cupy
        from cupyx.scipy.linalg import lu_factor

        factors, pivots = lu_factor(a, check_finite=False)
        order = list(range(a.shape[0]))
        for i, p in enumerate(cupy.asnumpy(pivots).tolist()):
            order[i], order[p] = order[p], order[i]
        return [factors, pivots.astype("int32"), cupy.asarray(order, "int32")]

    return lambda arrays: _stacked(one, arrays, (2,))


def _qr(prim: Any) -> Callable | None:
    if prim.pivoting:
        return None
    mode = "complete" if prim.full_matrices else "reduced"

    def one(a: Any) -> Sequence[Any]:
        import cupy

        return tuple(cupy.linalg.qr(a, mode))

    return lambda arrays: _stacked(one, arrays, (2,))


def _svd(prim: Any) -> Callable:
    def run(arrays: list[Any]) -> list[Any]:
        import cupy

        if not prim.compute_uv:
            return [cupy.linalg.svd(arrays[0], prim.full_matrices, False)]
        u, s, v = cupy.linalg.svd(arrays[0], prim.full_matrices, True)
        return [s, u, v]

    return run


def _eigh(prim: Any) -> Callable:
    def run(arrays: list[Any]) -> list[Any]:
        import cupy

        values, vectors = cupy.linalg.eigh(arrays[0], "L" if prim.lower_triangle else "U")
        return [vectors, values]

    return run


def _fft(prim: Any) -> Callable:
    def run(arrays: list[Any]) -> list[Any]:
        import cupy

        (x,), lengths = arrays, prim.fft_lengths
        axes = tuple(range(x.ndim - len(lengths), x.ndim))
        return [getattr(cupy.fft, prim.fft_type + "n")(x, s=lengths, axes=axes)]

    return run


_FUNCTIONS: dict[str, Callable[[Any], Callable | None]] = {
    "dot_general": _product,
    "triangular_solve": _triangular_solve,
    "cholesky": _cholesky,
    "lu": _lu,
    "qr": _qr,
    "svd": _svd,
    "eigh": _eigh,
    "fft": _fft,
}
