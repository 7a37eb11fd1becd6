"""Mistakes as simulations make them, wherever a program can: the line, iteration and member are named."""

import inspect

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy import special, stats

MISTAKES = {}


def mistake(bad, good, slope=False, infinite=False):
    """A function that is wrong at `bad`, or whose slope is, and right at `good`."""

    def register(f):
        MISTAKES[f.__name__] = f, bad, good, slope, fnx.debug_infs if infinite else fnx.debug_nans
        return f

    return register


@mistake(2.0, 3.0)
def harmless_with_itself(x):
    p = jnp.array([0.0, 2.0]).at[0].set(x)
    d = p[:, None] - p[None, :]
    r = jnp.abs(d)
    v = d / r  # here
    return jnp.sum(jnp.where(jnp.eye(2) > 0, 0.0, v))


@mistake(2.0, 0.5)
def lorentz(x):
    v = x
    gamma = 1.0 / jnp.sqrt(1.0 - v**2)  # here
    return gamma * v


@mistake(-1.0, 1.0)
def sound_speed(x):
    p, rho = x, 1.2
    c = jnp.sqrt(1.4 * p / rho)  # here
    return c + 1.0


@mistake(800.0, 1.0)
def softmax_naive(x):
    e = jnp.exp(jnp.array([1.0, 2.0]) * x)
    p = e / e.sum()  # here
    return p[0]


@mistake(0.0, 1.0)
def unit_vector(x):
    v = jnp.array([1.0, 2.0]) * x
    n = v / jnp.linalg.norm(v)  # here
    return n[0]


@mistake(1.0, 0.3)
def legendre_angle(x):
    z = x + 0.5
    th = jnp.arccos(z)  # here
    return jnp.cos(2 * th)


@mistake(0.0, 1.0)
def entropy(x):
    p = jnp.array([1.0, 0.5]) * x
    return -jnp.sum(p * jnp.log(p))  # here


@mistake(-3.0, 1.0)
def cholesky_indefinite(x):
    K = jnp.array([[1.0, 0.5], [0.5, 1.0]]) + x * jnp.eye(2)
    L = jnp.linalg.cholesky(K)  # here
    return L[0, 0]


@mistake(0.0, 1.0, infinite=True)
def cfl(x):
    u = jnp.array([0.0, 0.0]) + x
    return 0.1 / jnp.max(jnp.abs(u))  # here


@mistake(-2.0, 1.0)
def stefan_root(x):
    T4 = x * 1e8
    return (T4 / 5.67e-8) ** 0.25  # here


@mistake(-5.0, 1.0)
def manning(x):
    h = x + 1.0
    return h ** (5.0 / 3.0)  # here


@mistake(3.0, 0.5)
def logit(x):
    p = x
    return jnp.log(p / (1 - p))  # here


@mistake(1e200, 1.0, infinite=True)
def square_overflow(x):
    e = 0.5 * x**2  # here
    return jnp.sqrt(e)


@mistake(5.0, 0.5)
def kepler(x):
    def f(E):
        return E - x * jnp.sin(E) - 1.0

    E = 1.0
    return 2 * jnp.arctan(jnp.sqrt((1 + x) / (1 - x)) * jnp.tan(E / 2))  # here


@mistake(-1.0, 2.0)
def gamma_function(x):
    return special.gamma(x) * 2  # here


@mistake(0.0, 1.0)
def normalise_rows(x):
    A = jnp.ones((2, 3)) * x
    B = A / jnp.sum(A, axis=1, keepdims=True)  # here
    return B[0, 0]


@mistake(0.0, 2.0)
def harmless_before(x):
    y = jnp.array([-1.0, 2.0])
    a = jnp.where(y > 0, jnp.log(y), 0.0)
    b = jnp.log(x - 1.0)  # here
    return a.sum() + b


@mistake(0.0, 2.0)
def harmless_pdf_before(x):
    a = stats.beta.pdf(-x - 1.0, 2.0, 1.0)
    b = jnp.sqrt(x - 1.0)  # here
    return a + b


@mistake(-3.0, 1.0)
def interp_then_sqrt(x):
    h = jnp.interp(0.5, jnp.array([0.0, 1.0]), jnp.array([x, x]))
    return jnp.sqrt(h)  # here


@mistake(0.0, 1.0)
def mod_zero(x):
    return jnp.mod(3.0, x)  # here


@mistake(0.0, 1.0)
def weighted(x):
    w = jnp.zeros(3) + x
    return jnp.average(jnp.arange(3.0), weights=w)  # here


@mistake(-1.0, 1.0)
def complex_forgot(x):
    disc = x
    return (-1.0 + jnp.sqrt(disc)) / 2  # here


