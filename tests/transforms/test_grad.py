"""grad, jvp, vjp, Jacobians and their kin: pytrees, aux, holomorphic functions, errors."""

from collections import namedtuple

import numpy as np
import pytest
from trees import equal

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.test_util import check_grads


def test_value_and_grad_of_pytrees_with_aux():
    Params = namedtuple("Params", "w b")

    def loss(params, x, scale=1.0):
        y = scale * (params.w @ x + params.b["bias"])
        return jnp.sum(y**2), {"y": y, "text": "kept"}

    params = Params(jnp.arange(4.0).reshape(2, 2), {"bias": jnp.ones(2)})
    (value, aux), grads = fnx.value_and_grad(loss, has_aux=True)(params, jnp.ones(2), scale=2.0)
    assert isinstance(grads, Params)
    assert aux["text"] == "kept"
    equal(aux["y"], [4.0, 12.0])
    assert float(value) == 160.0
    equal(grads.b["bias"], [16.0, 48.0])
    equal(grads.w, [[16.0, 16.0], [48.0, 48.0]])
    only, aux = fnx.grad(loss, has_aux=True)(params, jnp.ones(2), scale=2.0)
    equal(only, grads)
    assert float(aux["y"][0]) == 4.0  # usable after the transformation


@pytest.mark.parametrize(("argnums", "expected"), [
    (0, 3.0), (1, 2.0), ((0, 1), (3.0, 2.0)), ((1,), (2.0,)), (-1, 2.0), ([1, 0], (2.0, 3.0)),
])  # fmt: skip
def test_argnums(argnums, expected):
    found = fnx.grad(lambda x, y: x * y, argnums)(2.0, 3.0)
    assert type(found) is type(expected) or isinstance(found, fnx.Array)
    equal(found, expected)


def weak_types(tree):
    return [jnp.asarray(x).weak_type for x in fnx.tree_util.tree_leaves(tree)]


@pytest.mark.parametrize(
    ("derivative", "weak"),
    [
        (lambda: fnx.grad(jnp.sin)(0.5), [True]),
        (lambda: fnx.grad(lambda x: x)(0.5), [True]),
        (lambda: fnx.grad(lambda x: x * jnp.ones(()))(0.5), [True]),
        (lambda: fnx.grad(lambda x: x * jnp.float32(2))(0.5), [True]),
        (lambda: fnx.grad(lambda x: 3.0)(0.5), [True]),
        (lambda: fnx.grad(lambda x: x * 2.0)(jnp.ones(())), [False]),
        (lambda: fnx.grad(lambda p: p[0] * p[1])((0.5, jnp.ones(()))), [True, False]),
        (lambda: fnx.jit(fnx.grad(jnp.sin))(0.5), [True]),
        (lambda: fnx.grad(fnx.checkpoint(jnp.sin))(0.5), [True]),
        (lambda: fnx.vmap(fnx.grad(lambda x: x * x))(jnp.arange(3) * 0.5), [True]),
        (lambda: fnx.grad(lambda x: jnp.sum(x * x))(jnp.arange(3) * 0.5), [True]),
        (lambda: fnx.grad(lambda x: jnp.sum(x[0] * 2))(jnp.arange(3) * 0.5), [False]),
        (lambda: fnx.linearize(lambda x: x, 0.5)[1](1.0), [True]),
        (lambda: fnx.linearize(jnp.sin, 0.5)[1](jnp.ones(())), [False]),
        (lambda: fnx.linearize(jnp.sin, jnp.ones(()))[1](1.0), [False]),
        (lambda: fnx.vjp(lambda x: x, 0.5)[1](1.0), [True]),
        (lambda: fnx.vjp(jnp.sin, 0.5)[1](jnp.ones(())), [False]),
        (lambda: fnx.jvp(jnp.sin, (0.5,), (1.0,)), [True, True]),
        (lambda: fnx.jvp(lambda x: x * 2, (jnp.ones(()),), (1.0,)), [False, False]),
        (lambda: fnx.jvp(lambda x: x, (0.5,), (jnp.ones(()),)), [True, False]),
        (lambda: fnx.jacfwd(lambda x: x * 2)(0.5), [True]),
        (lambda: fnx.jacrev(lambda x: x * jnp.ones(3))(0.5), [True]),
        (lambda: fnx.jacrev(lambda x: x)(jnp.ones(())), [False]),
        (lambda: fnx.hessian(lambda x: x * x)(0.5), [True]),
        (lambda: fnx.linear_transpose(lambda x: x * 2, 0.5)(1.0), [True]),
        (lambda: fnx.linear_transpose(lambda x: x * 2, 0.5)(jnp.ones(())), [False]),
    ],
)
def test_weak_types_of_derivatives_are_those_of_jax(derivative, weak):
    assert weak_types(derivative()) == weak


