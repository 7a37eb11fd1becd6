"""`jax._src.numpy.vectorize`: the parts of `jnp.vectorize`, for libraries with a version of their own."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.numpy.numerics.vectorize import checked, dimensions
from fnx.numpy.numerics.vectorize import parse as _parse_gufunc_signature  # quaxed
from fnx.numpy.structure.shapes import broadcast_shapes

__all__ = [
    "_apply_excluded",
    "_check_output_dims",
    "_parse_gufunc_signature",
    "_parse_input_dimensions",
]


def _apply_excluded(  # quaxed
    func: Callable, excluded: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[Callable, Sequence[Any], dict[str, Any]]:
    """The function of the other arguments, and these; positions and names say which are excluded."""
    kept = {k: args[k] for k in sorted(k for k in excluded if isinstance(k, int)) if k < len(args)}
    named = {k: v for k, v in kwargs.items() if k in excluded}

    def inner(*others: Any, **more: Any) -> Any:
        full = list(others)
        for k, arg in kept.items():
            full.insert(k, arg)
        return func(*full, **more, **named)

    others = [arg for k, arg in enumerate(args) if k not in kept]
    return inner, others, {k: v for k, v in kwargs.items() if k not in named}


def _parse_input_dimensions(  # quaxed
    args: Sequence[Any], input_core_dims: Sequence[tuple[str, ...]], error_context: str = ""
) -> tuple[tuple[int, ...], dict[str, int]]:
    """The shape of the leading axes, and the sizes of core axes by name."""
    if len(args) != len(input_core_dims):
        raise TypeError(
            f"{len(args)} arguments, and core axes of {len(input_core_dims)} {error_context}"
        )
    leads, sizes = dimensions(args, input_core_dims, error_context)
    return broadcast_shapes(*leads), sizes


def _check_output_dims(  # quaxed
    func: Callable,
    dim_sizes: dict[str, int],
    expected_output_core_dims: list[tuple[str, ...]],
    error_context: str = "",
) -> Callable:
    """The function with its results held against their core axes."""
    del error_context
    return checked(func, expected_output_core_dims, dim_sizes)
