"""Elementwise functions and operators against NumPy; promotion by the lattice with weak scalars."""

import operator

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fnx
import fnx.numpy as jnp
from fnx.core.errors import ShapeError, TypeMismatch

X = np.array([[-2.5, -1.0, 0.0], [0.5, 1.0, 3.5]])
P = np.abs(X) + 0.25
U = X / 4
I = np.array([[-3, -1, 0], [1, 2, 7]])
C = X + 1j * X[::-1]

UNARY = {
    "abs absolute square negative positive sign floor ceil trunc rint isfinite isnan isinf signbit "
    "exp exp2 expm1 sin cos tan sinh cosh tanh arctan arcsinh cbrt deg2rad rad2deg sinc fabs real imag "
    "conj angle i0 isposinf isneginf": X,
    "sqrt log log2 log10 log1p reciprocal": P,
    "arcsin arccos arctanh": U,
    "arccosh": P + 1,
    "invert bitwise_count": I,
    "logical_not isreal iscomplex": C,
}
BINARY = {
    "add subtract multiply divide maximum minimum arctan2 hypot copysign equal not_equal less "
    "less_equal greater greater_equal logical_and logical_or logical_xor fmax fmin logaddexp logaddexp2 "
    "float_power heaviside floor_divide remainder fmod mod": (P, X[0]),
    "power": (P, X),
    "bitwise_and bitwise_or bitwise_xor gcd lcm": (I, np.array([2, 3, 4])),
    "left_shift right_shift": (I, np.array([0, 1, 2])),
    "nextafter": (X, -X),
}


def each(table):
    return [(name, args) for names, args in table.items() for name in names.split()]


def close(found, expected, rtol=1e-13):
    assert isinstance(found, fnx.Array)
    assert (found.shape, found.dtype) == (np.shape(expected), np.asarray(expected).dtype)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=rtol, atol=1e-15)


def numpys(name):
    return {"positive": np.positive}.get(name) or getattr(np, name)


@pytest.mark.parametrize(("name", "x"), each(UNARY))
def test_unary_agrees_with_numpy(name, x):
    close(getattr(jnp, name)(x), numpys(name)(x))
    close(getattr(jnp, name)(jnp.asarray(x)), numpys(name)(x))


@pytest.mark.parametrize(("name", "args"), each(BINARY))
def test_binary_agrees_with_numpy(name, args):
    x, y = args
    with np.errstate(all="ignore"):
        close(getattr(jnp, name)(x, y), numpys(name)(x, y))
        close(getattr(jnp, name)(y, jnp.asarray(x)), numpys(name)(y, x))


@pytest.mark.parametrize(("name", "args"), each(BINARY))
def test_binary_is_the_same_when_it_is_traced(name, args):
    fn = getattr(jnp, name)
    eager, staged = fn(*args), fnx.jit(fn)(*args)
    assert eager.aval == staged.aval
    np.testing.assert_allclose(np.asarray(staged), np.asarray(eager), rtol=1e-14, atol=1e-15)


OPERATORS = "add sub mul truediv floordiv mod pow eq ne lt le gt ge".split()
FINITE = st.floats(-9, 9, width=32).filter(lambda v: v == 0 or abs(v) > 1e-3)
SHAPES = hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=3)


@given(data=st.data(), shapes=SHAPES, name=st.sampled_from(OPERATORS), kind=st.sampled_from("fi"))
def test_operators_agree_with_numpy(data, shapes, name, kind):
    values = FINITE if kind == "f" else st.integers(0, 5)
    dtype = np.float64 if kind == "f" else np.int64
    x, y = (
        data.draw(hnp.arrays(dtype, s, elements=values), label="array") for s in shapes.input_shapes
    )
    fn = getattr(operator, name)
    if kind == "i" and name in ("truediv", "floordiv", "mod"):
        y = y + 1
    with np.errstate(all="ignore"):
        expected = fn(x, y)
    for found in (fn(jnp.asarray(x), jnp.asarray(y)), fn(jnp.asarray(x), y), fn(x, jnp.asarray(y))):
        close(found, expected, rtol=1e-12)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("number", [2, 2.5, True, np.float64(2.5), np.int64(2)])
