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


# --- zeros that are not arrays ------------------------------------------------------------------


@RUN
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit, fnx.checkpoint])
def test_symbolic_zeros_of_custom_jvp(run, wrap):
    seen = []

    @fnx.custom_jvp
    def f(x, y, n):
        return x * y, x + n, y

    def rule(primals, tangents):
        zero = fnx.custom_derivatives.SymbolicZero
        x, y, n = primals
        seen.append([isinstance(t, zero) for t in tangents])
        dx, dy, dn = tangents
        assert dn.dtype == fnx.dtypes.float0
        assert dn.shape == n.shape
        first = (0.0 if isinstance(dx, zero) else 10.0 * dx) + (
            0.0 if isinstance(dy, zero) else 100.0 * dy
        )
        nothing = fnx.custom_derivatives.zero_from_primal(y, symbolic_zeros=True)
        return f(x, y, n), (first, dx, nothing)

    f.defjvp(rule, symbolic_zeros=True)
    n = np.arange(3)
    total = lambda x, y: sum(z.sum() for z in wrap(f)(x, y, n))
    x, y = jnp.ones(3), jnp.full(3, 2.0)
    np.testing.assert_allclose(run(fnx.grad(total))(x, y), np.full(3, 11.0))
    assert seen[-1] == [False, True, True]
    np.testing.assert_allclose(run(fnx.grad(total, 1))(x, y), np.full(3, 100.0))
    assert seen[-1] == [True, False, True]
    lanes = run(fnx.vmap(fnx.grad(total), (0, None)))(jnp.ones((2, 3)), y)
    np.testing.assert_allclose(lanes, np.full((2, 3), 11.0))
    known = wrap is fnx.jit  # what is jitted of one function is differentiated once
    assert seen[-1] == [known, not known, True]


@RUN
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit, fnx.vmap, lambda f: fnx.jit(fnx.vmap(f))])
def test_symbolic_zeros_of_custom_vjp(run, wrap):
    flags, zeros = [], []

    @fnx.custom_vjp
    def f(x, y):
        return x * y, x

    def fwd(x, y):
        flags.append((x.perturbed, y.perturbed))
        values = fnx.custom_derivatives.custom_vjp_primal_tree_values((x, y))
        return f(*values), values

    def bwd(kept, cts):
        zero = fnx.custom_derivatives.SymbolicZero
        zeros.append([isinstance(ct, zero) for ct in cts])
        _x, y = kept
        a, b = cts
        dx = (0.0 if isinstance(a, zero) else 10.0 * a * y) + (
            0.0 if isinstance(b, zero) else 1000.0 * b
        )
        return dx, zero.from_primal_value(y)

    f.defvjp(fwd, bwd, symbolic_zeros=True)
    x, y = jnp.ones(2), jnp.full(2, 3.0)
    first, second = (lambda x, y, k=k: wrap(f)(x, y)[k].sum() for k in (0, 1))
    np.testing.assert_allclose(run(fnx.grad(first))(x, y), [30.0, 30.0])
    assert flags[-1] == (True, False)
    assert zeros[-1] == [False, True]
    gx, gy = run(fnx.grad(second, (0, 1)))(x, y)
    np.testing.assert_allclose(gx, [1000.0, 1000.0])
    np.testing.assert_allclose(gy, [0.0, 0.0])
    assert flags[-1] == (True, True)
    assert zeros[-1] == [True, False]


def test_cotangents_of_rules_fit_their_arguments():
    @fnx.custom_vjp
    def f(pair, z):
        return pair["a"] * pair["b"] + z

    f.defvjp(lambda pair, z: (f(pair, z), None), lambda _, ct: (ct * 7.0, None))
    g, gz = fnx.grad(f, (0, 1))({"a": 2.0, "b": 3.0}, 1.0)  # one for the whole dict
    assert [float(g["a"]), float(g["b"]), float(gz)] == [7.0, 7.0, 0.0]

    f.defvjp(lambda pair, z: (f(pair, z), None), lambda _, ct: (None, jnp.ones(2)))
    with pytest.raises(ValueError, match="a cotangent from bwd"):
        fnx.grad(f, 1)({"a": 2.0, "b": 3.0}, 1.0)
    zero = fnx.custom_derivatives.SymbolicZero.from_primal_value(jnp.ones(2))
    f.defvjp(lambda pair, z: (f(pair, z), None), lambda _, ct: (None, zero))
    with pytest.raises(ValueError, match="None is always right"):
        fnx.grad(f, 1)({"a": 2.0, "b": 3.0}, 1.0)