def test_grad_keeps_dtypes():
    for dtype in ("float32", "float64", "float16", "bfloat16"):
        g = fnx.grad(lambda x: jnp.sum(x * 2.0))(jnp.ones(3, dtype))
        assert g.dtype == jnp.ones(1, dtype).dtype


def test_grad_with_integer_arguments_allowed():
    g = fnx.grad(lambda p: p["x"] * p["n"], allow_int=True)({"x": 2.0, "n": 3})
    assert float(g["x"]) == 3.0
    assert g["n"].dtype == fnx.dtypes.float0


def test_holomorphic_and_complex_derivatives():
    z = 1.0 + 2.0j
    assert complex(fnx.grad(lambda z: z**2, holomorphic=True)(z)) == pytest.approx(2 * z)
    # For a real function of a complex number, JAX's convention: df/dx - i df/dy.
    _, pull = fnx.vjp(lambda z: jnp.abs(z) ** 2, z)
    assert complex(pull(1.0)[0]) == pytest.approx(2 * np.conj(z))
    size = lambda z: jnp.sum(jnp.abs(z) ** 2)
    zs = jnp.array([z, -1j])
    slope = 2 * np.conj(np.asarray(zs))
    np.testing.assert_allclose(fnx.jit(fnx.grad(size))(zs), slope)
    np.testing.assert_allclose(fnx.jacrev(lambda z: jnp.abs(z) ** 2)(zs), np.diag(slope))
    _, pull = fnx.vjp(lambda x: jnp.exp(1j * x), 0.3)
    assert pull(1.0 + 0.0j)[0].dtype == np.float64


def test_the_slope_of_a_magnitude_is_a_factor():
    """One of both signs at 0, and one choice in the transpose, not two and a difference."""
    x = np.array([-2.0, -0.0, 0.0, 3.0])
    pull = lambda x, ct: fnx.vjp(jnp.abs, x)[1](ct)[0]
    assert pull(x, x).tolist() == [2.0, 0.0, 0.0, 3.0]
    assert fnx.grad(lambda x: jnp.abs(x).sum())(x).tolist() == [-1.0, 1.0, 1.0, 1.0]
    made = [e.prim.name for e in fnx.make_jaxpr(pull)(x, x).eqns]
    assert made.count("select_n") == made.count("mul") == 1
    assert fnx.jvp(jnp.abs, (0.5,), (1.0,))[1].weak_type
    assert fnx.grad(jnp.abs)(0.5).weak_type
    assert not fnx.grad(jnp.abs)(np.float32(0.5)).weak_type


def test_vjp_and_jvp_agree_with_linearize_and_linear_transpose():
    f = lambda x, y: {"a": jnp.sin(x) * y, "b": jnp.sum(x)}
    x, y = jnp.arange(3.0), jnp.asarray(2.0)
    out, pull = fnx.vjp(f, x, y)
    tangents = (jnp.ones(3), jnp.asarray(0.5))
    _, moved = fnx.jvp(f, (x, y), tangents)
    out2, push = fnx.linearize(f, x, y)
    equal(push(*tangents), moved)
    equal(out, out2)
    ct = {"a": jnp.array([1.0, 2.0, 3.0]), "b": jnp.asarray(4.0)}
    equal(fnx.linear_transpose(push, x, y)(ct), pull(ct))
    left = sum(float(jnp.sum(a * b)) for a, b in zip(pull(ct), tangents, strict=True))
    right = float(jnp.sum(ct["a"] * moved["a"]) + ct["b"] * moved["b"])
    assert left == pytest.approx(right)


