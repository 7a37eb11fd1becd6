"""Random bits from a state of four words, of which two count: Philox-4x32, and Threefry as XLA counts.

Philox is the other cipher of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Blocks
are numbered from what the last two words of the state say, and bits are equal to XLA's on CPUs.
"""

from math import prod
from typing import Any

import numpy as np

from fnx.core import scalar
from fnx.core.aval import ShapedArray
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.formula import V, where
from fnx.core.primitive import Primitive
from fnx.core.recipe import Operand, Point, Recipe
from fnx.core.scalar import Expr
from fnx.ops.base.permute import Reshape
from fnx.ops.random.prng import BITS, encrypt_block, encrypt_exprs
from fnx.ops.structure.basic import broadcast_axis, move_axis
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice

_U32 = np.dtype(np.uint32)
_MASK = 0xFFFFFFFF
_FACTORS = 0xD2511F53, 0xCD9E8D57
_WEYL = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
ALGORITHMS = "philox", "threefry"


def _philox(counter: list, key: list) -> list:
    """Encrypt four words, of 64 bits with a high half of zeros: arrays of NumPy's, or expressions."""
    a, b, c, d = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        low, high = a * _FACTORS[0], c * _FACTORS[1]
        a, b, c, d = (high >> 32) ^ b ^ k0, high & _MASK, (low >> 32) ^ d ^ k1, low & _MASK
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return [a, b, c, d]


# --- which block, and which word of it, an element is ------------------------------------------


def _halved(shape: tuple[int, ...]) -> int:
    """The axis along which Threefry's two words lie: the first even one, else the longest."""
    even = [k for k, n in enumerate(shape) if n % 2 == 0]
    return even[0] if even else shape.index(max(shape))