def test_a_rule_whose_result_is_of_another_type_than_its_function_says_so():
    @fnx.custom_jvp
    def f(x):
        return x

    f.defjvp(lambda p, t: (jnp.stack([p[0], p[0]]), jnp.stack([t[0], t[0]])))
    with pytest.raises(TypeError, match="the rule of f gave results"):
        fnx.grad(fnx.jit(lambda x: f(x).sum()))(1.0)


# --- solvers that close over what is differentiated ------------------------------------------------


@RUN
def test_custom_root_whose_solvers_close_over_a_factorization(run):
    def solve(a, b):
        factor = fnx.scipy.linalg.cho_factor(a)
        by = lambda f, y: fnx.scipy.linalg.cho_solve(factor, y)
        tangent = lambda g, y: lax.custom_linear_solve(g, y, by, symmetric=True)
        with_aux = lambda f, y: (by(f, y), {"rounds": jnp.array(3)})
        return lax.custom_root(lambda x: a @ x - b, b, with_aux, tangent, has_aux=True)

    a = np.array([[3.0, 1.0], [1.0, 2.0]])
    b = np.array([1.0, -2.0])
    f = lambda a, b: solve(a @ a.T, b)[0]
    plain = lambda a, b: jnp.linalg.solve(a @ a.T, b)
    np.testing.assert_allclose(run(f)(a, b), plain(a, b))
    for derivative in (fnx.jacfwd, fnx.jacrev, fnx.hessian):
        for x, y in zip(run(derivative(f, (0, 1)))(a, b), derivative(plain, (0, 1))(a, b)):
            fnx.tree.map(lambda p, q: np.testing.assert_allclose(p, q, atol=1e-12), x, y)
    fnx.test_util.check_grads(f, (a, b), 2, rtol={np.float32: 1e-2, np.float64: 1e-5})


def test_integers_in_jacrev_have_jacobians_without_values():
    f = lambda x, i: jnp.stack([x[i], 2.0 * x[0]])
    gx, gi = fnx.jacrev(f, (0, 1), allow_int=True)(jnp.ones(3), 1)
    np.testing.assert_array_equal(gx, [[0.0, 1.0, 0.0], [2.0, 0.0, 0.0]])
    assert gi.shape == (2,)
    assert gi.dtype == fnx.dtypes.float0


# --- settings and arguments -----------------------------------------------------------------------


@RUN
def test_promotion_can_be_forbidden(run):
    single, double = jnp.ones((2, 3), "float32"), jnp.ones((2, 3))
    with fnx.numpy_dtype_promotion("strict"):
        assert run(lambda x: x * 2.0 + 1)(single).dtype == np.float32
        for wrong in (lambda x: x + double, lambda x: x.astype(int) + 1.0, lambda x: (x > 0) + 1):
            with pytest.raises(ValueError, match="strict"):
                run(wrong)(single)
    with fnx.numpy_rank_promotion("raise"):
        assert run(lambda x: x + 1.0 + jnp.ones((1, 3)))(double).shape == (2, 3)
        with pytest.raises(ValueError, match="ranks"):
            run(lambda x: x + jnp.ones(3))(double)
    with fnx.numpy_rank_promotion("warn"), pytest.warns(UserWarning, match="ranks"):
        double + jnp.ones(3)
    assert (double + jnp.ones(3)).shape == (2, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"donate_argnums": 3}, "out of range"),
        ({"donate_argnames": "y"}, "not one of its parameters"),
        ({"static_argnums": 0, "donate_argnums": 0}, "both static and donated"),
        ({"static_argnames": "x", "donate_argnums": 0}, "both static and donated"),
    ],
)
def test_arguments_that_are_donated_exist_and_are_not_static(options, message):
    with pytest.raises(ValueError, match=message):
        fnx.jit(lambda x: x, **options)