def test_vjp_with_aux_and_integer_arguments():
    out, pull, aux = fnx.vjp(lambda x, n: (x * n, n + 1), 3.0, 4, has_aux=True)
    assert (float(out), int(aux)) == (12.0, 5)
    gx, gn = pull(2.0)
    assert float(gx) == 8.0
    assert gn.dtype == fnx.dtypes.float0


def test_jvp_with_integers_and_aux():
    zero = np.zeros((), fnx.dtypes.float0)
    y, dy, aux = fnx.jvp(lambda x, n: (x * n, x + n), (3.0, 4), (1.0, zero), has_aux=True)
    assert (float(y), float(dy), float(aux)) == (12.0, 4.0, 7.0)


@pytest.mark.parametrize("jitted", [True, False])
def test_forward_and_backward_as_two_functions(jitted):
    f = lambda x, w: (jnp.sin(x @ w), x)
    forward, backward = fnx.fwd_and_bwd(f, argnums=(0, 1), has_aux=True, jitted=jitted)
    x, w = jnp.arange(6.0).reshape(2, 3), jnp.ones((3, 3))
    for scale in (1.0, 2.0):
        y, residuals, aux = forward(x, scale * w)
        expected, pull = fnx.vjp(lambda x, w: f(x, w)[0], x, scale * w)
        np.testing.assert_allclose(y, expected, rtol=1e-14)
        np.testing.assert_array_equal(aux, x)
        for a, b in zip(backward(residuals, y), pull(y), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-14)
    assert fnx.fwd_and_bwd(jnp.sin, 0)[1](fnx.vjp(jnp.sin, 0.0)[1], 2.0) == 2.0


def test_pull_functions_can_be_used_often_and_in_lanes():
    _, pull = fnx.vjp(lambda x: x**3, jnp.arange(3.0))
    rows = fnx.vmap(pull)(jnp.eye(3))[0]
    equal(rows, np.diag([0.0, 3.0, 12.0]))
    equal(pull(jnp.ones(3))[0], [0.0, 3.0, 12.0])


def test_a_pull_function_can_leave_jit():
    def f(p, n):
        return jnp.sum(jnp.tanh(p["w"] * p["b"])) * n

    p = {"w": jnp.arange(3.0), "b": 0.3}
    expected = fnx.grad(f)(p, 2)
    out, pull = fnx.jit(lambda p: fnx.vjp(lambda q: f(q, 2), p))(p)
    assert float(out) == pytest.approx(float(f(p, 2)))
    equal(pull(1.0)[0], expected)
    equal(fnx.jit(lambda g, ct: g(ct))(pull, 2.0)[0], fnx.tree.map(lambda x: 2 * x, expected))
    _, eager = fnx.vjp(f, p, 2)
    assert all(isinstance(x, fnx.Array) for x in fnx.tree.leaves(eager))
    equal(fnx.tree.map(lambda x: x, eager)(1.0)[0], expected)
    equal(eager(1.0)[0], expected)
    doubled = fnx.jit(fnx.grad(lambda s: fnx.vjp(lambda q: f(q, s), p)[1](1.0)[0]["b"]))(2.0)
    assert float(doubled) == pytest.approx(float(expected["b"]) / 2)


def test_jacobians_of_pytrees():
    f = lambda p: {"s": p["a"] * p["b"], "t": jnp.sum(p["a"])}
    p = {"a": jnp.arange(3.0), "b": jnp.asarray(2.0)}
    forward, reverse = fnx.jacfwd(f)(p), fnx.jacrev(f)(p)
    equal(forward, reverse)
    assert forward["s"]["a"].shape == (3, 3)
    equal(forward["s"]["b"], np.arange(3.0))
    both = fnx.jacrev(lambda x, y: x * y, argnums=(0, 1))(jnp.ones(2), jnp.ones(2))
    equal(both, (np.eye(2), np.eye(2)))
    for jacobian in (fnx.jacfwd, fnx.jacrev):
        value, aux = jacobian(lambda x: (x * x, {"n": x}), has_aux=True)(jnp.ones(2))
        equal(value, 2 * np.eye(2))
        equal(aux["n"], np.ones(2))


