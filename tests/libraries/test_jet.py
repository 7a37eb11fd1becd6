"""jet: derivatives along curves, against polynomials that are known and jvp within jvp."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
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
