"""Counter-based random bits: Threefry-2x32, with JAX's way of counting, so that bits are equal.

Threefry is the cipher of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
A key is two 32-bit words in the last axis of an array. Element i of an array of random bits is the
encryption of the 64-bit number i.
"""

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from fnx.core import policy, scalar
from fnx.core.aval import ShapedArray
from fnx.core.errors import InvalidValue, ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Operand, Point, Recipe
from fnx.core.scalar import Expr
from fnx.ops.base.sharding_rule import Factors
from fnx.ops.structure.basic import broadcast_axis, move_axis

_U32 = np.dtype(np.uint32)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_MASK = 0xFFFFFFFF
_BLOCK = 32768  # elements that stay in cache through all rounds
_FEW = 6  # elements for which Python's integers are faster than NumPy's calls
BITS = {n: np.dtype(f"uint{n}") for n in (8, 16, 32, 64)}


# --- the cipher, three times: of arrays, of Python integers, of expressions --------------------


def _schedule(k0: Any, k1: Any, k2: Any) -> Iterator[tuple]:
    """The four rotations of each of the five groups of rounds, and the key words added after them."""
    keys = (k0, k1, k2)
    for i in range(5):
        yield _ROTATIONS[i % 2], keys[(i + 1) % 3], keys[(i + 2) % 3], i + 1


# Operands of NumPy's calls as arrays of rank 0: Python integers and NumPy scalars cost more.
_SHIFTS = {r: (np.array(r, _U32), np.array(32 - r, _U32)) for group in _ROTATIONS for r in group}
_NUMBERS = [np.array(i, _U32) for i in range(6)]


def encrypt_block(k0: Any, k1: Any, x0: np.ndarray, x1: np.ndarray) -> None:
    """Encrypt the pairs (x0, x1) of uint32 arrays in place; keys broadcast."""
    add, left, right, or_, xor = (
        np.add,
        np.left_shift,
        np.right_shift,
        np.bitwise_or,
        np.bitwise_xor,
    )
    k2 = k0 ^ k1 ^ np.uint32(_PARITY)
    add(x0, k0, x0)
    add(x1, k1, x1)
    tmp = np.empty_like(x1)
    for rotations, a, b, i in _schedule(k0, k1, k2):
        for r in rotations:
            up, down = _SHIFTS[r]
            add(x0, x1, x0)
            left(x1, up, tmp)
            right(x1, down, x1)
            or_(x1, tmp, x1)
            xor(x1, x0, x1)
        add(x0, a, x0)
        add(x1, add(b, _NUMBERS[i]), x1)


def encrypt_ints(k0: int, k1: int, x0: int, x1: int) -> tuple[int, int]:
    """Threefry-2x32 of Python integers."""
    k2 = k0 ^ k1 ^ _PARITY
    x0, x1 = (x0 + k0) & _MASK, (x1 + k1) & _MASK
    for rotations, a, b, i in _schedule(k0, k1, k2):
        for r in rotations:
            x0 = (x0 + x1) & _MASK
            x1 = ((x1 << r) & _MASK | x1 >> (32 - r)) ^ x0
        x0 = (x0 + a) & _MASK
        x1 = (x1 + b + i) & _MASK
    return x0, x1


def encrypt_exprs(k0: Expr, k1: Expr, x0: Expr, x1: Expr) -> tuple[Expr, Expr]:
    """Threefry-2x32 of uint32 expressions."""

    def number(n: int) -> Expr:
        return scalar.const(n, "uint32")

    def rotate(x: Expr, r: int) -> Expr:
        left = scalar.apply("shift_left", x, number(r))
        return scalar.apply("or", left, scalar.apply("shift_right_logical", x, number(32 - r)))

    k2 = scalar.apply("xor", scalar.apply("xor", k0, k1), number(_PARITY))
    x0, x1 = scalar.add(x0, k0), scalar.add(x1, k1)
    for rotations, a, b, i in _schedule(k0, k1, k2):
        for r in rotations:
            x0 = scalar.add(x0, x1)
            x1 = scalar.apply("xor", rotate(x1, r), x0)
        x0 = scalar.add(x0, a)
        x1 = scalar.add(scalar.add(x1, b), number(i))
    return x0, x1