def test_hessian_shapes_and_jit():
    f = lambda x: jnp.sum(jnp.sin(x) * x[::-1])
    x = jnp.arange(4.0) * 0.3
    h = fnx.hessian(f)(x)
    equal(h, fnx.jit(fnx.hessian(f))(x))
    equal(h, np.asarray(h).T)
    tree = fnx.hessian(lambda p: p["a"] ** 2 * p["b"])({"a": 2.0, "b": 3.0})
    equal(tree, {"a": {"a": 6.0, "b": 4.0}, "b": {"a": 4.0, "b": 0.0}})


def test_check_grads_finds_a_wrong_rule():
    @fnx.custom_jvp
    def f(x):
        return jnp.sin(x)

    f.defjvp(lambda primals, tangents: (f(*primals), 0.9 * jnp.cos(primals[0]) * tangents[0]))
    with pytest.raises(AssertionError):
        fnx.test_util.check_grads(f, (0.3,), order=1)
    fnx.test_util.check_grads(jnp.sin, (0.3,), order=3)
    fnx.test_util.check_grads(lambda a, b: {"x": a @ b}, (jnp.eye(2), jnp.ones(2)), order=2)
    with pytest.raises(AssertionError):
        fnx.test_util.check_grads(lambda x: lax.stop_gradient(x) * x, (0.3,), 1, modes=["rev"])


def test_check_jvp_lets_n_elements_differ_by_n_tolerances():
    def off_by(error):
        return lambda xs, ts: (2.0 * xs[0], 2.0 * ts[0] + error)

    check = lambda error: fnx.test_util.check_jvp(
        lambda x: 2.0 * x, off_by(error), (jnp.ones(10),), atol=1e-3, rtol=1e-9
    )
    check(5e-3)  # as JAX does
    with pytest.raises(AssertionError, match="tangent"):
        check(2e-2)


def test_check_grads_of_complex_functions():
    z = jnp.array([0.3 + 0.2j, -1.0 + 0.5j])
    fnx.test_util.check_grads(lambda z: z**3 + jnp.exp(z), (z,), order=2)
    fnx.test_util.check_grads(lambda z: jnp.real(z * jnp.conj(z)), (z,), order=1, modes=["rev"])


def test_checks_go_along_the_directions_that_jax_draws():
    seen, x = [], np.arange(3.0)

    def pull(*args):
        out, back = fnx.vjp(jnp.sin, *args)
        return out, lambda ct: (seen.append(ct), back(ct))[1]

    fnx.test_util.check_vjp(jnp.sin, pull, (x,))
    draws = np.random.RandomState(0)
    draws.randn(3)  # the tangent; then the cotangent
    equal(seen[0], draws.randn(3))


NAN = np.array([1.0, np.nan, 2.0])


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("fn", [jnp.max, jnp.min, fnx.nn.softplus, fnx.nn.log_sigmoid])
def test_derivatives_at_nan_are_nan(fn, wrap):
    x = NAN if fn in (jnp.max, jnp.min) else np.nan
    assert np.isnan(wrap(fnx.grad(fn))(x)).all()
    assert np.isnan(wrap(lambda x: fnx.jvp(fn, (x,), (jnp.ones_like(x),))[1])(x))


def test_log_of_sums_of_infinite_exponentials():
    inf = np.inf
    for a, b, slope in ((-inf, 0.0, (0, 1)), (0.0, -inf, (1, 0)), (inf, 0.0, (1, 0))):
        assert fnx.grad(jnp.logaddexp, (0, 1))(a, b) == slope
    assert jnp.logaddexp(inf, inf) == inf
    assert jnp.logaddexp(-inf, -inf) == -inf


def test_slopes_of_pseudo_inverses_of_hermitian_matrices():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 4)) + 1j * rng.normal(size=(4, 4))
    for a in (x + x.conj().T, (x + x.conj().T).real):
        check_grads(lambda a: jnp.linalg.pinv(a, hermitian=True), (a,), 1)


def test_tangents_of_integers_are_float0():
    double = lambda x: x * 2.0
    none = np.zeros(3, fnx.dtypes.float0)
    x = jnp.arange(3)
    for call in (
        lambda t: fnx.jvp(double, (x,), (t,)),
        fnx.linearize(double, x)[1],
        lambda t: fnx.vjp(lambda y: (y, x), jnp.ones(3))[1]((jnp.ones(3), t)),
    ):
        call(none)
        with pytest.raises(TypeError, match="float0"):
            call(jnp.ones(3))
    with pytest.raises(TypeError, match="float0"):
        fnx.jvp(double, (3,), (1.0,))