@mistake(0.0, 1.0)
def correlation(x):
    a = jnp.array([1.0, 2.0, 3.0]) * x
    return jnp.corrcoef(a, jnp.array([1.0, 0.0, 2.0]))[0, 1]  # here


@mistake(0.0, 1.0)
def eig_slope_like(x):
    A = jnp.eye(2) * x
    return jnp.sum(jnp.linalg.inv(A) * 0)  # here


@mistake(2.0, 0.5)
def atanh(x):
    return jnp.arctanh(x) * 3  # here


@mistake(-1.0, 1.0)
def poly_log(x):
    c = jnp.array([x, 1.0])
    return jnp.polyval(jnp.log(c), 2.0)  # here


@mistake(-1.0, 1.0)
def einsum_after(x):
    A = jnp.sqrt(jnp.ones((2, 2)) * x)  # here
    return jnp.einsum("ij,jk->", A, A)


@mistake(0.0, 1.0, slope=True)
def norm_slope(x):
    v = jnp.array([1.0, 2.0]) * x
    return jnp.linalg.norm(v)  # here


@mistake(0.0, 1.0, slope=True)
def dist_slope(x):
    p = jnp.stack([x, jnp.zeros(())])
    d2 = jnp.sum((p - 0.0) ** 2)
    return jnp.sqrt(d2)  # here


@mistake(0.0, 1.0, slope=True)
def where_div(x):
    return jnp.where(x == 0, 0.0, 1.0 / x)  # here


@mistake(0.0, 1.0, slope=True)
def where_pow(x):
    return jnp.where(x > 0, x**0.5, 0.0)  # here


@mistake(0.0, 1.0, slope=True)
def atan2_slope(x):
    return jnp.arctan2(x, x)  # here


@mistake(0.0, 1.0, slope=True)
def xlogx(x):
    return jnp.where(x > 0, x * jnp.log(x), 0.0)  # here


def by_scan(f, good):
    return lambda x: lax.scan(
        lambda c, y: (c + f(y), None), 0.0, jnp.stack([x * 0 + good, x * 0 + good, x])
    )[0]


def by_while(f, good):
    return lambda x: lax.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] + f(x)), (0, 0.0)
    )[1]


def by_fori(f, good):
    return lambda x: lax.fori_loop(0, 3, lambda i, c: c + f(jnp.where(i == 2, x, good)), 0.0)


def by_cond(f, good):
    return lambda x: lax.cond(x == x, f, lambda x: 0.0 * x, x)


def by_vmap(f, good):
    return lambda x: jnp.sum(fnx.vmap(f)(jnp.stack([x * 0 + good, x])))


def by_rule(f, good):
    g = fnx.custom_vjp(f)
    g.defvjp(lambda x: (f(x), None), lambda _, ct: (ct,))
    return g


PLACES = {
    "alone": lambda f, good: f,
    "scan": by_scan,
    "while": by_while,
    "fori": by_fori,
    "cond": by_cond,
    "vmap": by_vmap,
    "custom rule": by_rule,
    "checkpoint": lambda f, good: fnx.checkpoint(f),
}
IN = {
    "scan": "in iteration 2 of scan",
    "fori": "in iteration 2 of fori_loop",
    "vmap": "in member 1 of vmap",
}


WAYS = {
    "jit": fnx.jit,
    "eager": lambda f: f,
    "jit of grad": lambda f: fnx.jit(fnx.grad(f)),
    "grad": fnx.grad,
}


def ways(place, name):
    """How a function is called: what is wrong in its slope alone, or is chosen against, is left out."""
    slope, chosen = MISTAKES[name][3], name.startswith("harmless")
    compiled = place in ("scan", "while", "fori", "cond", "checkpoint")
    values = [] if slope else ["jit"] if chosen and not compiled else ["jit", "eager"]
    none = place == "while" or chosen or (slope and place == "custom rule")
    return values + ([] if none else ["jit of grad", "grad"])


def here(f):
    lines, start = inspect.getsourcelines(f)
    (at,) = [k for k, line in enumerate(lines) if "# here" in line]
    return f"{__file__}:{start + at} ({f.__name__})"


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("place", PLACES)
def test_the_line_that_is_wrong(place, name):
    f, bad, good, _slope, setting = MISTAKES[name]
    placed = PLACES[place](f, good)
    for way in ways(place, name):
        g = WAYS[way](placed)
        with setting(False):
            value = g(jnp.asarray(bad))
            wrong = np.isnan(value) or (setting is fnx.debug_infs and np.isinf(value))
        with setting():
            g(jnp.asarray(good))
            if not wrong and way != "eager":
                continue  # a slope that is right where the value is not
            with pytest.raises(FloatingPointError) as error:
                g(jnp.asarray(bad))
        text = str(error.value).replace("the reverse sweep of ", "")
        assert here(f) in text
        assert "jit" not in way or IN.get(place, "") in text
