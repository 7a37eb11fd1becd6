"""Taylor series through a program, equation by equation: work grows as the square of the order."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from fnx import numpy
from fnx.core import dtypes
from fnx.core.array import Array, as_array
from fnx.core.interpreter import current
from fnx.core.jaxpr import Jaxpr, Primitive, Var

jnp: Any = numpy  # arrays get their methods when it is imported, which type checkers do not see

Coefficient = Any  # of t^k: an array, or None for zero
Fallback = Callable[[Callable, Sequence[Array], Sequence[list], int], tuple]


class Series(NamedTuple):
    """A value, and what its k-th coefficient is, from 1 on; each is made once, when it is asked for."""

    value: Any
    higher: Callable[[int], Coefficient] | None  # None for what does not change

    def __call__(self, k: int) -> Coefficient:
        if k == 0:
            return self.value
        return None if self.higher is None else self.higher(k)


def through(jaxpr: Jaxpr, inputs: Sequence[Series], order: int, fallback: Fallback) -> list[Series]:
    """The series of the results of a jaxpr."""
    env: dict[Var, Series] = dict(zip(jaxpr.inputs, inputs, strict=True))
    known = lambda a: env[a] if type(a) is Var else Series(as_array(a.value), None)
    for eqn in jaxpr.eqns:
        given = [known(a) for a in eqn.inputs]
        env.update(zip(eqn.outs, _equation(eqn.prim, given, order, fallback), strict=True))
    return [known(a) for a in jaxpr.outs]


def _equation(prim: Primitive, given: list[Series], order: int, fallback: Fallback) -> list[Series]:
    name = prim.name
    if name == "jit":
        return through(prim.jaxpr, given, order, fallback)  # type: ignore[attr-defined]
    values = [s.value for s in given]
    real = not any(dtypes.is_complex(x.dtype) for x in values)
    if all(s.higher is None for s in given) or (name in _STEPS and real):
        return [Series(y, None) for y in _apply(prim, values)]
    if name in _LINEAR:
        return _linear(prim, given)
    rule: Callable | None = _RULES.get(name) if real or name != "abs" else None
    if name in _BILINEAR:
        times = lambda a, b: _apply(prim, [a, b])[0]
        rule = lambda y, a, b: _series(y, _product(a, b, times))
    if name == "integer_pow":
        power = prim.params()["y"]
        rule = lambda y, x: _integer_power(y, x, power)
    if rule is None:
        return _by_derivatives(prim, given, order, fallback)
    (y,) = _apply(prim, values)
    return [rule(y, *given)]


def _apply(prim: Primitive, values: Sequence[Array]) -> Sequence[Array]:
    interpreter = current.get()
    return interpreter.process(prim, tuple(values)) if values else prim.apply()


def _series(value: Any, higher: Callable[[int], Coefficient]) -> Series:
    return Series(value, cache(higher))


def _by_derivatives(
    prim: Primitive, given: list[Series], order: int, fallback: Fallback
) -> list[Series]:
    """Of one equation by its derivatives, for which work doubles with each order."""
    moving = [i for i, s in enumerate(given) if s.higher is not None]
    terms = [[given[i](k) for k in range(1, order + 1)] for i in moving]
    terms = [
        [jnp.zeros_like(given[i].value) if c is None else c for c in cs]
        for i, cs in zip(moving, terms, strict=True)
    ]

    def along(*xs: Array) -> tuple:
        values = [s.value for s in given]
        for i, x in zip(moving, xs, strict=True):
            values[i] = x
        return tuple(_apply(prim, values))

    firsts, *rest = fallback(along, [given[i].value for i in moving], terms, order)
    higher = lambda j: lambda k: rest[k - 1][j]
    return [
        Series(y, higher(j) if dtypes.is_inexact(y.dtype) else None) for j, y in enumerate(firsts)
    ]


# --- rules -------------------------------------------------------------------------------------

# What has no derivative but zero.
_STEPS = frozenset(
    "and argmax argmin ceil eq floor ge gt is_finite le lt ne not or round sign stop_gradient xor".split()
)
# Linear in all operands that are no integers: these choose places.
_LINEAR = frozenset(
    "add add_any broadcast_in_dim complex concatenate conj convert_element_type copy cumsum dynamic_slice "
    "dynamic_update_slice fft gather imag neg pad real reduce_sum reduce_window_sum reshape rev "
    "scatter-add scatter_add select_n slice split squeeze sub transpose".split()
)
_BILINEAR = frozenset({"conv_general_dilated", "dot_general", "mul"})


def _linear(prim: Primitive, given: list[Series]) -> list[Series]:
    values = [s.value for s in given]
    outs = _apply(prim, values)

    @cache
    def terms(k: int) -> Sequence[Array] | None:
        cs = [s(k) for s in given]
        if all(c is None for c in cs):
            return None
        moved = [
            x if not dtypes.is_inexact(x.dtype) else jnp.zeros_like(x) if c is None else c
            for x, c in zip(values, cs, strict=True)
        ]
        return _apply(prim, moved)

    def coefficient(j: int) -> Callable[[int], Coefficient]:
        return lambda k: None if terms(k) is None else terms(k)[j]  # type: ignore[index]

    return [
        Series(y, coefficient(j) if dtypes.is_inexact(y.dtype) else None)
        for j, y in enumerate(outs)
    ]


def _sum(terms: Sequence[Coefficient]) -> Coefficient:
    total = None
    for term in terms:
        total = term if total is None else total if term is None else total + term
    return total


def _product(a: Any, b: Any, times: Callable = lambda x, y: x * y) -> Callable:
    """The coefficients of a product of two series, or functions of k."""

    def term(i: int, j: int) -> Coefficient:
        x, y = a(i), b(j)
        return None if x is None or y is None else times(x, y)

    return lambda k: _sum([term(i, k - i) for i in range(k + 1)])


def _quotient(value: Any, a: Series, b: Series) -> Series:
    def higher(k: int) -> Coefficient:
        rest = _sum([_times(b(j), y(k - j)) for j in range(1, k + 1)])
        top = a(k) if rest is None else -rest if a(k) is None else a(k) - rest
        return None if top is None else top / b.value

    y = _series(value, higher)
    return y


def _times(x: Coefficient, y: Coefficient) -> Coefficient:
    return None if x is None or y is None else x * y


def _scaled(x: Coefficient, factor: float) -> Coefficient:
    return None if x is None else x * factor


def _integral(value: Any, slope: Callable[[int], Coefficient], x: Series) -> Series:
    """y with y' = slope * x'; the slope may be made of y itself, of lower orders."""

    def higher(k: int) -> Coefficient:
        terms = [_scaled(_times(x(j), slope(k - j)), j / k) for j in range(1, k + 1)]
        return _sum(terms)

    return _series(value, higher)


def _plus(x: Callable, constant: float, factor: float = 1.0) -> Callable:
    """factor * x + constant."""
    return lambda k: x(0) * factor + constant if k == 0 else _scaled(x(k), factor)


def _of_itself(slope: Callable[[Series], Callable]) -> Callable:
    """The rule of a function whose derivative is made of its value: y' = slope(y) x'."""

    def rule(value: Any, x: Series) -> Series:
        made: list[Callable] = []

        def of_value(k: int) -> Coefficient:
            if not made:
                made.append(slope(y))
            return made[0](k)

        y = _integral(value, of_value, x)
        return y

    return rule


def _inverse(x: Callable, factor: float = 1.0) -> Callable:
    """factor / x."""
    first = Series(x(0), x)
    return _quotient(factor / x(0), Series(jnp.full_like(x(0), factor), None), first)


def _squared(x: Callable) -> Callable:
    return cache(_product(x, x))


def _of_argument(slope: Callable[[Series], Callable]) -> Callable:
    """The rule of a function whose derivative is made of its argument: y' = slope(x) x'."""
    return lambda value, x: _integral(value, slope(x), x)


def _waves(sign: float, second: Callable, turned: bool) -> Callable:
    """Of sin and cos (sign -1), sinh and cosh (1): each is the other's derivative, but for signs."""

    def rule(value: Any, x: Series) -> Series:
        own, others = (sign, 1.0) if turned else (1.0, sign)
        y = _integral(value, lambda k: _scaled(z(k), own), x)
        z = _integral(second(x.value), lambda k: _scaled(y(k), others), x)
        return y

    return rule


