"""jet: derivatives along curves, against polynomials that are known and jvp within jvp."""

import math

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.experimental.jet import jet

CURVE = np.array([0.3, -1.2, 0.7, 2.0])  # a value and its first three derivatives


def test_polynomial_of_a_polynomial():
    x, *terms = CURVE
    path = np.polynomial.Polynomial(CURVE / [1, 1, 2, 6])
    expected = 2 * path**3 - path
    y, derivatives = jet(lambda x: 2 * x**3 - x, (x,), (terms,))
    np.testing.assert_allclose(y, expected(0.0), rtol=1e-14)
    wanted = [expected.deriv(k)(0.0) for k in (1, 2, 3)]
    np.testing.assert_allclose(np.array(derivatives), wanted, rtol=1e-13)
    coefficients = path.coef[1:]
    _, found = jet(lambda x: 2 * x**3 - x, (x,), (coefficients,), factorial_scaled=False)
    np.testing.assert_allclose(np.array(found), expected.coef[1:4], rtol=1e-13)


def test_trees_of_results_and_several_arguments():
    def f(x, y):
        return {"a": jnp.sin(x * y), "b": (x @ y,)}

    x, y, dx, dy = np.random.default_rng(0).normal(size=(4, 5))
    value, series = jet(f, (x, y), [(dx, np.zeros(5)), (dy, np.zeros(5))])

    def first(t):
        return fnx.jvp(lambda t: f(x + t * dx, y + t * dy), (t,), (1.0,))[1]

    second = fnx.jvp(first, (0.0,), (1.0,))[1]
    np.testing.assert_allclose(value["a"], np.sin(x * y), rtol=1e-14)
    for k, expected in enumerate((first(0.0), second)):
        np.testing.assert_allclose(series["a"][k], expected["a"], rtol=1e-12)
        np.testing.assert_allclose(series["b"][0][k], expected["b"][0], rtol=1e-12)


def test_within_other_transformations():
    def third(x):
        return jet(jnp.sin, (x,), [[1.0, 0.0, 0.0]])[1][2]

    xs = np.linspace(-1.0, 1.0, 4)
    np.testing.assert_allclose(fnx.jit(fnx.vmap(third))(xs), -np.cos(xs), rtol=1e-14)
    np.testing.assert_allclose(fnx.grad(third)(0.3), np.sin(0.3), rtol=1e-14)
    value, (slope,) = jet(jnp.exp, (np.float32(0.5),), [[np.float32(1.0)]])
    assert value.dtype == slope.dtype == np.float32
    assert jet(jnp.sin, (0.5,), [[]])[1] == []


@pytest.mark.parametrize("series", [[[1.0]], [[1.0], [1.0, 0.0]]])
def test_series_that_do_not_fit(series):
    with pytest.raises(ValueError, match="one series for each primal, all equally long"):
        jet(jnp.multiply, (1.0, 2.0), series)