def test_operators_with_numbers_on_both_sides(name, number):
    fn = getattr(operator, name)
    x = np.array([1.0, 2.0, 3.0])
    close(fn(jnp.asarray(x), number), fn(x, number))
    close(fn(number, jnp.asarray(x)), fn(number, x))


@pytest.mark.parametrize("name", "and_ or_ xor lshift rshift".split())
def test_operators_of_bits(name):
    fn = getattr(operator, name)
    x, y = np.array([1, 5, -4]), np.array([3, 1, 2])
    for found in (fn(jnp.asarray(x), jnp.asarray(y)), fn(x, jnp.asarray(y))):
        close(found, fn(x, y))
    close(fn(jnp.asarray(x), 2), fn(x, 2))
    close(fn(2, jnp.asarray(y)), fn(2, y))


def test_unary_operators():
    x = jnp.array([-1, 2])
    close(-x, np.array([1, -2]))
    close(+x, np.array([-1, 2]))
    close(abs(x), np.array([1, 2]))
    close(~x, np.array([0, -3]))
    q, r = divmod(jnp.array([7.0, -7.0]), 2.0)
    close(q, np.array([3.0, -4.0]))
    close(r, np.array([1.0, 1.0]))


def test_unknown_operands_are_left_to_the_other_side():
    class Other:
        def __radd__(self, x):
            return "radd"

    x = jnp.ones(3)
    assert x + Other() == "radd"
    assert (x == "text") is False
    assert (x != None) is True  # noqa: E711
    for bad in ([1, 2, 3], "text", None):
        with pytest.raises(TypeError):
            x + bad


# --- promotion ---------------------------------------------------------------------------------

PROMOTION = [
    (np.float32(1), 2.0, "float32"),
    (np.float32(1), 2, "float32"),
    (np.int32(1), 2, "int32"),
    (np.int32(1), 2.0, "float64"),
    (np.int8(1), np.uint8(1), "int16"),
    (np.uint64(1), np.int8(1), "float64"),
    (np.int64(1), np.float32(1), "float32"),
    (np.float16(1), np.float32(1), "float32"),
    (np.float32(1), np.complex64(1), "complex64"),
    (np.float64(1), np.complex64(1), "complex128"),
    (np.float32(1), 1j, "complex64"),
    (np.bool_(True), 2, "int64"),
    (True, 2, "int64"),
    (2, 2.0, "float64"),
]


@pytest.mark.parametrize(("x", "y", "dtype"), PROMOTION)
def test_promotion(x, y, dtype):
    assert jnp.multiply(x, y).dtype == dtype
    assert jnp.multiply(y, x).dtype == dtype
    assert jnp.result_type(x, y) == dtype
    assert fnx.make_jaxpr(jnp.multiply)(x, y).out_avals[0].dtype == dtype


def test_bfloat16_meets_the_others_as_the_lattice_says():
    x = jnp.ones(2, jnp.bfloat16)
    assert (x * 2.0).dtype == jnp.bfloat16
    assert (x + jnp.ones(2, jnp.float16)).dtype == jnp.float32
    assert jnp.exp(x).dtype == jnp.bfloat16


def test_python_numbers_stay_weak():
    x = jnp.arange(3) * 1.0  # a weak float64: it yields to float32
    assert x.weak_type
    assert (x + np.float32(1)).dtype == np.float32
    assert not (jnp.ones(3) * 1.0).weak_type
    chosen = jnp.where(jnp.array([True, False]), 1.0, 2.0)
    assert (chosen * jnp.ones(2, np.float32)).dtype == np.float32


def test_a_number_beside_an_array_needs_no_conversion_or_broadcast():
    jaxpr = fnx.make_jaxpr(lambda x: x * 2.0 + 1)(np.ones(3, np.float32))
    assert [eqn.prim.name for eqn in jaxpr.eqns] == ["mul", "add"]


@pytest.mark.parametrize(
    ("exponent", "name"), [(2, "square"), (3, "integer_pow"), (-2, "integer_pow")]
)
def test_powers_by_integers_are_multiplied_out(exponent, name):
    jaxpr = fnx.make_jaxpr(lambda x: x**exponent)(1.5)
    assert [eqn.prim.name for eqn in jaxpr.eqns] == [name]
    close(jnp.asarray(X[1]) ** exponent, X[1] ** float(exponent))


