"""The samplers of sampling.py in native code: the same draws in the same order, element by element."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes

from fnx.core import dtypes, scalar
from fnx.core.fast_dataclasses import dataclass
from fnx.core.formula import V, at_least, at_most, floor, sqrt, where
from fnx.core.recipe import Operand, Repeat, Rounds, Search
from fnx.core.scalar import Expr
from fnx.ops.random.prng import counter, encrypt_exprs

Key = tuple[Expr, Expr]
_ZERO = scalar.const(0, "uint32")


# --- keys, bits, uniform and normal numbers ----------------------------------------------------


def _split(key: Key, n: int) -> list[Key]:
    return [encrypt_exprs(*key, _ZERO, scalar.const(k, "uint32")) for k in range(n)]


def _uniform(key: Key, at: Key, dtype: str) -> V:
    """Number `at` of the uniform numbers of a key."""
    info = ml_dtypes.finfo(dtypes.canonical(dtype))
    width = info.bits
    high, low = encrypt_exprs(*key, *at)
    if width == 64:
        wide = (V(scalar.cast(high, "uint64")) << 32) | V(scalar.cast(low, "uint64"))
    else:
        drawn = 8 if info.nmant < 8 else width
        both = V(scalar.cast(scalar.apply("xor", high, low), f"uint{drawn}"))
        wide = V(scalar.cast(both.e, f"uint{width}"))
        width = drawn
    one = scalar.bitcast(scalar.const(1, dtype), wide.dtype)
    mantissa = (wide >> (width - info.nmant)) | V(one)
    return V(scalar.bitcast(mantissa.e, dtype)) - 1


def _normal(key: Key, dtype: str) -> V:
    low = float(_below_zero(dtype))
    u = _uniform(key, (_ZERO, _ZERO), dtype)
    u = at_least(u * _rounded(1 - low, dtype) + low, low)
    return _function("erf_inv", u) * math.sqrt(2)


def _below_zero(dtype: str) -> float:
    """The number after -1."""
    return -1 + float(ml_dtypes.finfo(dtypes.canonical(dtype)).epsneg)


def _rounded(x: float, dtype: str) -> float:
    return float(dtypes.canonical(dtype).type(x))


def _function(op: str, x: V) -> V:
    return V(scalar.apply(op, x.e))


def _log(x: V) -> V:
    return _function("log", x)


def _either(a: V, b: V) -> V:
    return V(scalar.apply("or", a.e, b.e))


def _both(a: V, b: V) -> V:
    return V(scalar.logical_and(a.e, b.e))


def _bool(value: bool) -> Expr:
    return scalar.const(value, "bool")


def _not_a_number(x: V) -> V:
    return x.ne(x)


@dataclass(frozen=True)
class Element:
    """What a sampler of one element has: its batch element's key, its number in that, its parameters.

    Without a number the key is its own. `repeat` makes loops of its own; `states` are what the draws of
    its batch element left.
    """

    key: Key
    at: Key | None
    given: list[V]
    repeat: Repeat
    states: list[V]

    def own_key(self) -> Key:
        return self.key if self.at is None else encrypt_exprs(*self.key, *self.at)


@dataclass(frozen=True)
class Draws:
    """Draws of all elements of a batch element, with keys in common, until each is done.

    `draw(element, states, keys)` gives the next states and whether the element is done; `keys` are
    `count` that are split from the round's, of which number `following` is the next round's.
    """

    states: tuple[Expr, ...]
    count: int
    following: int
    draw: Callable[[Element, list[V], list[Key]], tuple[list[V], V]]


@dataclass(frozen=True)
class Sampler:
    """`sample` of an element, after draws of its batch element."""

    sample: Callable[[Element], V]
    draws: tuple[Draws, ...] = ()


def search(sampler: Sampler, keys: Operand, parameters: tuple[Operand, ...]) -> Search:
    """The recipe of a sampler: keys have the leading axes of the parameters."""
    batch_axes, shape = len(keys.shape) - 1, parameters[0].shape

    def key_of(*index: Expr) -> Key:
        return keys(*index, scalar.size(0)), keys(*index, scalar.size(1))

    def element(index: tuple[Expr, ...], repeat: Repeat, *states: Expr) -> Element:
        given = [V(p(*index)) for p in parameters]
        number = counter(index[batch_axes:], shape[batch_axes:])
        return Element(key_of(*index[:batch_axes]), number, given, repeat, _values(states))

    def sample(repeat: Repeat, *rest: Expr) -> Expr:
        cut = len(rest) - len(shape)
        return sampler.sample(element(rest[cut:], repeat, *rest[:cut])).e

    def rounds(d: Draws) -> Rounds:
        def draw(carried: Sequence[Expr], states: Sequence[Expr], *index: Expr) -> tuple:
            split = _split((carried[0], carried[1]), d.count)
            after, done = d.draw(element(index, _no_loops), _values(states), split)
            return [x.e for x in after], done.e

        def step(carried: Sequence[Expr]) -> Key:
            return _split((carried[0], carried[1]), d.count)[d.following]

        return Rounds(d.states, key_of, step, draw)

    return Search(shape, sample, batch_axes, tuple(map(rounds, sampler.draws)))


def search_by_element(sampler: Sampler, keys: tuple[Operand, ...], parameter: Operand) -> Search:
    """The recipe of a sampler without draws in common: each element has the two words of a key."""

    def sample(repeat: Repeat, *index: Expr) -> Expr:
        k0, k1, given = (x(*index) if x.shape else x() for x in (*keys, parameter))
        return sampler.sample(Element((k0, k1), None, [V(given)], repeat, [])).e

    return Search(max((x.shape for x in (*keys, parameter)), key=len), sample)


def _values(exprs: Sequence[Expr]) -> list[V]:
    return [V(e) for e in exprs]


def _no_loops(*args: Any) -> Sequence[Expr]:
    raise TypeError("what all elements of a batch element do together has no loops of their own")


Attempt = Callable[[Element, Key, Key], tuple[V, V]]  # a number and whether it is accepted


def _rejection(attempt: Attempt, dtype: str) -> Draws:
    """Attempts with two uniform numbers: the last that was accepted until all elements had one."""

    def draw(x: Element, states: list[V], keys: list[Key]) -> tuple[list[V], V]:
        (found, had), (_, u_key, v_key) = states, keys
        number, accepted = attempt(x, u_key, v_key)
        has = _either(had, accepted)
        return [where(accepted, number, found), has], has

    states = (scalar.const(-1, dtype), scalar.const(False, "bool"))
    return Draws(states, 3, 0, draw)


def _counting(
    limit: Callable[[Element], V],
    step: Callable[[Element, Key], V],
    below: Callable[[V, V], V],
    dtype: str,
    count: str,
    following: int,
) -> Draws:
    """How many numbers it takes until their total is not `below` the limit, and the total."""

    def draw(x: Element, states: list[V], keys: list[Key]) -> tuple[list[V], V]:
        number, total = states
        most = limit(x)
        more = total + step(x, keys[1 - following])
        return [where(below(total, most), number + 1, number), more], ~below(more, most)

    states = (scalar.const(0, count), scalar.const(0, dtype))
    return Draws(states, 2, following, draw)


# --- gamma -------------------------------------------------------------------------------------


def gamma(log_space: bool) -> Sampler:
    """As `sampling.gamma_samples`."""

    def sample(x: Element) -> V:
        (alpha,) = x.given
        dtype = alpha.dtype
        third = _rounded(1 / 3, dtype)
        big = alpha >= 1
        d = where(big, alpha, alpha + 1) - third
        c = third / sqrt(d)
        key, boost_key = _split(x.own_key(), 2)

        def attempt(k0: Expr, k1: Expr, v: Expr, again: Expr) -> list[Expr]:
            following, x_key, u_key = _split((k0, k1), 3)
            normal, cube = _cube_of_normal(x.repeat, x_key, c)
            u = _uniform(u_key, (_ZERO, _ZERO), dtype)
            square = normal * normal
            slow = _log(u) >= square * 0.5 + d * (1 - cube + _log(cube))
            refused = _both(u >= 1 - (square * square) * 0.0331, slow)
            return [*following, cube.e, refused.e]

        start = [*key, scalar.const(1, dtype), _bool(True)]
        _, _, found, _ = x.repeat(start, lambda k0, k1, v, again: again, attempt)
        v, u = V(found), _uniform(boost_key, (_ZERO, _ZERO), dtype)
        if log_space:
            logs = _function("log1p", -u)
            boost = where(_either(big, logs.eq(0)), 0, logs * (1 / alpha))
            return _log(d) + _log(v) + boost
        power = V(scalar.apply("pow", (1 - u).e, (1 / alpha).e))
        return d * v * where(big, 1, power)

    return Sampler(sample)


def _cube_of_normal(repeat: Repeat, key: Key, c: V) -> tuple[V, V]:
    """A normal number x, drawn again until 1 + c x > 0, and (1 + c x) ** 3."""

    def draw(k0: Expr, k1: Expr, x: Expr, v: Expr) -> list[Expr]:
        following, x_key = _split((k0, k1), 2)
        normal = _normal(x_key, c.dtype)
        return [*following, normal.e, (1 + normal * c).e]

    start = [*key, scalar.const(0, c.dtype), scalar.const(-1, c.dtype)]
    _, _, x, v = repeat(start, lambda k0, k1, x, v: (V(v) <= 0).e, draw)
    return V(x), V(v) * V(v) * V(v)


# --- counts ------------------------------------------------------------------------------------


def poisson(dtype: str, of: str) -> Sampler:
    """As `RandomPoisson.impl`, in an integer dtype, of rates of another."""

    def few(x: Element) -> V:
        return _either(_not_a_number(x.given[0]), x.given[0] < 10)

    def attempt(x: Element, u_key: Key, v_key: Key) -> tuple[V, V]:
        return _poisson_attempt(where(few(x), 1e5, x.given[0]), x.at, u_key, v_key)

    def limit(x: Element) -> V:
        return -V(scalar.cast(where(few(x), x.given[0], 0).e, "float64"))

    def step(x: Element, key: Key) -> V:
        return _log(_uniform(key, x.at, "float32"))

    def above(total: V, limit: V) -> V:
        return V(scalar.cast(total.e, "float64")) > limit

    def sample(x: Element) -> V:
        (rate,), (count, _, found, _) = x.given, x.states
        counted, many = (V(scalar.cast(v.e, dtype)) for v in (count - 1, found))
        return where(rate.eq(0), 0, where(few(x), counted, many))

    counting = _counting(limit, step, above, "float32", "int64", 0)
    return Sampler(sample, (counting, _rejection(attempt, of)))


def _poisson_attempt(rate: V, at: Key, u_key: Key, v_key: Key) -> tuple[V, V]:
    log_rate = _log(rate)
    b = sqrt(rate) * 2.53 + 0.931
    a = b * 0.02483 + -0.059
    inverse_alpha = 1.1328 / (b - 3.4) + 1.1239
    v_r = 0.9277 - 3.6224 / (b - 2)
    u, v = _uniform(u_key, at, rate.dtype) - 0.5, _uniform(v_key, at, rate.dtype)
    near = 0.5 - abs(u)
    k = floor((2 * a / near + b) * u + rate + 0.43)
    s = _log(v * inverse_alpha / (a / (near * near) + b))
    t = -rate + k * log_rate - _function("lgamma", k + 1)
    surely = _both(near >= 0.07, v <= v_r)
    never = _either(k < 0, _both(near < 0.013, v > near))
    return k, _either(surely, _both(~never, s <= t))


def _binomial_cases(x: Element) -> tuple[V, V, V, V]:
    """Whole trials, the smaller probability, whether to count, whether a parameter is bad."""
    n, p = x.given
    q = where(p < 0.5, p, 1 - p)
    bad_n, bad_q = (_either(_not_a_number(y), y < 0) for y in (n, q))
    q = where(bad_q, 0.01, q)
    few = _either(bad_n, n * q <= 10)
    return floor(n), q, few, _either(bad_n, bad_q)


def _binomial_rejection(x: Element, u_key: Key, v_key: Key) -> tuple[V, V]:
    n, q, few, _ = _binomial_cases(x)
    return _binomial_attempt(where(few, 1e4, n), where(few, 0.5, q), x.at, u_key, v_key)


def _binomial(x: Element) -> V:
    """As `RandomBinomial.impl`."""
    n, _, few, bad = _binomial_cases(x)
    (given, p), (count, _, rejected, _) = x.given, x.states
    endless = abs(given).eq(math.inf)
    found = where(bad, math.nan, where(few, count - 1, rejected))
    found = where(_both(endless, ~bad), math.inf, found)
    kept = _either(_either(p < 0.5, _either(_not_a_number(given), given < 0)), endless)
    return where(_either(kept, _not_a_number(p)), found, n - found)


def binomial(of: str) -> Sampler:
    """Of a dtype."""

    def limit(x: Element) -> V:
        n, _, few, _ = _binomial_cases(x)
        return where(few, n, 0)

    def step(x: Element, key: Key) -> V:
        log_q = _function("log1p", -_binomial_cases(x)[1])
        return _function("ceil", _log(_uniform(key, x.at, of)) / log_q)

    counting = _counting(limit, step, lambda total, n: total <= n, of, of, 1)
    return Sampler(_binomial, (counting, _rejection(_binomial_rejection, of)))


def _binomial_attempt(n: V, p: V, at: Key, u_key: Key, v_key: Key) -> tuple[V, V]:
    dtype = p.dtype
    spread = sqrt(n * p * (1 - p))
    b = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c, v_r, r = n * p + 0.5, 0.92 - 4.2 / b, p / (1 - p)
    alpha, m = (2.83 + 5.1 / b) * spread, floor((n + 1) * p)
    u, v = _uniform(u_key, at, dtype) - 0.5, _uniform(v_key, at, dtype)
    near = 0.5 - abs(u)
    k = floor((2 * a / near + b) * u + c)
    bound = (
        (m + 0.5) * _log((m + 1) / (r * (n - m + 1)))
        + (n + 1) * _log((n - m + 1) / (n - k + 1))
        + (k + 0.5) * _log(r * (n - k + 1) / (k + 1))
        + _stirling_tail(m) + _stirling_tail(n - m) - _stirling_tail(k) - _stirling_tail(n - k)
    )  # fmt: skip
    surely = _both(near >= 0.07, v <= v_r)
    fits = _log(v * alpha / (a / (near * near) + b)) <= bound
    return k, _either(surely, _both(_both(k >= 0, k <= n), fits))


def _stirling_tail(k: V) -> V:
    """log k! less Stirling's formula."""
    small = at_most(at_least(k, 0), 9)
    exact = _function("lgamma", small + 1) - (
        0.5 * math.log(2 * math.pi) + (small + 0.5) * _log(small + 1) - (small + 1)
    )
    square = (k + 1) * (k + 1)
    series = (1 / 12 - (1 / 360 - 1 / 1260 / square) / square) / (k + 1)
    return where(k <= 9, exact, series)
