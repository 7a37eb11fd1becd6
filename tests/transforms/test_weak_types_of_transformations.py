"""Which results of transformations and loops are weakly typed: as JAX 0.10.2 has it."""

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy.special import ndtr

WEAK, STRONG = 1.5, jnp.float64(1.5)
ROW = jnp.arange(3.0)


def weak_row(n=3):
    return lax.broadcast(1.5, (n,))


def pulled(f):
    """What a function's own result pulls back to."""

    def g(x):
        out, pull = fnx.vjp(f, x)
        return pull(out)

    return g


def pushed(f):
    return lambda x: fnx.linearize(f, x)[1](x)


def sums(x):
    return lax.associative_scan(jnp.add, x)


def products(x):
    return lax.associative_scan(lambda a, b: a * b, x, reverse=True)


def doubling(c, _):
    return c * 2.0, c


def scanned(x):
    return lax.scan(doubling, x, None, length=3)


def set_first(x):
    return lax.dynamic_update_slice(ROW, lax.broadcast(x, (1,)), (0,))


def set_first_of_weak(x):
    return lax.dynamic_update_slice(weak_row(), lax.broadcast(x, (1,)), (0,))


def until_ten(x):
    return lax.while_loop(lambda c: c < 10, lambda c: c * 2, x)


def twice(x):
    return x * 2.0


def same(x):
    return x


def cube(x):
    return x**3


def tangent(f):
    return lambda x: fnx.jvp(f, (x,), (x,))


def pushed_too(f):
    def g(x):
        out, push = fnx.linearize(f, x)
        return out, push(x)

    return g


def pulled_too(f):
    def g(x):
        out, pull = fnx.vjp(f, x)
        return out, pull(out)

    return g


@fnx.custom_vjp
def sum_and_itself(x, y):
    return x + y, y


sum_and_itself.defvjp(
    lambda x, y: (sum_and_itself(x, y), None), lambda _, cts: (cts[0], cts[0] + cts[1])
)


