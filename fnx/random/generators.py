"""What generators do with keys: draw bits, split, fold in a number.

Keys are arrays of words, those of Threefry, or `KeyArray`s of another generator: rbg and unsafe_rbg
draw with Philox, and rbg splits with Threefry; generators of users' have rules of their own. Samplers
that reject draw with Threefry alone.
"""

import math
from typing import Any

import numpy as np

from fnx.core.array import Array
from fnx.ops.base.permute import Reshape
from fnx.ops.elementwise.arithmetic import xor
from fnx.ops.random.counters import RngBits
from fnx.ops.random.prng import RandomBits, RandomSplit, random_fold_in
from fnx.ops.structure.basic import broadcast_axis, move_axis, scalar
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice
from fnx.random.key_array import KeyArray

_ITERATIONS = 10  # of Philox, as the hash function of unsafe_rbg
_U32 = np.dtype(np.uint32)


def random_bits(key: Any, bit_width: int, shape: tuple[int, ...]) -> Array:
    """Uniform random bits, as unsigned integers of `bit_width`."""
    if type(key) is not KeyArray:
        return RandomBits(bit_width, shape)(key)
    if key.dtype.rules is not None:
        return key.dtype.rules.random_bits(key.words, bit_width, shape)
    return RngBits("philox", bit_width, shape)(key.words)


def split(key: Any, shape: tuple[int, ...]) -> Any:
    """An array of new keys."""
    if type(key) is not KeyArray:
        return RandomSplit(shape)(key)
    if key.dtype.rules is not None:
        return KeyArray(key.dtype.rules.split(key.words, shape), key.dtype)
    if key.dtype.impl == "rbg":
        halves = RandomSplit(shape)(Reshape((2, 2))(key.words))
        words = Reshape((*shape, 4))(move_axis(halves, 0, len(shape)))
    else:
        n = math.prod(shape)
        drawn = RngBits("philox", 32, (_ITERATIONS * n, 4))(key.words)
        words = Slice((0, 0), (_ITERATIONS * n, 4), (_ITERATIONS, 1))(drawn)
        words = Reshape((*shape, 4))(words)
    return KeyArray(words, key.dtype)


def fold_in(key: Any, number: Array) -> Any:
    """A new key from a key and a number of dtype uint32."""
    if type(key) is not KeyArray:
        return random_fold_in(key, number)
    if key.dtype.rules is not None:
        return KeyArray(key.dtype.rules.fold_in(key.words, number), key.dtype)
    if key.dtype.impl == "rbg":
        halves = random_fold_in(Reshape((2, 2))(key.words), broadcast_axis(number, 2, 0))
        return KeyArray(Reshape((4,))(halves), key.dtype)
    zero, low = Reshape((1,))(scalar(0, _U32)), Reshape((1,))(number)
    drawn = RngBits("philox", 32, (_ITERATIONS, 4))(Concatenate(0)(zero, low, zero, low))
    last = Slice((_ITERATIONS - 1, 0), (_ITERATIONS, 4), (1, 1))(drawn)
    return KeyArray(xor(key.words, Reshape((4,))(last)), key.dtype)


def threefry_words(key: Any) -> Array:
    """Words that Threefry draws with, as samplers that reject do: the key's own, or drawn with it."""
    return random_bits(key, 32, (2,)) if type(key) is KeyArray else key
