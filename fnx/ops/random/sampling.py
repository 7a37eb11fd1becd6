"""Samplers that reject: gamma, Poisson and binomial numbers, by elements or by batch elements.

They draw from the same keys in the same order as JAX's, so that samples are equal up to rounding.
"""

from collections.abc import Callable
from math import prod

import ml_dtypes
import numpy as np

from fnx.core import dtypes
from fnx.core.aval import ShapedArray
from fnx.core.cost import LIBRARY
from fnx.core.errors import ShapeError, TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.primitive import Primitive
from fnx.core.recipe import Operand, Recipe
from fnx.ops.elementwise.arithmetic import div, exp, max_, mul
from fnx.ops.elementwise.convert import cast
from fnx.ops.elementwise.native import implements, native
from fnx.ops.elementwise.pointwise import FLOAT, Pointwise, common_shape
from fnx.ops.elementwise.special import random_gamma_grad
from fnx.ops.random import rejection
from fnx.ops.random.prng import RandomBits, RandomSplit, check_keys
from fnx.ops.structure.basic import broadcast_axis, move_axis, scalar

Numbers = np.ndarray


# --- uniform and normal numbers of NumPy arrays of keys ----------------------------------------


def unit_floats(bits: Numbers, dtype: np.dtype) -> Numbers:
    """Floats in [0, 1) whose mantissas are random bits (of the width that `bit_width` says)."""
    info = ml_dtypes.finfo(dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    mantissa = bits.astype(unsigned) >> unsigned.type(8 * bits.itemsize - info.nmant)
    one = np.ones((), dtype)
    return (mantissa | one.view(unsigned)).view(dtype) - one


def bit_width(dtype: np.dtype) -> int:
    """How many random bits a float takes."""
    return 8 if ml_dtypes.finfo(dtype).nmant < 8 else 8 * dtype.itemsize


def _uniform(keys: Numbers, shape: tuple[int, ...], dtype: np.dtype) -> Numbers:
    return unit_floats(RandomBits(bit_width(dtype), shape).impl(keys), dtype)


def _normal(keys: Numbers, dtype: np.dtype) -> Numbers:
    """One normal number for each key."""
    from scipy.special import erfinv

    low = np.nextafter(dtype.type(-1), dtype.type(0))
    u = np.maximum(low, _uniform(keys, (), dtype) * (1 - low) + low)
    return (dtype.type(np.sqrt(2)) * erfinv(u)).astype(dtype)


def _split(keys: Numbers, n: int) -> Numbers:
    """Keys of shape (n, *batch, 2)."""
    return np.moveaxis(RandomSplit((n,)).impl(keys), -2, 0)


# --- gamma -------------------------------------------------------------------------------------


def gamma_samples(keys: Numbers, alpha: Numbers, log_space: bool) -> Numbers:
    """Gamma(alpha) numbers, one for each key of (n, 2), by Marsaglia and Tsang (2000).

    For alpha < 1 a number of alpha + 1 is multiplied by uniform ** (1 / alpha).
    """
    dtype = alpha.dtype
    third = dtype.type(1 / 3)
    big = alpha >= 1
    d = np.where(big, alpha, alpha + 1).astype(dtype) - third
    c = third / np.sqrt(d)
    keys, boost_keys = _split(keys, 2).copy()
    v = np.ones_like(alpha)
    active = np.arange(len(alpha))
    while active.size:
        keys[active], x_keys, u_keys = _split(keys[active], 3)
        x, cube = _cube_of_normal(x_keys, c[active], dtype)
        u = _uniform(u_keys, (), dtype)
        square = x * x
        slow = np.log(u) >= square * dtype.type(0.5) + d[active] * (1 - cube + np.log(cube))
        again = (u >= 1 - dtype.type(0.0331) * (square * square)) & slow
        v[active] = cube
        active = active[again]
    u = _uniform(boost_keys, (), dtype)
    if log_space:
        logs = np.log1p(-u)
        boost = np.where(big | (logs == 0), 0, logs * (1 / alpha))
        return (np.log(d) + np.log(v) + boost).astype(dtype)
    return (d * v * np.where(big, 1, (1 - u) ** (1 / alpha))).astype(dtype)


def _cube_of_normal(keys: Numbers, c: Numbers, dtype: np.dtype) -> tuple[Numbers, Numbers]:
    """Normal numbers x, drawn again until 1 + c x > 0, and (1 + c x) ** 3."""
    keys = keys.copy()
    x, v = np.zeros_like(c), np.full_like(c, -1)
    active = np.arange(len(c))
    while active.size:
        keys[active], draw = _split(keys[active], 2)
        x[active] = _normal(draw, dtype)
        v[active] = 1 + x[active] * c[active]
        active = active[v[active] <= 0]
    return x, v * v * v


class _Sampler(Primitive):
    """Operands: keys of shape (*batch, 2), parameters of shape (*batch, *shape), as the result."""

    def out_dtype(self, dtype: np.dtype) -> np.dtype:
        return dtype

    def abstract(self, keys: ShapedArray, *parameters: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        check_keys(self.name, keys)
        p, batch = parameters[0], keys.shape[:-1]
        if p.shape[: len(batch)] != batch or any(q.shape != p.shape for q in parameters):
            raise ShapeError(
                f"{self.name}: keys of shape {keys.shape} do not fit parameters of shapes "
                f"{[q.shape for q in parameters]}; expected equal shapes that begin with {batch}"
            )
        if any(not dtypes.is_float(q.dtype) or q.dtype != p.dtype for q in parameters):
            raise TypeMismatch(
                f"{self.name} needs float parameters of one dtype, not {[q.dtype for q in parameters]}"
            )
        return (ShapedArray(p.shape, self.out_dtype(p.dtype)),)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        """Counts are steps of their parameters, so their tangents are zero; others have a rule."""
        return self.apply(*primals), (None,)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        moved = [
            broadcast_axis(x, size, 0) if k is None else move_axis(x, k, 0)
            for x, k in zip(args, axes, strict=True)
        ]
        return self.apply(*moved), (0,)

    def lower(self, *operands: Operand) -> Recipe:
        keys, *parameters = operands
        sampler = self.native(parameters[-1].dtype)
        return rejection.search(sampler, keys, tuple(parameters))

    def native(self, dtype: str) -> rejection.Sampler:
        """The sampler in native code, of parameters of a dtype."""
        raise NotImplementedError


@dataclass(frozen=True)
class GammaOfKeys(Pointwise):
    """Gamma(alpha) numbers, or their logarithms: operands are alpha and the two words of a key each."""

    log_space: bool
    name = "random_gamma_of_keys"
    cost = LIBRARY
    accepts = FLOAT

    def abstract(self, alpha: ShapedArray, *words: ShapedArray) -> tuple[ShapedArray, ...]:  # type: ignore[override]
        if any(w.dtype != np.uint32 for w in words):
            raise TypeMismatch(f"{self.name} needs uint32 words, not {[w.dtype for w in words]}")
        shape = common_shape(self.name, (alpha, *words))
        return super().abstract(alpha.update(shape=shape))

    def impl(self, alpha: Numbers, *words: Numbers) -> Numbers:  # type: ignore[override]
        return _GAMMAS[self.log_space](alpha, *words)

    def lower(self, alpha: Operand, *words: Operand) -> Recipe:  # type: ignore[override]
        return rejection.search_by_element(rejection.gamma(self.log_space), words, alpha)


def _kernel(prim: GammaOfKeys) -> Callable:
    def reference(alpha: Numbers, *words: Numbers) -> Numbers:
        keys, flat = np.stack(words, axis=-1).reshape(-1, 2), alpha.reshape(-1)
        return gamma_samples(keys, flat, prim.log_space).reshape(alpha.shape)

    kernel = native(reference, beside=(_U32, _U32))
    implements(kernel, prim)
    return kernel


_U32 = np.dtype(np.uint32)
GAMMA_OF_KEYS = {log_space: GammaOfKeys(log_space) for log_space in (False, True)}
_GAMMAS = {log_space: _kernel(prim) for log_space, prim in GAMMA_OF_KEYS.items()}


@dataclass(frozen=True)
class RandomGamma(_Sampler):
    """Gamma numbers of shape parameter alpha and scale 1, or with `log_space` their logarithms.

    Derivatives are those of the sample at a fixed place of its distribution: Figurnov et al.,
    "Implicit reparameterization gradients" (2018).
    """

    log_space: bool
    name = "random_gamma"

    def native(self, dtype: str) -> rejection.Sampler:
        return rejection.gamma(self.log_space)

    def impl(self, keys: Numbers, alpha: Numbers) -> Numbers:  # type: ignore[override]
        own = RandomSplit(alpha.shape[keys.ndim - 1 :]).impl(keys)
        return np.asarray(GAMMA_OF_KEYS[self.log_space].impl(alpha, own[..., 0], own[..., 1]))

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        keys, alpha = primals
        out = self(keys, alpha)
        if not self.log_space:
            return (out,), (mul(tangents[1], random_gamma_grad(alpha, out)),)
        sample = max_(exp(out), scalar(float(ml_dtypes.finfo(out.dtype).tiny), out.dtype))
        slope = div(random_gamma_grad(alpha, sample), sample)
        return (out,), (mul(tangents[1], slope),)


# --- counts ------------------------------------------------------------------------------------


def _in_rows(sample: Callable, keys: Numbers, *parameters: Numbers) -> Numbers:
    """sample(keys, *parameters), where each key has one axis of parameters."""
    batch, shape = keys.shape[:-1], parameters[0].shape
    rows = [p.reshape(*batch, prod(shape[len(batch) :])) for p in parameters]
    return sample(keys, *rows).reshape(shape)


def _taken(accept: Numbers, done: Numbers) -> Numbers:
    """What is accepted in rows that have not ended: a key draws for all of its row until all are done."""
    return accept & ~done.all(axis=-1, keepdims=True)


@dataclass(frozen=True)
class RandomPoisson(_Sampler):
    """Poisson numbers of rate lambda, in an integer dtype.

    By Knuth's products of uniform numbers below a rate of 10, and above by Hormann, "The transformed
    rejection method for generating Poisson random variables" (1993).
    """

    dtype: np.dtype
    name = "random_poisson"

    def out_dtype(self, dtype: np.dtype) -> np.dtype:
        return self.dtype

    def native(self, dtype: str) -> rejection.Sampler:
        return rejection.poisson(dtypes.NAME[self.dtype], dtype)

    def impl(self, keys: Numbers, rate: Numbers) -> Numbers:  # type: ignore[override]
        return np.asarray(_in_rows(self._one, keys, rate), self.dtype)

    def _one(self, keys: Numbers, rate: Numbers) -> Numbers:
        few = np.isnan(rate) | (rate < 10)
        small = np.where(few, rate, 0).astype(rate.dtype)
        large = np.where(few, 1e5, rate).astype(rate.dtype)
        many = cast(_poisson_rejection(keys, large), self.dtype)
        found = np.where(few, _poisson_knuth(keys, small).astype(self.dtype), many)
        return np.where(rate == 0, 0, found)


def _poisson_knuth(keys: Numbers, rate: Numbers) -> Numbers:
    count = np.zeros(rate.shape, np.int64)
    total = np.zeros(rate.shape, np.float32)
    while (total > -rate).any():
        keys, draws = _split(keys, 2)
        count = np.where(total > -rate, count + 1, count)
        total = total + np.log(_uniform(draws, rate.shape[-1:], np.dtype(np.float32)))
    return count - 1


def _poisson_rejection(keys: Numbers, rate: Numbers) -> Numbers:
    from scipy.special import gammaln

    f = rate.dtype.type
    log_rate = np.log(rate)
    b = f(0.931) + f(2.53) * np.sqrt(rate)
    a = f(-0.059) + f(0.02483) * b
    inverse_alpha = f(1.1239) + f(1.1328) / (b - f(3.4))
    v_r = f(0.9277) - f(3.6224) / (b - 2)
    found, done = np.full(rate.shape, -1, rate.dtype), np.zeros(rate.shape, bool)
    while not done.all():
        keys, u_keys, v_keys = _split(keys, 3)
        u = _uniform(u_keys, rate.shape[-1:], rate.dtype) - f(0.5)
        v = _uniform(v_keys, rate.shape[-1:], rate.dtype)
        near = f(0.5) - np.abs(u)
        k = np.floor((2 * a / near + b) * u + rate + f(0.43))
        s = np.log(v * inverse_alpha / (a / (near * near) + b))
        t = -rate + k * log_rate - gammaln(k + 1)
        surely = (near >= f(0.07)) & (v <= v_r)
        never = (k < 0) | ((near < f(0.013)) & (v > near))
        accept = _taken(surely | (~never & (s <= t)), done)
        found, done = np.where(accept, k, found), done | accept
    return found


@dataclass(frozen=True)
class RandomBinomial(_Sampler):
    """Binomial numbers of n trials of probability p, as floats of their dtype.

    By sums of geometric numbers where n p <= 10, else by Hormann, "The generation of binomial random
    variates" (1993). Operands: keys, n, p. A nan or negative parameter gives nan.
    """

    name = "random_binomial"

    def native(self, dtype: str) -> rejection.Sampler:
        return rejection.binomial(dtype)

    def impl(self, keys: Numbers, n: Numbers, p: Numbers) -> Numbers:  # type: ignore[override]
        return np.asarray(_in_rows(_binomial, keys, n, p), p.dtype)


def _binomial(keys: Numbers, n: Numbers, p: Numbers) -> Numbers:
    low = p < 0.5
    q = np.where(low, p, 1 - p).astype(p.dtype)
    bad_n, bad_q = np.isnan(n) | (n < 0), np.isnan(q) | (q < 0)
    endless = np.isinf(n)
    q = np.where(bad_q, 0.01, q).astype(p.dtype)
    few = bad_n | (n * q <= 10)
    n = np.floor(n)
    counted = _binomial_inversion(keys, np.where(few, n, 0), q)
    rejected = _binomial_rejection(
        keys, np.where(few, 1e4, n).astype(p.dtype), np.where(few, 0.5, q).astype(p.dtype)
    )
    found = np.where(few, counted, rejected)
    found = np.where(bad_n | bad_q, np.nan, found)
    found = np.where(endless & ~bad_n & ~bad_q, np.inf, found)
    return np.where(low | bad_n | np.isnan(p) | endless, found, n - found)


def _binomial_inversion(keys: Numbers, n: Numbers, p: Numbers) -> Numbers:
    log_q = np.log1p(-p)
    count, total = np.zeros(p.shape, p.dtype), np.zeros(p.shape, p.dtype)
    while (total <= n).any():
        draws, keys = _split(keys, 2)
        count = np.where(total <= n, count + 1, count)
        total = total + np.ceil(np.log(_uniform(draws, p.shape[-1:], p.dtype)) / log_q)
    return count - 1


def _binomial_rejection(keys: Numbers, n: Numbers, p: Numbers) -> Numbers:
    spread = np.sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c, v_r, r = n * p + 0.5, 0.92 - 4.2 / b, p / (1 - p)
    alpha, m = (2.83 + 5.1 / b) * spread, np.floor((n + 1) * p)
    found, done = np.full(p.shape, -1, p.dtype), np.zeros(p.shape, bool)
    while not done.all():
        keys, u_keys, v_keys = _split(keys, 3)
        u = _uniform(u_keys, p.shape[-1:], p.dtype) - p.dtype.type(0.5)
        v = _uniform(v_keys, p.shape[-1:], p.dtype)
        near = 0.5 - np.abs(u)
        k = np.floor((2 * a / near + b) * u + c)
        bound = (
            (m + 0.5) * np.log((m + 1) / (r * (n - m + 1)))
            + (n + 1) * np.log((n - m + 1) / (n - k + 1))
            + (k + 0.5) * np.log(r * (n - k + 1) / (k + 1))
            + _stirling_tail(m) + _stirling_tail(n - m) - _stirling_tail(k) - _stirling_tail(n - k)
        )  # fmt: skip
        surely = (near >= 0.07) & (v <= v_r)
        inside = ~((k < 0) | (k > n))
        below = np.log(v * alpha / (a / (near * near) + b)) <= bound
        accept = _taken(surely | (inside & below), done)
        found, done = np.where(accept, k, found), done | accept
    return found


def _stirling_tail(k: Numbers) -> Numbers:
    """log k! less Stirling's formula."""
    from scipy.special import gammaln

    small = np.clip(k, 0, 9)
    exact = gammaln(small + 1) - (
        0.5 * np.log(2 * np.pi) + (small + 0.5) * np.log(small + 1) - (small + 1)
    )
    square = (k + 1) * (k + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    return np.where(k <= 9, exact, series)


random_binomial = RandomBinomial()