# A function, its argument, and which of its results are weak.
CASES = [
    (sums, weak_row(), (False,)),
    (sums, ROW, (False,)),
    (pulled(sums), weak_row(3), (False,)),
    (pulled(sums), weak_row(4), (False,)),
    (pulled(products), weak_row(5), (False,)),
    (scanned, WEAK, (True, True)),
    (scanned, STRONG, (False, False)),
    (lambda x: lax.scan(lambda c, y: (c * y, c + 1), x, ROW), WEAK, (False, True)),
    (fnx.grad(lambda x: scanned(x)[0]), WEAK, (True,)),
    (fnx.grad(lambda x: scanned(x)[0]), STRONG, (False,)),
    (pulled(scanned), WEAK, (True,)),
    (pulled(scanned), STRONG, (False,)),
    (until_ten, WEAK, (True,)),
    (until_ten, STRONG, (False,)),
    (lambda x: lax.fori_loop(0, 3, lambda i, c: c * 2, x), WEAK, (True,)),
    (lambda x: fnx.jvp(until_ten, (x,), (x,)), WEAK, (True, True)),
    (lambda x: fnx.jvp(until_ten, (x,), (x,)), STRONG, (False, False)),
    (set_first, WEAK, (False,)),
    (set_first_of_weak, WEAK, (False,)),
    (fnx.jit(twice), WEAK, (True,)),
    (pushed(twice), WEAK, (True,)),
    (pushed(twice), STRONG, (False,)),
    (pulled(twice), WEAK, (True,)),
    (pulled(twice), STRONG, (False,)),
    (fnx.grad(twice), WEAK, (True,)),
    (fnx.grad(twice), STRONG, (False,)),
    (fnx.value_and_grad(jnp.sin), WEAK, (True, True)),
    (fnx.value_and_grad(jnp.sin), STRONG, (False, False)),
    # A number times a strong value is strong, and so are tangents and cotangents of it.
    (lambda x: fnx.linear_transpose(twice, x)(1.0), STRONG, (False,)),
    (lambda x: fnx.linear_transpose(twice, x)(1.0), WEAK, (True,)),
    (lambda x: fnx.linear_transpose(lambda x: x / 2, x)(1.0), STRONG, (False,)),
    (lambda x: fnx.vjp(twice, x)[1](1.0), STRONG, (False,)),
    (lambda x: fnx.vjp(lambda x: x / 2, x)[1](1.0), STRONG, (False,)),
    (lambda x: fnx.linearize(twice, x)[1](1.0), STRONG, (False,)),
    (lambda x: fnx.linear_transpose(lambda x: -x, x)(1.0), STRONG, (True,)),
    (lambda x: fnx.linear_transpose(lambda x: x + x, x)(1.0), STRONG, (True,)),
    # Numbers in derivatives are weak beside scalars, strong beside arrays; a power's are strong.
    *[
        (transformed(f), x, (True, weak))
        for transformed in (tangent, pushed_too, pulled_too)
        for f in (jnp.sqrt, jnp.square, jnp.tan, jnp.arcsin, jnp.cbrt, jnp.exp2, lax.erf, cube)
        for x, weak in ((WEAK, True), (weak_row(), False))
    ],
    *[
        (transformed(f), x, (True, False))
        for transformed in (tangent, pushed_too, pulled_too)
        for f in (lambda x: x**1.5, lambda x: jnp.power(x, weak_row()))
        for x in (WEAK, weak_row())
    ],
    (tangent(lambda x: 2.0**x), WEAK, (True, False)),
    (fnx.grad(lambda x: 2.0**x), WEAK, (True,)),
    # A weak value beside a strong one is made strong first, and so is its tangent.
    *[
        (transformed(f), WEAK, (False, weak))
        for transformed, weak in ((tangent, False), (pushed_too, False), (pulled_too, True))
        for f in (
            lambda x: x + STRONG,
            lambda x: ROW - x,
            lambda x: jnp.dot(x, ROW),
            lambda x: jnp.fmod(x, STRONG),
        )
    ],
    *[(fnx.jacfwd(f), x, (True,)) for f in (same, jnp.sqrt) for x in (WEAK, weak_row())],
    *[(fnx.jacrev(f), x, (True,)) for f in (same, jnp.sin) for x in (WEAK, weak_row())],
    (fnx.jacfwd(lambda x: x + STRONG), WEAK, (False,)),
    # Updates of weak arrays by weak values.
    *[
        (pulled_too(lambda x, kind=kind: getattr(x.at[0], kind)(2.0)), weak_row(), (True, True))
        for kind in ("set", "multiply", "min", "max", "add")
    ],
    *[
        (tangent(lambda x, kind=kind: getattr(weak_row().at[0], kind)(x)), WEAK, (True, True))
        for kind in ("set", "min", "max", "add")
    ],
    # Functions whose formulas have constants, and logarithms to a base.
    *[(f, WEAK, (True,)) for f in (jnp.deg2rad, jnp.sinc, lambda x: jnp.hypot(x, 1.0))],
    *[(f, weak_row(), (False,)) for f in (jnp.deg2rad, jnp.sinc, lambda x: jnp.hypot(x, 1.0))],
    *[(f, WEAK, (False,)) for f in (jnp.log2, jnp.log10, fnx.nn.gelu, ndtr)],
    (jnp.imag, weak_row(), (True,)),
    (lambda x: lax.convert_element_type(x, float), WEAK, (False,)),
    (tangent(jnp.sort), weak_row(), (True, True)),
    # What goes into a strong array is made strong first, and its cotangent weak again.
    (pulled(ROW.at[0].set), WEAK, (True,)),
    (pulled(ROW.at[0].add), WEAK, (True,)),
    (pulled(ROW.at[0].set), STRONG, (False,)),
    # Cotangents of results that nobody reads are zeros as weak as the results.
    (fnx.grad(lambda x: sum_and_itself(x, x)[0]), WEAK, (True,)),
    (fnx.grad(lambda x: sum_and_itself(x, x)[1]), WEAK, (True,)),
    (fnx.grad(lambda x: sum_and_itself(x, x)[0]), STRONG, (False,)),
    (fnx.grad(lambda x: sum_and_itself(STRONG, x)[1]), WEAK, (False,)),
]


@pytest.mark.parametrize("jit", [False, True])
@pytest.mark.parametrize(("f", "x", "expected"), CASES)
def test_which_results_are_weak(f, x, expected, jit):
    found = fnx.tree.leaves((fnx.jit(f) if jit else f)(x))
    assert tuple([leaf.weak_type for leaf in found]) == expected
    assert all([leaf.dtype == jnp.float64 for leaf in found])