def _encrypted(*operands: Expr) -> Expr:
    """Both words of a block as one number, the first one below."""
    low, high = (scalar.cast(x, "uint64") for x in encrypt_exprs(*operands))
    return scalar.apply("or", low, scalar.apply("shift_left", high, _WORD))


_WORD = scalar.const(32, "uint64")
THREEFRY = scalar.Function("threefry2x32", ("uint32",) * 4, _encrypted, 110)


def encrypt_by_call(k0: Expr, k1: Expr, x0: Expr, x1: Expr) -> tuple[Expr, Expr]:
    """As `encrypt_exprs`, for a few blocks: their code is a call."""
    both = THREEFRY("uint64", k0, k1, x0, x1)
    high = scalar.apply("shift_right_logical", both, _WORD)
    return scalar.cast(both, "uint32"), scalar.cast(high, "uint32")


def encrypt_counts(key: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Both words of the encryptions of 0, 1, ... n - 1 by one key of shape (2,)."""
    if n <= _FEW:
        k0, k1 = key.tolist()
        pairs = [encrypt_ints(k0, k1, 0, i) for i in range(n)]
        both = np.array(pairs, _U32).reshape(n, 2)
        return both[:, 0], both[:, 1]
    high = np.zeros(n, _U32)
    low = np.arange(n, dtype=np.uint64)
    if n > _MASK:
        high = (low >> np.uint64(32)).astype(_U32)
    low = low.astype(_U32)
    for i in range(0, n, _BLOCK):
        encrypt_block(key[0, ...], key[1, ...], high[i : i + _BLOCK], low[i : i + _BLOCK])
    return high, low


def _encrypt_many(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """As `encrypt_counts`, for keys of shape (..., 2): words of shape (..., n)."""
    batch = keys.shape[:-1]
    if not batch:
        return encrypt_counts(keys, n)
    high = np.zeros((*batch, n), _U32)
    low = np.broadcast_to(np.arange(n, dtype=np.uint64).astype(_U32), (*batch, n)).copy()
    encrypt_block(keys[..., 0, None], keys[..., 1, None], high, low)
    return high, low


# --- primitives --------------------------------------------------------------------------------


def check_keys(name: str, keys: ShapedArray) -> None:
    if keys.dtype != _U32:
        raise TypeMismatch(
            f"{name} needs the words of a random key, an array of dtype uint32, not {keys.dtype}; "
            "make keys with random.key(seed) or random.PRNGKey(seed)"
        )
    if keys.shape[-1:] != (2,):
        raise ShapeError(
            f"{name} needs keys of two words, an array of shape (..., 2), not {keys.shape}; make "
            "keys with random.key(seed) or random.PRNGKey(seed), and many with random.split"
        )


def counter(index: tuple[Expr, ...], shape: tuple[int, ...]) -> tuple[Expr, Expr]:
    """The number of an element, as two uint32 words."""
    count = scalar.linear_index(index, shape)
    low = scalar.cast(count, "uint32")
    if prod(shape) <= _MASK:
        return scalar.const(0, "uint32"), low
    shifted = scalar.apply("shift_right_logical", count, scalar.const(32, "int64"))
    return scalar.cast(shifted, "uint32"), low


def _words(
    keys: Operand, batch: tuple[Expr, ...], counter: tuple[Expr, Expr], blocks: int
) -> tuple[Expr, Expr]:
    """The words of one of so many blocks of each key."""
    k0, k1 = keys(*batch, scalar.size(0)), keys(*batch, scalar.size(1))
    few = prod(keys.shape[:-1]) * blocks <= policy.SMALL
    return (encrypt_by_call if few else encrypt_exprs)(k0, k1, *counter)


class _OfKeys(Primitive):
    """A primitive with one operand, keys, whose leading axes are the leading axes of the result."""

    def sharding(self, keys: ShapedArray) -> Factors:
        lead = tuple(range(keys.ndim - 1))
        rest = self.abstract(keys)[0].ndim - len(lead)
        return Factors(((*lead, None),), ((*lead, *(None,) * rest),))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self(move_axis(args[0], axes[0], 0)),), (0,)


@dataclass(frozen=True)
class RandomBits(_OfKeys):
    """Uniform random bits of `shape` for each key, as unsigned integers of `bit_width`."""

    bit_width: int
    shape: tuple[int, ...]
    name = "random_bits"

    def abstract(self, keys: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_keys(self.name, keys)
        if self.bit_width not in BITS:
            raise InvalidValue(
                f"random bits come in widths of 8, 16, 32 or 64, not {self.bit_width}"
            )
        return (ShapedArray((*keys.shape[:-1], *self.shape), BITS[self.bit_width]),)

    def impl(self, keys: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_keys(self.name, keys)  # type: ignore[arg-type]
        high, low = _encrypt_many(keys, prod(self.shape))
        shape = (*keys.shape[:-1], *self.shape)
        if self.bit_width == 64:
            wide = high.astype(np.uint64)
            wide <<= np.uint64(32)
            wide |= low
            return wide.reshape(shape)
        bits = (high ^ low).reshape(shape)
        return bits if self.bit_width == 32 else bits.astype(BITS[self.bit_width])

    def lower(self, keys: Operand) -> Recipe:  # type: ignore[override]
        n = len(keys.shape) - 1
        dtype = BITS[self.bit_width].name

        def element(*index: Expr) -> Expr:
            high, low = _words(keys, index[:n], counter(index[n:], self.shape), prod(self.shape))
            if self.bit_width < 64:
                return scalar.cast(scalar.apply("xor", high, low), dtype)
            high = scalar.apply(
                "shift_left", scalar.cast(high, "uint64"), scalar.const(32, "uint64")
            )
            return scalar.apply("or", high, scalar.cast(low, "uint64"))

        return Point(element)


@dataclass(frozen=True)
class RandomSplit(_OfKeys):
    """An array of new keys, of `shape`, from each key."""

    shape: tuple[int, ...]
    name = "random_split"

    def abstract(self, keys: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_keys(self.name, keys)
        return (ShapedArray((*keys.shape[:-1], *self.shape, 2), _U32),)

    def impl(self, keys: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_keys(self.name, keys)  # type: ignore[arg-type]
        words = np.stack(_encrypt_many(keys, prod(self.shape)), axis=-1)
        return words.reshape(*keys.shape[:-1], *self.shape, 2)

    def lower(self, keys: Operand) -> Recipe:  # type: ignore[override]
        n = len(keys.shape) - 1

        def element(*index: Expr) -> Expr:
            high, low = _words(keys, index[:n], counter(index[n:-1], self.shape), prod(self.shape))
            return scalar.select(scalar.compare("eq", index[-1], scalar.size(0)), high, low)

        return Point(element)


@dataclass(frozen=True)
class RandomFoldIn(Primitive):
    """A new key from each key, of shape (..., 2), and a uint32 number of shape (...)."""

    name = "random_fold_in"

    def sharding(self, keys: ShapedArray, data: ShapedArray) -> Factors:
        lead = tuple(range(data.ndim))
        return Factors(((*lead, None), lead), ((*lead, None),))

    def abstract(self, keys: ShapedArray, data: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_keys(self.name, keys)
        if data.dtype != _U32 or data.shape != keys.shape[:-1]:
            raise ShapeError(
                f"random_fold_in needs one uint32 number per key: keys of shape {keys.shape} and "
                f"data of type {data.str_short()}; vmap over keys or over data for other shapes"
            )
        return (ShapedArray(keys.shape, _U32),)

    def impl(self, keys: np.ndarray, data: np.ndarray) -> np.ndarray:  # type: ignore[override]
        check_keys(self.name, keys)  # type: ignore[arg-type]
        if keys.ndim == 1:
            k0, k1 = keys.tolist()
            return np.array(encrypt_ints(k0, k1, 0, int(data)), _U32)
        high, low = np.zeros(data.shape, _U32), data.copy()
        encrypt_block(keys[..., 0], keys[..., 1], high, low)
        return np.stack((high, low), axis=-1)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        moved = [
            broadcast_axis(x, size, 0) if k is None else move_axis(x, k, 0)
            for x, k in zip(args, axes, strict=True)
        ]
        return (self(*moved),), (0,)

    def lower(self, keys: Operand, data: Operand) -> Recipe:  # type: ignore[override]
        def element(*index: Expr) -> Expr:
            batch = index[:-1]
            high, low = _words(keys, batch, (scalar.const(0, "uint32"), data(*batch)), 1)
            return scalar.select(scalar.compare("eq", index[-1], scalar.size(0)), high, low)

        return Point(element)


random_fold_in = RandomFoldIn()
