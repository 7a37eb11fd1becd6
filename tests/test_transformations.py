"""Transformations at their edges, eagerly and compiled: constants of rules, float0, complex inputs."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RUN = pytest.mark.parametrize("run", [lambda f: f, fnx.jit], ids=["eager", "jit"])
TABLE = jnp.arange(1.0, 4.0)


# --- rules that close over arrays ----------------------------------------------------------------


@fnx.custom_jvp
def scaled(x):
    return jnp.sin(x)


@scaled.defjvp
def _(primals, tangents):
    return scaled(*primals), tangents[0] * TABLE * jnp.array([1.0, 10.0, 100.0])


@fnx.custom_vjp
def clipped(x):
    return x * 2.0


clipped.defvjp(lambda x: (clipped(x), None), lambda _, ct: (jnp.clip(ct, -TABLE, TABLE),))


@RUN
@pytest.mark.parametrize("wrap", ["jit", "scan", "checkpoint", "cond"])
def test_rules_may_use_constant_arrays_wherever_the_function_was_traced(run, wrap):
    def inside(f):
        return {
            "jit": fnx.jit(f),
            "scan": lambda x: lax.scan(lambda c, _: (c + f(x), None), 0.0 * x, None, length=2)[0],
            "checkpoint": fnx.checkpoint(f),
            "cond": lambda x: lax.cond(x.sum() > 0, f, lambda y: y, x),
        }[wrap]

    times = 2.0 if wrap == "scan" else 1.0
    slope = times * np.array([1.0, 20.0, 300.0])
    f = lambda x: inside(scaled)(x).sum()
    np.testing.assert_allclose(run(fnx.grad(f))(jnp.ones(3)), slope)
    np.testing.assert_allclose(run(fnx.jacfwd(inside(scaled)))(jnp.ones(3)), np.diag(slope))
    lanes = run(fnx.vmap(fnx.grad(f)))(jnp.ones((2, 3)))
    np.testing.assert_allclose(lanes, [slope, slope])
    weights = jnp.array([0.5, 9.0, 9.0])
    g = run(fnx.grad(lambda x: (weights * inside(clipped)(x)).sum()))(jnp.ones(3))
    np.testing.assert_allclose(g, times * np.array([0.5, 2.0, 3.0]))


def test_a_rule_that_closes_over_a_traced_value_says_so():
    def f(a, x):
        @fnx.custom_jvp
        def g(y):
            return y

        g.defjvp(lambda p, t: (g(*p), a * t[0]))
        return lax.scan(lambda c, _: (g(c), None), x, None, length=2)[0]

    with pytest.raises(fnx.errors.UnexpectedTracerError, match="pass the value"):
        fnx.jit(fnx.grad(f, 1))(2.0, 3.0)


# --- complex inputs --------------------------------------------------------------------------------


@RUN
def test_grad_and_jacrev_of_real_functions_of_complex_numbers(run):
    z = 1.0 + 2.0j  # df/dx - i df/dy
    assert complex(run(fnx.grad(lambda z: jnp.abs(z) ** 2))(z)) == pytest.approx(2 - 4j)
    assert complex(run(fnx.grad(lambda z: (z * z).real))(z)) == pytest.approx(2 + 4j)
    value, g = run(fnx.value_and_grad(jnp.abs))(3.0 + 4.0j)
    assert float(value) == pytest.approx(5)
    assert complex(g) == pytest.approx(0.6 - 0.8j)
    a, b = run(fnx.grad(lambda p: p[0] * p[1].real))((2.0, z))
    assert float(a) == 1.0
    assert complex(b) == 2.0
    found = run(fnx.jacrev(lambda z: (z * z).real))(jnp.array([z, 2j]))
    np.testing.assert_allclose(found, np.diag([2 + 4j, 4j]))
    with pytest.raises(TypeError, match="real floating result"):
        fnx.grad(lambda z: z * z)(z)
    with pytest.raises(TypeError, match="jacfwd needs real inputs"):
        fnx.jacfwd(lambda z: z.real)(z)


# --- values without tangents -------------------------------------------------------------------------


def test_float0_goes_through_jit_as_argument_and_as_result():
    f = fnx.jit(fnx.grad(lambda x, i: x * i, argnums=(0, 1), allow_int=True))
    for _ in range(2):
        gx, gi = f(2.0, 3)
        assert float(gx) == 3.0
        assert gi.dtype == fnx.dtypes.float0
        assert gi.shape == ()
    _, pull = fnx.vjp(lambda x, i: (x * i, i), 2.0, jnp.arange(3))
    ct = (jnp.ones(3), np.zeros(3, fnx.dtypes.float0))
    for _ in range(2):
        gx, gi = fnx.jit(pull)(ct)
        assert float(gx) == 3.0
        assert gi.dtype == fnx.dtypes.float0
        assert gi.shape == (3,)
    compiled = fnx.jit(pull).lower(ct).compile()
    assert compiled(ct)[1].dtype == compiled.out_info[1].dtype == fnx.dtypes.float0
    nothing = jnp.zeros((2,), fnx.dtypes.float0)
    assert nothing.shape == (2,)
    assert nothing.dtype == fnx.dtypes.float0
    with pytest.raises(TypeError, match="float0"):
        nothing + 1.0


# --- linear functions that are values -----------------------------------------------------------------


def test_linear_functions_leave_and_enter_jit():
    assert float(fnx.jit(lambda x: fnx.linearize(jnp.sin, x)[1])(1.0)(2.0)) == pytest.approx(
        2 * np.cos(1.0)
    )
    push = fnx.linearize(lambda x, y: (x * y, x), 3.0, 4.0)[1]
    out = fnx.jit(lambda f, x, y: f(x, y))(push, 1.0, 10.0)
    assert [float(v) for v in out] == [34.0, 1.0]
    transposed = fnx.jit(lambda a: fnx.linear_transpose(lambda y: a * y, 1.0))(3.0)
    assert float(transposed(2.0)[0]) == 6.0
    (g,) = fnx.linear_transpose(lambda x: 2 * x, 1)(3)
    assert int(g) == 6
    assert g.dtype == np.int64


# --- powers ------------------------------------------------------------------------------------------


@RUN
def test_derivatives_of_powers_at_zero(run):
    exponents = jnp.array([0, 1, 2])
    assert float(run(fnx.grad(lambda x: (x**exponents).sum()))(0.0)) == 1.0
    assert float(run(fnx.grad(lambda x, n: x**n))(0.0, 0)) == 0.0
    assert float(run(fnx.grad(lambda x, y: x**y))(0.0, 0.0)) == 0.0
    second = run(fnx.jacfwd(fnx.jacrev(lax.pow, (0, 1)), (0, 1)))(4.0, 0.0)
    expected = ((0.0, 0.25), (0.25, np.log(4.0) ** 2))
    np.testing.assert_allclose(np.array(second, float), expected, atol=1e-15)


# --- lanes that take different branches ------------------------------------------------------------------


@RUN
def test_the_branch_not_taken_leaves_no_nan_in_gradients(run):
    def safe(x, scale):
        return lax.cond(x < 1e-3, lambda: 1e-3 * scale, lambda: scale * jnp.sqrt(x))

    f = lambda x, scale: fnx.vmap(safe, (0, None))(x, scale).sum()
    gx, gs = run(fnx.grad(f, (0, 1)))(jnp.array([0.0, 4.0, 0.0]), 2.0)
    np.testing.assert_allclose(gx, [0.0, 0.5, 0.0])
    assert float(gs) == pytest.approx(2.002)
    root = lambda k, x: lax.switch(k, [jnp.sqrt, lambda y: y * y, jnp.log], x)
    g = run(fnx.grad(lambda x: fnx.vmap(root)(jnp.array([-1, 1, 7]), x).sum()))(
        jnp.array([4.0, 0.0, 2.0])
    )
    np.testing.assert_allclose(g, [0.25, 0.0, 0.5])


# --- operands of fnx.lax --------------------------------------------------------------------------------


@RUN
def test_axes_of_size_one_are_repeated(run):
    a, b = np.arange(3.0).reshape(3, 1), np.arange(1.0, 5.0).reshape(1, 4)
    np.testing.assert_array_equal(run(lax.add)(a, b), a + b)
    np.testing.assert_array_equal(run(lax.lt)(a, b), a < b)
    np.testing.assert_allclose(run(lax.pow)(a, b), a**b)
    np.testing.assert_allclose(run(fnx.grad(lambda x: lax.mul(x, b).sum()))(a), np.full((3, 1), 10))
    assert run(lax.betainc)(np.ones((3, 1)), b, 0.5).shape == (3, 4)
    for wrong in (lambda: lax.add(a, np.ones(4)), lambda: lax.add(np.ones((3, 2)), b)):
        with pytest.raises(TypeError):
            run(wrong)()
    with pytest.raises(TypeError):
        run(lax.clamp)(a, np.ones((3, 4)), b)


def test_conv_transpose_by_the_padding_of_the_convolution():
    x, w = np.random.default_rng(0).normal(size=(2, 5, 3)), np.ones((4, 3, 2))
    found = lax.conv_transpose(x, w, (2,), [(1, 1)], use_consistent_padding=True)
    same = lax.conv_transpose(x, w, (2,), [(2, 2)])
    np.testing.assert_allclose(found, same)
    assert found.shape == (2, 10, 2)  # 2 (5 - 1) + 4 - 1 - 1


# --- two rules ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [fnx.custom_jvp, fnx.custom_vjp])
@pytest.mark.parametrize("wrap", [fnx.jit, fnx.checkpoint, lambda f: fnx.jit(fnx.vmap(f))])
def test_functions_with_rules_are_not_taken_for_one_another(kind, wrap):
    def ruled(f, slope):
        made = kind(f)
        if kind is fnx.custom_jvp:
            made.defjvp(lambda p, t: (made(*p), t[0] * slope))
        else:
            made.defvjp(lambda x: (made(x), None), lambda _, ct: (ct * slope,))
        return made

    f, g = ruled(jnp.sin, 10.0), ruled(jnp.cos, 100.0)
    both = wrap(lambda x: f(x) + g(x))
    x = jnp.ones(2)
    np.testing.assert_allclose(both(x), np.sin(x) + np.cos(x))
    np.testing.assert_allclose(fnx.grad(lambda x: both(x).sum())(x), [110.0, 110.0])
    np.testing.assert_allclose(fnx.jit(fnx.grad(lambda x: both(x).sum()))(x), [110.0, 110.0])
    loop = lambda x: lax.scan(lambda c, _: (f(c) + g(c), None), x, None, length=2)[0]
    assert float(fnx.grad(loop)(1.0)) == pytest.approx(110.0**2)
