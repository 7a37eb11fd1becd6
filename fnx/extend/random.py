"""Generators of a program's own, as `jax.extend.random` defines them, and keys of a given generator."""

import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx.core.array import Array
from fnx.core.errors import InvalidValue, ShapeError
from fnx.numpy.arrays.key_arrays import KEY_DTYPES, KeyDType
from fnx.random.key_array import KeyArray
from fnx.random.keys import key

__all__ = [
    "define_prng_impl",
    "random_seed",
    "rbg_prng_impl",
    "seed_with_impl",
    "threefry_prng_impl",
    "unsafe_rbg_prng_impl",
]

threefry_prng_impl, rbg_prng_impl, unsafe_rbg_prng_impl = KEY_DTYPES.values()


class _Rules(NamedTuple):
    """What a generator does with the words of a key: functions that can be traced and mapped."""

    seed: Callable[[Array], Array]
    split: Callable[[Array, tuple[int, ...]], Array]
    random_bits: Callable[[Array, int, tuple[int, ...]], Array]
    fold_in: Callable[[Array, Array], Array]


def define_prng_impl(
    *,
    key_shape: Sequence[int],
    seed: Callable[[Array], Array],
    split: Callable[[Array, tuple[int, ...]], Array],
    random_bits: Callable[[Array, int, tuple[int, ...]], Array],
    fold_in: Callable[[Array, Array], Array],
    name: str = "<unnamed>",
    tag: str = "?",
) -> KeyDType:
    """A generator, to be given as `impl` where keys are made.

    `seed` makes the words of a key of an integer, `split` those of new keys along leading axes of a
    shape, `fold_in` those of a new key from an integer, and `random_bits` unsigned integers of so
    many bits.

    >>> counts = fnx.extend.random.define_prng_impl(
    ...     key_shape=(1,),
    ...     seed=lambda seed: jnp.uint32(seed)[None],
    ...     split=lambda words, shape: words + jnp.arange(shape[0], dtype="uint32")[:, None],
    ...     random_bits=lambda words, width, shape: jnp.full(shape, words[0], f"uint{width}"),
    ...     fold_in=lambda words, data: words + data,
    ... )
    >>> fnx.random.bits(fnx.random.split(fnx.random.key(7, impl=counts))[1], (2,), "uint8")
    Array([8, 8], dtype=uint8)
    """
    if len(key_shape) != 1:
        raise ShapeError(
            f"define_prng_impl got key_shape {tuple(key_shape)}; expected one axis of words"
        )
    rules = _Rules(seed, split, _checked(random_bits), fold_in)
    return KeyDType(name, tag, operator.index(key_shape[0]), rules)


def _checked(random_bits: Callable) -> Callable:
    """The rule, whose results are held against what was asked for."""

    def bits(words: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
        found = random_bits(words, bit_width, shape)
        if found.shape != shape or found.dtype != np.dtype(f"uint{bit_width}"):
            raise InvalidValue(
                f"random_bits of a user's generator gave {found.dtype}{list(found.shape)}; expected "
                f"uint{bit_width}{list(shape)}"
            )
        return found

    return bits


def random_seed(seeds: Any, impl: Any) -> KeyArray:
    """A key of a generator from an integer.

    >>> fnx.extend.random.random_seed(7, fnx.extend.random.rbg_prng_impl).dtype
    key<rbg>
    """
    return key(seeds, impl=impl)


def seed_with_impl(impl: Any, seed: Any) -> KeyArray:
    """A key of a generator from an integer.

    >>> fnx.extend.random.seed_with_impl("threefry2x32", 7).shape
    ()
    """
    return key(seed, impl=impl)