def test_what_is_no_array_or_no_function_is_refused():
    with pytest.raises(TypeError, match="generator"):
        fnx.jit(lambda: (yield 1.0))
    with pytest.raises(ValueError, match="filled"):
        fnx.jit(lambda x: x)(np.ma.array([1.0, 2.0], mask=[False, True]))
    with pytest.raises(TypeError, match="integers or None"):
        fnx.vmap(lambda x: x, in_axes=True)(jnp.ones(2))
    with pytest.raises(ValueError, match="expected a dtype"):
        fnx.ShapeDtypeStruct((2,), None)
    with pytest.raises(TypeError, match="stop_gradient"):
        lax.stop_gradient(lambda x: x)
    with pytest.raises(ValueError, match="unroll"):
        lax.scan(lambda c, x: (c, x), 0.0, jnp.ones(2), unroll=-1)
    single = jnp.float32(1.0)
    for derivative in (
        lambda: fnx.vjp(lambda x: x, single)[1](np.float64(1.0)),
        lambda: fnx.linearize(lambda x: x, single)[1](np.float64(1.0)),
    ):
        for kind in (TypeError, ValueError):
            with pytest.raises(kind, match="float64"):
                derivative()


# --- dicts -----------------------------------------------------------------------------------------


def test_dicts_come_back_in_the_order_of_their_sorted_keys():
    tree = {"b": 1.0, "a": {"d": 2.0, "c": 3.0}}
    found = [
        fnx.tree.map(lambda x: x, tree),
        fnx.jit(lambda t: t)(tree),
        fnx.grad(lambda t: t["b"] * t["a"]["d"] * t["a"]["c"])(tree),
        fnx.vmap(lambda x: fnx.tree.map(lambda y: y * x, tree))(jnp.ones(2)),
        lax.scan(lambda c, _: (tree, None), tree, None, length=1)[0],
        fnx.vjp(lambda t: t, tree)[0],
        fnx.tree_util.tree_map_with_path(lambda _, x: x, tree),
    ]
    for out in found:
        assert list(out) == ["a", "b"]
        assert list(out["a"]) == ["c", "d"]


def test_partial_functions_inside_partial_are_not_taken_apart():
    import functools

    inner = functools.partial(lambda kind, x, y: (kind, x + y), "sum")
    f = fnx.tree_util.Partial(inner, 2.0)
    assert fnx.tree_util.tree_leaves(f) == [2.0]
    assert f(1.0) == ("sum", 3.0)
    assert float(fnx.jit(lambda g, x: g(x)[1])(f, 5.0)) == 7.0
    same = fnx.tree_util.Partial(functools.partial(inner.func, "sum"), 2.0)
    assert fnx.tree_util.tree_structure(f) == fnx.tree_util.tree_structure(same)


TWICE = {
    "sub": lambda a, b: a - b,
    "atan2": lax.atan2,
    "where": lambda a, b: jnp.where(a > b, a, b),
    "clamp": lambda a, b: lax.clamp(a, b, a + 1),
    "stack": lambda a, b: jnp.stack([a, b]),
    "dot": jnp.dot,
    "outer": jnp.outer,
    "add at": lambda a, b: jnp.zeros((2, *a.shape)).at[:1].add(a + b),
    "slope": fnx.grad(lambda a, b: jnp.sum(a**2 * jnp.sin(b)), (0, 1)),
    "select_n": lambda a, b: lax.select_n(a > 1, a, b),
    "searchsorted": lambda a, b: jnp.searchsorted(jnp.sort(jnp.ravel(a)), b),
}


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("shape", [(4,), (4, 4)])
def test_one_array_with_lanes_and_without(name, shape):
    x = jnp.linspace(0.0, 5.0, int(np.prod(shape))).reshape(shape)
    f = TWICE[name]
    if name == "searchsorted" and len(shape) == 1:
        f = lambda a, b: TWICE[name](jnp.stack([a, a + 1]), b)
    pairs = fnx.vmap(fnx.vmap(f, (None, 0)), (0, None))
    for run in (pairs, fnx.vmap(fnx.vmap(f, (0, None)), (None, -1))):
        same, apart = run(x, x), run(x, x + 0)
        for p, q in zip(fnx.tree.leaves(same), fnx.tree.leaves(apart), strict=True):
            np.testing.assert_array_equal(p, q)


def test_a_result_without_an_axis_for_its_batch_elements_is_named():
    said = r"at vmap out_axes\[1\]\['a'\]\[0\], got axis spec None but output was batched on axis 0"
    with pytest.raises(ValueError, match=said):
        fnx.vmap(lambda x: (x, {"a": [x, x]}), out_axes=(0, {"a": None}))(np.ones(2))
    with pytest.raises(ValueError, match="at vmap out_axes, got axis spec None"):
        fnx.vmap(lambda x: x, out_axes=None)(np.ones(2))
