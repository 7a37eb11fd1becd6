"""Words of fnx.lax about other machines: platforms, accuracies, tokens; here each has one meaning."""

import enum
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import Array, ConcreteArray
from fnx.core.errors import InvalidValue


class AccuracyMode(enum.Enum):
    """Accepted where JAX asks for it; functions have one accuracy.

    >>> lax.exp(jnp.array([0.0]), accuracy=lax.AccuracyMode.HIGHEST)
    Array([1.], dtype=float64)
    """

    DEFAULT = 0
    HIGHEST = 1


class DotAlgorithmPreset(enum.Enum):
    """Accepted where JAX asks for it; products are computed in the dtype of their operands.

    >>> lax.dot(jnp.ones(2), jnp.ones(2), precision=lax.DotAlgorithmPreset.F64_F64_F64)
    Array(2., dtype=float64)
    """

    DEFAULT = 0
    ANY_F8_ANY_F8_F32 = 1
    ANY_F8_ANY_F8_F32_FAST_ACCUM = 2
    ANY_F8_ANY_F8_ANY = 3
    ANY_F8_ANY_F8_ANY_FAST_ACCUM = 4
    F16_F16_F16 = 5
    F16_F16_F32 = 6
    BF16_BF16_BF16 = 7
    BF16_BF16_F32 = 8
    BF16_BF16_F32_X3 = 9
    BF16_BF16_F32_X6 = 10
    BF16_BF16_F32_X9 = 11
    TF32_TF32_F32 = 12
    TF32_TF32_F32_X3 = 13
    F32_F32_F32 = 14
    F64_F64_F64 = 15

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"DotAlgorithmPreset.{self.name}"


def platform_dependent(
    *args: Any, default: Callable | None = None, **per_platform: Callable
) -> Any:
    """The function for the platform "cpu", or else the default, of the arguments.

    ValueError where there is neither.

    >>> lax.platform_dependent(3.0, cpu=lambda x: 2 * x, default=lambda x: x)
    6.0
    """
    chosen = per_platform.get("cpu", default)
    if chosen is None:
        raise InvalidValue(
            f"platform_dependent has functions for {', '.join(per_platform)}; expected one for cpu, or a "
            "default"
        )
    return chosen(*args)


def composite(decomposition: Callable, name: str, version: int = 0) -> Callable:
    """The function `decomposition` itself: names of operations are for other compilers.

    >>> lax.composite(lambda x: x + 1, name="my.increment")(jnp.array([1.0]))
    Array([2.], dtype=float64)
    """
    del name, version

    def composed(*args: Any, **attributes: Any) -> Any:
        return decomposition(*args, **attributes)

    return composed


def create_token(_: Any = None) -> Array:
    """A value that orders effects elsewhere; here they have the order of the program.

    >>> lax.create_token().shape
    (0,)
    """
    return ConcreteArray(np.zeros(0, bool))


def after_all(*operands: Any) -> Array:
    """A token after others.

    >>> lax.after_all(lax.create_token(), lax.create_token()).shape
    (0,)
    """
    del operands
    return create_token()


def dce_sink(val: Any, *, prevent_mlir_dce: bool = False) -> None:
    """Does nothing: JAX keeps what computes `val` for its side effects, which here are kept anyway.

    >>> lax.dce_sink(jnp.array([1.0]))
    """
    del val, prevent_mlir_dce


def shape_as_value(shape: Sequence[int]) -> Array:
    """A shape as an array of integers.

    >>> lax.shape_as_value((2, 3))
    Array([2, 3], dtype=int32)
    """
    return ConcreteArray(np.array(tuple(shape), np.int32))


__all__ = [
    "AccuracyMode",
    "DotAlgorithmPreset",
    "after_all",
    "composite",
    "create_token",
    "dce_sink",
    "platform_dependent",
    "shape_as_value",
]