@pytest.mark.parametrize("t", [1, True, np.int32(1), jnp.array(1)], ids=str)
def test_tangents_of_floats_are_no_integers(t):
    triple = lambda x: 3.0 * x
    for call in (
        lambda t: fnx.jvp(triple, (2.0,), (t,)),
        fnx.linearize(triple, 2.0)[1],
        fnx.vjp(triple, 2.0)[1],
    ):
        with pytest.raises(TypeError, match="expected float64"):
            call(t)
        call(1.0)


def test_derivatives_of_quotients_by_one_number_share_its_reciprocal():
    def unit(x):
        return x / jnp.sqrt(jnp.sum(x**2))

    x = jnp.array([3.0, 4.0, 12.0])
    u = np.array([3.0, 4.0, 12.0]) / 13
    for jacobian in (fnx.jit(fnx.jacrev(unit)), fnx.jit(fnx.jacfwd(unit))):
        np.testing.assert_allclose(jacobian(x), (np.eye(3) - np.outer(u, u)) / 13, rtol=1e-14)
        assert jacobian.lower(x).as_text("kernel").count(" / ") == 3 + 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_quotients_by_what_is_constant_have_derivatives_that_are_quotients(dtype):
    x = np.array([1.0, 3.0, 7.0]).astype(dtype)
    _, tangent = fnx.jvp(lambda x: x / 3, (jnp.array(x),), (jnp.array(x),))
    np.testing.assert_array_equal(tangent, jnp.array(x) / 3)
    y = jnp.array([2.0, -3.0, 1e30]).astype(dtype)
    _, both = fnx.jvp(lambda x, y: x / y, (jnp.array(x), y), (jnp.array(x), y))
    np.testing.assert_allclose(both, 0, atol=1e-6)
    slope = fnx.jvp(lambda y: x / y, (y,), (jnp.ones(3, dtype),))[1]
    np.testing.assert_allclose(slope, -x / y / y, rtol=1e-6)


@pytest.mark.parametrize("t", [1, True, jnp.ones((), int), np.float32(1.0), 1j])
def test_tangents_and_cotangents_have_the_dtype_of_the_value(t):
    twice = lambda x: x * 2.0
    for x in (jnp.asarray(3.0).astype(float), jnp.asarray(3.0, jnp.float16)):
        for call in (
            lambda t, x=x: fnx.jvp(twice, (x,), (t,)),
            lambda t, x=x: fnx.jit(lambda x, t: fnx.jvp(twice, (x,), (t,)))(x, t),
            fnx.linearize(twice, x)[1],
            fnx.vjp(twice, x)[1],
            fnx.linear_transpose(twice, x),
        ):
            assert all([d.dtype == x.dtype for d in fnx.tree.leaves(call(x))])
            with pytest.raises(TypeError, match="dtype"):
                call(t)
    with pytest.raises(TypeError, match="dtype"):
        fnx.vjp(twice, 1j)[1](1.0)


def test_results_are_cotangents_of_integers():
    value, pull = fnx.vjp(lambda x: (x * x, x.astype(int)), jnp.array([3.0, 1.0]))
    assert pull(value)[0].tolist() == [54.0, 2.0]
    assert fnx.jit(lambda x: fnx.vjp(lambda x: 1, x)[1](1))(2.0) == (0.0,)
    with pytest.raises(ValueError, match="shape"):
        pull((value[0], value[1][:1]))


def test_what_goes_with_an_integer_is_float0_of_its_shape():
    for t in (1, np.zeros((), int), False, 1.0):
        with pytest.raises(TypeError, match="float0"):
            fnx.jvp(lambda x: x * 2.0, (3,), (t,))
    for t in (False, 1.0, np.int32(1)):
        with pytest.raises(TypeError, match="float0"):
            fnx.vjp(lambda x: (x, 3), 1.0)[1]((1.0, t))
    with pytest.raises(ValueError, match=r"shape \(3,\)"):
        fnx.jvp(lambda x: x * 2.0, (3,), (np.zeros(3, fnx.dtypes.float0),))