PATH = np.array([0.6, 0.5, -0.3, 0.2])  # a value and its first three derivatives
OTHER = np.array([1.4, -0.2, 0.8, -0.5])
# Functions of one or two numbers, and the first three derivatives along PATH (and OTHER).
RULES = {
    "acosh": (lambda x, y: jnp.arccosh(y), None), "asinh": (lambda x, y: jnp.arcsinh(x), None),
    "atanh": (lambda x, y: jnp.arctanh(x), None), "atan2": (jnp.arctan2, None),
    "cosh": (lambda x, y: jnp.cosh(x), None), "div": (jnp.divide, None),
    "erf": (lambda x, y: fnx.lax.erf(x), None), "erf_inv": (lambda x, y: fnx.lax.erf_inv(x), None),
    "erfc": (lambda x, y: fnx.lax.erfc(x), None), "exp": (lambda x, y: jnp.exp(x), None),
    "expm1": (lambda x, y: jnp.expm1(x), None), "log": (lambda x, y: jnp.log(x), None),
    "log1p": (lambda x, y: jnp.log1p(x), None), "logistic": (lambda x, y: fnx.nn.sigmoid(x), None),
    "mul": (jnp.multiply, None), "pow": (jnp.power, None), "rsqrt": (lambda x, y: fnx.lax.rsqrt(x), None),
    "sin": (lambda x, y: jnp.sin(x), None), "sqrt": (lambda x, y: jnp.sqrt(x), None),
    "tanh": (lambda x, y: jnp.tanh(x), None), "max": (jnp.maximum, OTHER[1:]),
    "abs": (lambda x, y: jnp.abs(-x), PATH[1:]), "floor": (lambda x, y: jnp.floor(x), np.zeros(3)),
    "sign": (lambda x, y: jnp.sign(x), np.zeros(3)), "rem": (lambda x, y: jnp.fmod(y, 1.0), OTHER[1:]),
    "select": (lambda x, y: jnp.where(x > y, x, y), OTHER[1:]),
    "eq": (lambda x, y: x == y, np.zeros(3)), "to int": (lambda x, y: x.astype(int), np.zeros(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
def test_rules_of_elementwise_functions(name):
    """Against differences of the function along the curve, where the derivatives are not known."""
    f, expected = RULES[name]
    _, found = jet(f, (PATH[0], OTHER[0]), [PATH[1:], OTHER[1:]])
    if expected is None:
        h, steps = 1e-2, np.arange(-4, 5)
        curve = lambda c, t: sum(v * t**k / max(1, k * (k - 1)) for k, v in enumerate(c))
        values = [float(f(curve(PATH, h * s), curve(OTHER, h * s))) for s in steps]
        fit = np.polynomial.polynomial.polyfit(steps * h, values, 8)
        expected = fit[1:4] * [1, 2, 6]
    np.testing.assert_allclose(np.array(found), expected, rtol=2e-6, atol=1e-6)


def along_by_jvp(fun, x, series):
    """The derivatives of `fun` along a curve, by forward mode within itself."""

    def curve(t):
        return sum((d * t**k / math.factorial(k) for k, d in enumerate(series, 1)), x)

    def derivative(f):
        return lambda t: fnx.jvp(f, (t,), (1.0,))[1]

    f = lambda t: fun(curve(t))
    found = []
    for _ in series:
        f = derivative(f)
        found.append(f(0.0))
    return found


PROGRAMS = {
    "exp": jnp.exp,
    "expm1": jnp.expm1,
    "logarithms": lambda x: jnp.log(x) * jnp.log1p(x),
    "tan, tanh": lambda x: jnp.tan(x / 2) + jnp.tanh(x),
    "logistic": fnx.nn.sigmoid,
    "inverse tangents": lambda x: jnp.arctan(x) + jnp.arctanh(x / 3),
    "waves": lambda x: jnp.sin(x) * jnp.cos(2 * x) + jnp.sinh(x) - jnp.cosh(x) / 2,
    "roots": lambda x: jnp.sqrt(x) + lax.rsqrt(x) * jnp.cbrt(x),
    "erf": lax.erf,
    "powers": lambda x: (x - x[0]) ** 3 + x**-2 + jnp.square(x) + x**2.5 + x**0,
    "quotients": lambda x: jnp.sin(x) / x + 2 / x + x / 3,
    "abs, maximum": lambda x: jnp.abs(x - 1) * jnp.maximum(x, 1.0),
    "products": lambda x: jnp.outer(x, x) @ jnp.sin(x),
    "convolution": lambda x: jnp.convolve(x, x),
    "structure": lambda x: jnp.pad(jnp.concatenate([x[1:], x * x])[::-1], 1, constant_values=2.0),
    "indices": lambda x: x.at[jnp.array([0, 1])].add(x[jnp.array([2, 2])] * 2).at[0].set(3.0),
    "choices": lambda x: jnp.where(x > 1, x * x, jnp.sin(x)) + jnp.floor(x) * x,
    "reductions": lambda x: jnp.cumsum(x * x) * x.max() * jnp.prod(x) + fnx.nn.softmax(x),
    "complex": lambda x: (lax.complex(x, x * x) ** 3).imag,
    "loop": lambda x: lax.scan(lambda c, v: (c * v + jnp.sin(c), c), 1.0, x)[1],
    "branch, jit": lambda x: lax.cond(x[0] > 0, jnp.sin, jnp.cos, fnx.jit(jnp.square)(x)),
    "matrices": lambda x: jnp.linalg.slogdet(jnp.outer(x, x) + jnp.eye(3))[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_series_of_programs(name):
    x = jnp.array([0.7, 1.3, 0.9])
    series = list(np.random.default_rng(1).normal(size=(3, 3)))
    value, found = jet(PROGRAMS[name], (x,), [series])
    np.testing.assert_allclose(value, PROGRAMS[name](x), rtol=1e-14)
    for d, expected in zip(found, along_by_jvp(PROGRAMS[name], x, series), strict=True):
        np.testing.assert_allclose(d, expected, rtol=1e-9, atol=1e-10)


def test_high_orders_are_no_more_work_than_their_square():
    weights = np.random.default_rng(0).normal(size=(4, 4)) / 2
    net = lambda x: jnp.sum(jnp.tanh(weights @ jnp.tanh(weights @ x)))
    of_order = lambda n: fnx.make_jaxpr(lambda x: jet(net, (x,), [[x] * n]))(np.ones(4))
    equations = [len(of_order(n).jaxpr.eqns) for n in (4, 8)]
    assert equations[1] < 4.5 * equations[0]
    y, derivatives = jet(jnp.exp, (0.0,), [[1.0] + [0.0] * 11])
    np.testing.assert_allclose(np.array(derivatives), np.ones(12), rtol=1e-12)
    whole, of_none = jet(lambda x: (jnp.arange(2), x.astype(int)), (1.5,), [[1.0, 0.0]])
    assert [d.tolist() for d in of_none[0]] == [[0.0, 0.0]] * 2
    assert whole[1] == 1
    assert [float(d) for d in of_none[1]] == [0.0, 0.0]
    assert y == 1.0
