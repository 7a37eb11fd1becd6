"""Random bits from a state that counts: XLA's generators."""

import enum
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.errors import TypeMismatch
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.util import integers
from fnx.ops.elementwise.convert import BitcastConvertType
from fnx.ops.random.counters import RngBits, RngState

__all__ = ["RandomAlgorithm", "rng_bit_generator"]


class RandomAlgorithm(enum.IntEnum):
    """The generators of `rng_bit_generator`; the default one is Philox, as XLA's on CPUs.

    >>> lax.RandomAlgorithm.RNG_PHILOX.name
    'RNG_PHILOX'
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def rng_bit_generator(
    key: Any,
    shape: Any,
    dtype: Any = np.uint32,
    algorithm: Any = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Array, Array]:
    """The state after drawing, and uniform random bits of `shape`, equal to those of XLA on a CPU.

    The state is four words of uint32 or two of uint64; under `vmap` the first state of the batch draws for
    all, as in JAX. TypeError for other states, and for a dtype that is not unsigned.

    >>> state, bits = lax.rng_bit_generator(jnp.array([1, 2, 3, 4], "uint32"), (2,))
    >>> bits
    Array([ 512747620, 1298009047], dtype=uint32)
    >>> state
    Array([1, 2, 4, 4], dtype=uint32)
    """
    found = dtypes.canonical(dtype)
    if dtypes.kind(found) != "u":
        raise TypeMismatch(
            f"rng_bit_generator of dtype {found}; expected uint8, uint16, uint32 or uint64"
        )
    state = key if isinstance(key, Array) else as_array(key)
    wide = state.dtype == np.uint64 and state.shape == (2,)
    words = BitcastConvertType(np.dtype("u4"))(state) if wide else state
    words = words.reshape(4) if wide else words
    fry = RandomAlgorithm(algorithm) is RandomAlgorithm.RNG_THREE_FRY
    how = (
        "threefry" if fry else "philox",
        8 * found.itemsize,
        integers(shape, "shape of rng_bit_generator"),
    )
    after, bits = RngState(*how)(words), RngBits(*how)(words)
    return BitcastConvertType(np.dtype("u8"))(after.reshape(2, 2)) if wide else after, bits


_retell(globals())
