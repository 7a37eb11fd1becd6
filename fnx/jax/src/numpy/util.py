"""`jax._src.numpy.util`: arguments as arrays, and arrays of one dtype."""

from typing import Any

from fnx.core.array import Array
from fnx.jax.src.dtypes import to_complex_dtype
from fnx.numpy.arrays import util
from fnx.ops.structure.basic import convert, reshape


def check_arraylike(fun_name: str, *args: Any, emit_warning: bool = False) -> None:
    """TypeError unless all arguments are arrays or numbers."""
    del emit_warning
    util.to_arrays(fun_name, *args)


def ensure_arraylike(fun_name: str, /, *args: Any) -> Array | tuple[Array, ...]:
    """Arguments as arrays; one alone by itself."""
    arrays = util.to_arrays(fun_name, *args)
    return arrays[0] if len(arrays) == 1 else tuple(arrays)


def promote_dtypes(*args: Any) -> list[Array]:
    """Arrays in their common dtype."""
    return util.to_arrays("promote_dtypes", *util.promote("promote_dtypes", *args))


def promote_dtypes_inexact(*args: Any) -> list[Array]:  # orthax
    """Arrays in their common dtype, as floats where that is one of integers."""
    name = "promote_dtypes_inexact"
    return util.to_arrays(name, *util.promote_inexact(name, *args))


def promote_dtypes_complex(*args: Any) -> list[Array]:  # s2fft
    """Arrays in the complex dtype of the precision of their common one."""
    arrays = promote_dtypes(*args)
    return [convert(x, to_complex_dtype(x.dtype)) for x in arrays]


def promote_args(fun_name: str, *args: Any) -> list[Array]:
    """Arrays in their common dtype and rank, but for those of rank 0."""
    return _of_one_rank(util.to_arrays(fun_name, *util.promote(fun_name, *args)))


def promote_args_inexact(fun_name: str, *args: Any) -> list[Array]:  # hamux
    """The same, as floats where the common dtype is one of integers."""
    return _of_one_rank(util.to_arrays(fun_name, *util.promote_inexact(fun_name, *args)))


def _of_one_rank(arrays: list[Array]) -> list[Array]:
    ranks = {x.ndim for x in arrays if x.ndim}
    if len(ranks) < 2:
        return arrays
    most = max(ranks)
    return [reshape(x, (1,) * (most - x.ndim) + x.shape) if x.ndim else x for x in arrays]