def _integer_power(value: Any, x: Series, n: int) -> Series:
    if n < 0:
        one = Series(jnp.ones_like(x.value), None)
        return _quotient(value, one, _integer_power(x.value**-n, x, -n))
    result, base = None, x
    while n:  # by squares, which has no division that a zero would spoil
        if n % 2:
            result = base if result is None else _multiplied(result, base)
        n //= 2
        base = _multiplied(base, base) if n else base
    return Series(value, result.higher if result is not None else None)


def _multiplied(a: Series, b: Series) -> Series:
    return _series(a.value * b.value, _product(a, b))


def _bell(x: Series) -> Callable:
    """2 / sqrt(pi) exp(-x^2), the derivative of erf."""
    square = _squared(x)
    inner = _series(-square(0), lambda k: _scaled(square(k), -1.0))
    outer = _of_itself(lambda y: y)(jnp.exp(inner.value), inner)
    return lambda k: _scaled(outer(k), 2.0 / math.sqrt(math.pi))


_RULES: dict[str, Callable[..., Series]] = {
    "div": _quotient,
    "abs": lambda value, x: _series(value, lambda k: _times(x(k), jnp.sign(x.value))),
    "square": lambda value, x: _series(value, _product(x, x)),
    "exp": _of_itself(lambda y: y),
    "expm1": _of_itself(lambda y: _plus(y, 1.0)),
    "tanh": _of_itself(lambda y: _plus(_squared(y), 1.0, -1.0)),
    "tan": _of_itself(lambda y: _plus(_squared(y), 1.0)),
    "sqrt": _of_itself(lambda y: _inverse(y, 0.5)),
    "rsqrt": _of_itself(lambda y: _plus(_product(y, _squared(y)), 0.0, -0.5)),
    "cbrt": _of_itself(lambda y: _inverse(_squared(y), 1.0 / 3.0)),
    "erf": _of_argument(_bell),
    "logistic": _of_itself(lambda y: cache(_product(y, _plus(y, 1.0, -1.0)))),
    "log": _of_argument(_inverse),
    "log1p": _of_argument(lambda x: _inverse(_plus(x, 1.0))),
    "atan": _of_argument(lambda x: _inverse(_plus(_squared(x), 1.0))),
    "atanh": _of_argument(lambda x: _inverse(_plus(_squared(x), 1.0, -1.0))),
    "sin": _waves(-1.0, jnp.cos, False),
    "cos": _waves(-1.0, jnp.sin, True),
    "sinh": _waves(1.0, jnp.cosh, False),
    "cosh": _waves(1.0, jnp.sinh, True),
}