def test_numbers_in_powers_are_constants_of_the_other_dtype():
    """As in JAX; libraries that read jaxprs tell variables from literals."""
    x = np.ones(3, np.float32)
    for f in (lambda x: x**3.5, lambda x: 2.5**x):
        (equation,) = fnx.make_jaxpr(f)(x).eqns
        assert equation.prim.name == "pow"


def test_nan_to_num_replaces_one_after_the_other():
    """An infinite replacement is replaced in its turn, as in JAX."""
    x, largest = jnp.array([np.nan, np.inf, -np.inf]), np.finfo(float).max
    close(jnp.nan_to_num(x, nan=-np.inf), [-largest, largest, -largest])
    close(jnp.nan_to_num(x, posinf=-np.inf), [0.0, -largest, -largest])


@pytest.mark.parametrize("kind", ["uint8", "int32", "float32"])
@pytest.mark.parametrize("known", [np.int64(2), np.array(2), jnp.asarray(2, "int16"), True])
def test_known_integers_as_exponents_keep_the_dtype(kind, known):
    x = jnp.array([3, 4], kind)
    for f in (lambda x: x**known, lambda x: jnp.power(x, known)):
        for found in (f(x), fnx.jit(f)(x)):
            close(found, np.array([3, 4], kind) ** int(known))
    wider = jnp.result_type(x.dtype, np.asarray(known).dtype)
    assert fnx.jit(jnp.power)(x, jnp.asarray(known)).dtype == wider  # not known


def test_integer_powers():
    close(I**2 + 0 * jnp.asarray(I), I**2)
    close(jnp.power(np.array([2, -3]), np.array([5, 3])), np.array([32, -27]))
    with pytest.raises(TypeMismatch, match="negative powers"):
        jnp.arange(3) ** -1
    raised = lambda x: fnx.lax.integer_pow(x, -2)
    for f in (raised, fnx.jit(raised), fnx.vmap(raised)):
        with pytest.raises(TypeMismatch, match="negative powers"):
            f(jnp.arange(3))


# --- errors and warnings -----------------------------------------------------------------------


def test_shapes_that_do_not_fit_are_named():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(4,\)"):
        jnp.ones(3) + jnp.ones(4)
    with pytest.raises(ValueError, match=r"\(3,\)"):  # as NumPy would raise
        jnp.ones(3) * np.ones(4)


def test_lists_are_refused_with_a_hint():
    with pytest.raises(TypeError, match="asarray"):
        jnp.sin([1.0, 2.0])


def test_dtypes_that_do_not_fit_are_named():
    with pytest.raises(TypeError, match="bool"):
        jnp.negative(np.array([True]))
    with pytest.raises(TypeError, match="float64"):
        fnx.jit(lambda x: x & 1)(1.0)


def test_nothing_warns_of_infinities():
    x = jnp.array([0.0, -1.0, 1e308])
    for value in (1 / x, jnp.log(x), jnp.sqrt(x), x * x, x - jnp.inf, x**-1, x // 0.0):
        assert not np.isfinite(np.asarray(value)).all()


# --- protocols ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fn",
    [
        np.sin,
        lambda x: np.add(x, 1),
        np.add.reduce,
        lambda x: np.concatenate([x, x]),
        lambda x: np.mean(x, axis=0),
        lambda x: np.where(x > 0, x, 0),
        np.linalg.norm,
        lambda x: np.float64(2) * x,
        lambda x: np.ones(3) @ x,
    ],
)
def test_numpy_functions_stay_in_fnx(fn):
    x = np.array([1.0, -2.0, 3.0])
    found = fn(jnp.asarray(x))
    assert isinstance(found, fnx.Array)
    np.testing.assert_allclose(found, fn(x))
    np.testing.assert_allclose(fnx.jit(fn)(x), fn(x), rtol=1e-14)