def _blocks_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of the blocks of Threefry's words: half of one axis."""
    if not shape:
        return (1,)
    axis = _halved(shape)
    return (*shape[:axis], (shape[axis] + 1) // 2, *shape[axis + 1 :])


def blocks(algorithm: str, bit_width: int, shape: tuple[int, ...]) -> int:
    """How many blocks bits of a shape take, by which the state moves on."""
    if algorithm == "philox":
        return -(-prod(shape) * max(1, bit_width // 32) // 4)
    return prod(shape) if bit_width == 64 else prod(_blocks_shape(shape))


# --- primitives --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _OfState(Primitive):
    """A primitive of one state; of a batch of them the first one draws for all, as in JAX."""

    algorithm: str
    bit_width: int
    shape: tuple[int, ...]

    def check(self, state: Any) -> None:
        if state.dtype != _U32 or state.shape != (4,):
            raise TypeMismatch(
                f"{self.name} needs a state of four uint32 words, not an array of shape {state.shape} "
                f"and dtype {state.dtype}"
            )

    def of_all(self, size: int) -> "_OfState":
        return type(self)(self.algorithm, self.bit_width, (size, *self.shape))


@dataclass(frozen=True)
class RngState(_OfState):
    """The state after bits of a shape were drawn."""

    name = "rng_state"

    def abstract(self, state: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(state)
        return (ShapedArray((4,), _U32),)

    @property
    def count(self) -> int:
        return blocks(self.algorithm, self.bit_width, self.shape)

    def impl(self, state: np.ndarray) -> np.ndarray:  # type: ignore[override]
        self.check(state)
        k0, k1, low, high = state.tolist()
        after = low + (high << 32) + self.count
        return np.array([k0, k1, after & _MASK, after >> 32 & _MASK], _U32)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        states = move_axis(args[0], axes[0], 0)
        after = broadcast_axis(self.of_all(size)(_first(states)), 1, 0)
        rest = Slice((1, 0), (size, 4), (1, 1))(states)
        return (Concatenate(0)(after, rest),), (0,)

    def lower(self, state: Operand) -> Recipe:  # type: ignore[override]
        def element(k: Expr) -> Expr:
            low, high = (V(scalar.cast(state(scalar.size(n)), "uint64")) for n in (2, 3))
            after = (low | (high << 32)) + self.count
            place = V(k)
            moved = where(place.eq(2), after & _MASK, after >> 32)
            return scalar.select((place < 2).e, state(k), scalar.cast(moved.e, "uint32"))

        return Point(element)


@dataclass(frozen=True)
class RngBits(_OfState):
    """Random bits of a shape, as unsigned integers of `bit_width`."""

    name = "rng_bit_generator"

    def abstract(self, state: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        self.check(state)
        return (ShapedArray(self.shape, BITS[self.bit_width]),)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        return (self.of_all(size)(_first(move_axis(args[0], axes[0], 0))),), (0,)

    def impl(self, state: np.ndarray) -> np.ndarray:  # type: ignore[override]
        self.check(state)
        n = blocks(self.algorithm, self.bit_width, self.shape)
        words = state.astype(np.uint64)
        numbers = (words[2] | words[3] << np.uint64(32)) + np.arange(n, dtype=np.uint64)
        with np.errstate(over="ignore"):
            if self.algorithm == "philox":
                return self._of_philox(words, numbers)
            return self._of_threefry(state, numbers)

    def _of_philox(self, state: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        one = np.ones_like(numbers)
        above = state[0] + (numbers < numbers[:1])  # the counter is of 128 bits
        counter = [
            numbers & _MASK,
            numbers >> 32,
            above & _MASK,
            (state[1] + (above >> 32)) & _MASK,
        ]
        drawn = np.stack(_philox(counter, [state[0] * one, state[1] * one]), -1).ravel()
        if self.bit_width == 64:
            drawn = drawn[::2] | drawn[1::2] << np.uint64(32)
        return drawn[: prod(self.shape)].astype(BITS[self.bit_width]).reshape(self.shape)

    def _of_threefry(self, state: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        low, high = (numbers & _MASK).astype(_U32), (numbers >> np.uint64(32)).astype(_U32)
        encrypt_block(state[0, ...], state[1, ...], low, high)
        if self.bit_width == 64:
            wide = low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
            return wide.reshape(self.shape)
        shape = self.shape or (1,)
        axis, inner = _halved(shape), _blocks_shape(shape)
        pairs = np.stack([low.reshape(inner), high.reshape(inner)], axis + 1)
        pairs = pairs.reshape(*shape[:axis], 2 * inner[axis], *shape[axis + 1 :])
        drawn = pairs.take(np.arange(shape[axis]), axis)
        return drawn.astype(BITS[self.bit_width]).reshape(self.shape)

    def lower(self, state: Operand) -> Recipe:  # type: ignore[override]
        wide = [V(scalar.cast(state(scalar.size(n)), "uint64")) for n in range(4)]
        start = wide[2] | (wide[3] << 32)
        of = self._philox_element if self.algorithm == "philox" else self._threefry_element
        dtype = BITS[self.bit_width].name

        def element(*index: Expr) -> Expr:
            return scalar.cast(of(wide, start, index).e, dtype)

        return Point(element)

    def _philox_element(self, state: list[V], start: V, index: tuple[Expr, ...]) -> V:
        place = V(scalar.cast(scalar.linear_index(index, self.shape), "uint64"))
        a_block = 2 if self.bit_width == 64 else 4
        number = start + (place >> (a_block.bit_length() - 1))
        word = place & (a_block - 1)
        above = state[0] + where(number < start, 1, 0 * start)  # the counter is of 128 bits
        top = (state[1] + (above >> 32)) & _MASK
        a, b, c, d = _philox([number & _MASK, number >> 32, above & _MASK, top], state[:2])
        if self.bit_width == 64:
            return where(word.eq(0), a | (b << 32), c | (d << 32))
        return where(word < 2, where(word.eq(0), a, b), where(word.eq(2), c, d))

    def _threefry_element(self, state: list[V], start: V, index: tuple[Expr, ...]) -> V:
        shape, second = self.shape, None
        if self.bit_width < 64:
            index, shape = index or (scalar.size(0),), shape or (1,)
            axis = _halved(shape)
            k = V(scalar.cast(index[axis], "uint64"))
            second = k & 1
            half = scalar.cast((k >> 1).e, index[axis].dtype)
            index, shape = (*index[:axis], half, *index[axis + 1 :]), _blocks_shape(shape)
        number = start + V(scalar.cast(scalar.linear_index(index, shape), "uint64"))
        k0, k1, low, high = (
            scalar.cast(x.e, "uint32") for x in (*state[:2], number & _MASK, number >> 32)
        )
        x0, x1 = (V(scalar.cast(x, "uint64")) for x in encrypt_exprs(k0, k1, low, high))
        return x0 | (x1 << 32) if second is None else where(second.eq(0), x0, x1)


def _first(states: Any) -> Any:
    return Reshape((4,))(Slice((0, 0), (1, 4), (1, 1))(states))
