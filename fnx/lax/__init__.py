"""Primitives as functions, with JAX's names and signatures; loops come from fnx.control_flow."""

from typing import Any as _Any

from fnx.core import lazy_imports as _later
from fnx.core.dtypes import canonical as _canonical
from fnx.lax.convolutions import *
from fnx.lax.elementwise import *
from fnx.lax.gathers import *
from fnx.lax.parallel import *
from fnx.lax.parameterized import *
from fnx.lax.patches import *
from fnx.lax.platforms import *
from fnx.lax.primitives import *
from fnx.lax.products import *
from fnx.lax.ragged_products import *
from fnx.lax.reductions import *
from fnx.lax.shapes import *
from fnx.lax.slices import *
from fnx.numpy.arrays.key_arrays import serve as _serve_keys
from fnx.numpy.arrays.public_calls import serve as _retell

PrecisionLike = _Any
ConvGeneralDilatedDimensionNumbers = _Any
DotDimensionNumbers = _Any


class RoundingMethod:
    """How lax.round treats halves.

    >>> lax.round(jnp.array([0.5]), lax.RoundingMethod.AWAY_FROM_ZERO)
    Array([1.], dtype=float64)
    """

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def optimization_barrier(operand: _Any) -> _Any:
    """`operand` itself.

    >>> lax.optimization_barrier((jnp.arange(3), 2.0))
    (Array([0, 1, 2], dtype=int64), 2.0)
    """
    return operand


def empty(shape: _Any, dtype: _Any, *, out_sharding: _Any = None) -> _Any:
    """Zeros of a shape and dtype.

    >>> lax.empty((2, 3), float).shape
    (2, 3)
    """
    return full(shape, 0, dtype)  # noqa: F405


def dtype(x: _Any) -> _Any:
    """The dtype of an array or a number.

    >>> lax.dtype(1.0), lax.dtype(jnp.ones(2, "float32"))
    (dtype('float64'), dtype('float32'))
    """
    from fnx.numpy.arrays.util import type_of_any

    return _canonical(type_of_any(x)[0])


_serve_keys(globals())
_retell(globals(), but=("fnx.lax.elementwise",))


_later.add(__name__, f"{__name__}.linalg", "linalg", modules=True)
_later.add(
    __name__,
    f"{__name__}.composed",
    "after_all_p approx_top_k_p create_token_p dce_sink_p device_put_p eq_to_p le_to_p lt_to_p mulhi_p "
    "optimization_barrier_p ragged_all_to_all_p reduce_p reduce_window_p rng_bit_generator_p rng_uniform_p "
    "scatter_sub_p select_and_scatter_p sharding_constraint_p stack_p stage_p tile_p unstack_p",
)
_later.add(__name__, f"{__name__}.random_bits", "RandomAlgorithm rng_bit_generator")


def __getattr__(name: str) -> _Any:
    return _later.find(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_later.names(__name__)})