@pytest.mark.parametrize("name", "add multiply maximum logaddexp bitwise_xor subtract".split())
def test_methods_of_ufuncs(name):
    ours, theirs = getattr(jnp, name), getattr(np, name)
    x = I if name == "bitwise_xor" else X
    close(ours.reduce(x), theirs.reduce(x))
    close(ours.reduce(x, axis=1, keepdims=True), theirs.reduce(x, axis=1, keepdims=True))
    close(ours.accumulate(x, axis=1), theirs.accumulate(x, axis=1))
    close(ours.outer(x[0], x), theirs.outer(x[0], x))
    changed, at = x.copy(), np.array([0, 1])
    theirs.at(changed, at, x[::-1])
    close(ours.at(x, at, x[::-1], inplace=False), changed)
    with pytest.raises(ValueError, match="in place"):
        ours.at(x, at, x)


ENDS = [0.0, -0.0, 1.0, -1.0, 5.5, -5.5, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_quotients_and_remainders_of_zeros_infinities_and_nan(dtype):
    """NumPy's with their signs, but floor(x / y) where just one operand is infinite."""
    x, y = (a.ravel().astype(dtype) for a in np.meshgrid(ENDS, ENDS))
    wide_x, wide_y = x.astype(float), y.astype(float)
    with np.errstate(all="ignore"):
        quotient = np.where(np.isinf(wide_x) | np.isinf(wide_y), np.floor(wide_x / wide_y), x // y)
        rest, cut = wide_x % wide_y, np.fmod(wide_x, wide_y)
    ways = [(jnp.floor_divide, quotient), (jnp.remainder, rest), (jnp.mod, rest), (jnp.fmod, cut)]
    ways += [(lambda x, y: x // y, quotient), (lambda x, y: x % y, rest)]
    ways += [(operator.ifloordiv, quotient), (operator.imod, rest)]
    ways += [(lambda x, y, k=k: jnp.divmod(x, y)[k], w) for k, w in enumerate((quotient, rest))]
    for f, want in ways:
        for found in (f(jnp.asarray(x), jnp.asarray(y)), fnx.jit(f)(x, y)):
            assert found.dtype == x.dtype
            found = np.asarray(found).astype(float)
            np.testing.assert_array_equal(found, want)
            known = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(want)[known])


@pytest.mark.parametrize(
    ("x", "y"), [(7.0, 2.0), (-7.0, 2.0), (7.0, -2.0), (6.0, -2.0), (-6.0, 2.0)]
)
def test_derivatives_of_remainders(x, y):
    """Of exact multiples as well, whose signs are set."""
    by = fnx.grad(jnp.remainder, argnums=(0, 1))
    assert tuple(map(float, by(x, y))) == (1.0, -np.floor(x / y))


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_expm1_of_complex_infinities(dtype):
    """The array API standard's table."""
    inf, nan = np.inf, np.nan
    table = [(0, 0, 0, 0), (1, inf, nan, nan), (1, nan, nan, nan), (inf, 0, inf, 0)]
    table += [(-inf, 1, -1, 0), (-inf, -2, -1, -0.0), (inf, 1, inf, inf), (inf, -2, -inf, -inf)]
    table += [(-inf, inf, -1, 0), (inf, inf, inf, nan), (-inf, nan, -1, 0), (inf, nan, inf, nan)]
    table += [(nan, 0, nan, 0), (nan, 1, nan, nan), (nan, nan, nan, nan), (inf, -0.0, inf, -0.0)]
    z = np.array([complex(a, b) for a, b, _, _ in table], dtype)
    for found in (jnp.expm1(jnp.asarray(z)), fnx.jit(jnp.expm1)(z)):
        for part, want in zip((found.real, found.imag), np.array(table).T[2:], strict=True):
            np.testing.assert_array_equal(part, want)
        assert np.signbit(found.imag[-1])
        assert np.signbit(found.imag[5])


def test_exp2_of_complex_infinities():
    z = np.array([complex(np.inf, 0), complex(np.inf, -2), complex(-np.inf, np.nan)])
    for found in (jnp.exp2(jnp.asarray(z)), fnx.jit(jnp.exp2)(z)):
        np.testing.assert_array_equal(found.real, [np.inf, np.inf, 0])
        np.testing.assert_array_equal(found.imag, [0, -np.inf, 0])


@pytest.mark.parametrize(("name", "base"), [("log2", 2), ("log10", 10)])
def test_logarithms_of_other_bases(name, base):
    """Of powers exactly, and within an ulp where log(x) / log(base) is not."""
    f = getattr(jnp, name)
    powers = np.arange(-1022, 1024) if base == 2 else np.arange(-307, 309)
    x = np.array([float(mpmath.mpf(base) ** int(k)) for k in powers])
    hard = np.array([11.729661799268593, 7.671480141720954, 1.4069665862589464, 1.3326875340893347])
    for log in (f, fnx.jit(f)):
        np.testing.assert_array_equal(log(jnp.asarray(x)), powers)
        narrow = abs(powers) < (126 if base == 2 else 37)
        np.testing.assert_array_equal(log(jnp.asarray(x[narrow], "float32")), powers[narrow])
        found = np.asarray(log(jnp.asarray(hard)))
        with mpmath.workprec(120):
            for number, y in zip(hard.tolist(), found.tolist(), strict=True):
                off = abs(mpmath.log(number, base) - y)
                assert off < 0.9 * np.spacing(y)
    slope = fnx.grad(fnx.grad(f))(3.0)
    close(slope, -1 / (9 * np.log(base)))


def test_array_namespace_is_the_module():
    assert jnp.ones(2).__array_namespace__() is jnp


@pytest.mark.parametrize("exponent", [s * (n + 0.5) for n in range(4) for s in (1, -1)])
def test_powers_of_halves(exponent):
    """By square roots: within 2 ulp over the whole range, and NumPy's values at its edges."""
    f = fnx.jit(lambda x: x**exponent)
    x = np.exp(np.random.default_rng(0).uniform(-190, 190, 400))
    got = np.asarray(f(x))
    for v, value in zip(x, got, strict=True):
        exact = mpmath.mpf(float(v)) ** mpmath.mpf(exponent)
        if 1e-300 < exact < 1e308:
            assert abs(mpmath.mpf(float(value)) - exact) <= 2 * np.spacing(float(exact)), v
    single = np.exp(np.random.default_rng(1).uniform(-20, 20, 4000)).astype("float32")
    exact = single.astype(float) ** exponent
    kept = (exact > 1e-37) & (exact < 3e38)
    error = np.abs(np.asarray(f(single)) - exact) / np.spacing(exact.astype("float32"))
    assert error[kept].max() <= 2
    edges = np.array([0.0, np.inf, np.nan, -1.0, 1.0, 5e-324, 1e-310, 1e308, 1e-200, 1e200])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(f(edges), edges**exponent, rtol=1e-15)
        if abs(exponent) > 0.5:  # those have operations of their own, which treat -0 as IEEE does
            np.testing.assert_array_equal(f(-edges[:2]), (-edges[:2]) ** exponent)


@pytest.mark.parametrize("name", ["log2", "log10"])
def test_logarithms_of_complex_infinities_and_zero(name):
    z = np.array(
        [0, 1e-300 + 1e-20j, np.inf, complex(-np.inf, 0), complex(0, np.inf), 1e30 + 1e30j]
    )
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(z)
    for f in (getattr(jnp, name), fnx.jit(getattr(jnp, name))):
        found = np.asarray(f(z))
        np.testing.assert_allclose(found.real, expected.real, rtol=1e-13)
        np.testing.assert_allclose(found.imag, expected.imag, rtol=1e-13)


def test_slopes_at_kinks():
    """Of equal operands fmax and fmin take the second; at the origin slopes of hypot are halves."""
    for f, x, y, expected in [
        (jnp.fmax, 1.0, 1.0, (0.0, 1.0)),
        (jnp.fmin, 1.0, 1.0, (0.0, 1.0)),
        (jnp.fmax, 2.0, np.nan, (1.0, 0.0)),
        (jnp.fmin, np.nan, 2.0, (0.0, 1.0)),
        (jnp.hypot, 0.0, 0.0, (0.5, 0.5)),
        (jnp.hypot, 3.0, 4.0, (0.6, 0.8)),
    ]:
        for grad in (fnx.grad(f, (0, 1)), fnx.jit(fnx.grad(f, (0, 1)))):
            np.testing.assert_allclose(grad(x, y), expected, rtol=1e-15, err_msg=str((f, x, y)))
