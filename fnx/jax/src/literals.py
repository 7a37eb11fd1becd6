"""`jax._src.literals`: the types of JAX's own Python numbers with a dtype, of which fnx makes none.

What is asked of them is whether a value is one, and that none is, is right here.
"""

from typing import Any, Never


class _Typed:
    def __new__(cls, value: Any, dtype: Any) -> Never:
        raise TypeError(
            f"fnx has no {cls.__name__}: its numbers with a dtype are arrays; expected "
            f"jnp.asarray({value!r}, {dtype!r})"
        )


class TypedInt(_Typed, int):  # quax
    """An integer with a dtype."""


class TypedFloat(_Typed, float):  # quax
    """A real number with a dtype."""


class TypedComplex(_Typed, complex):  # quax
    """A complex number with a dtype."""
