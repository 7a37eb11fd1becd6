"""Numbers of 2, 4 and 8 bits: kept as bytes, computed wider, rounded; against ml_dtypes."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import dtypes
from fnx.core.errors import TypePromotionError
from fnx.core.jaxpr import eval_jaxpr

EACH = pytest.mark.parametrize("dtype", dtypes.SMALL, ids=str)
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "numba"])
FAR = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 0.25, -0.25, 0.75, 1.5, 2.5, 3, 5, 6, 7, 464, 465, 57344, 61440,
     3e38, -3e38, 2.0**-127, 2.0**-128, 1e-45]
)  # fmt: skip
RNG = np.random.default_rng(0)
SPREAD = np.concatenate([FAR, RNG.normal(size=4000) * 10.0 ** RNG.integers(-8, 8, 4000)])


def every(dtype: np.dtype) -> np.ndarray:
    return np.arange(1 << dtypes.bits(dtype), dtype=np.uint8).view(dtype)


def numbers(dtype: np.dtype) -> np.ndarray:
    return np.array([1, 2, 1, 3]).astype(dtype)


@EACH
@BACKENDS
def test_every_number_is_read_as_it_is(dtype, backend):
    x, wide = every(dtype), dtypes.SMALL[dtype]
    found = np.asarray(fnx.jit(lambda x: x.astype(wide), backend=backend)(x))
    expected = x.astype(wide)
    np.testing.assert_array_equal(found, expected)
    if wide.kind == "f":
        real = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[real], np.signbit(expected)[real])


@EACH
@BACKENDS
def test_rounding_and_saturation(dtype, backend):
    narrow = fnx.jit(lambda x: x.astype(dtype), backend=backend)
    for source in (np.float32, np.float64) if backend == "cpu" else (np.float32,):
        with np.errstate(over="ignore"):
            x = jnp.asarray(SPREAD.astype(source))
        found, eager = np.asarray(narrow(x)), np.asarray(x.astype(dtype))
        np.testing.assert_array_equal(found.view(np.uint8), eager.view(np.uint8))
    whole = np.arange(-300, 300)
    found = np.asarray(narrow(whole)).view(np.uint8)
    np.testing.assert_array_equal(found, whole.astype(dtype).view(np.uint8))


def test_saturation_is_that_of_the_format():
    x = jnp.array([1e9, -1e9, jnp.nan, 2.5])
    as_floats = lambda dtype: np.asarray(x.astype(dtype).astype(jnp.float32))
    np.testing.assert_array_equal(as_floats(jnp.int4), [7, -8, 0, 2])
    np.testing.assert_array_equal(as_floats(jnp.uint2), [3, 0, 0, 2])
    np.testing.assert_array_equal(as_floats(jnp.float8_e5m2), [np.inf, -np.inf, np.nan, 2.5])
    np.testing.assert_array_equal(as_floats(jnp.float8_e4m3fn), [np.nan, np.nan, np.nan, 2.5])
    np.testing.assert_array_equal(as_floats(jnp.float4_e2m1fn)[:2], [6, -6])


PROGRAMS = {
    "arithmetic": lambda x: (x + x, x * x - x, -x),
    "of two kinds": lambda x: (x + 1, x * True),
    "comparisons": lambda x: (x < x[::-1], x == x, jnp.maximum(x, x[::-1])),
    "choice": lambda x: jnp.where(x > 1, x, x + x),
    "moves": lambda x: (jnp.concatenate([x, x])[1:6].reshape(5, 1).T, x[jnp.array([3, 0])]),
    "updates": lambda x: (x.at[1].set(x[0]), x.at[jnp.array([0, 0])].add(x[:2])),
    "broadcast": lambda x: jnp.broadcast_to(x[:, None], (4, 3)),
    "padding": lambda x: lax.pad(x, x[0], [(1, 2, 1)]),
    "reductions": lambda x: (lax.reduce_max_p.bind(x, axes=(0,)), jnp.argmax(x), jnp.sort(x)),
    "cumulative": lambda x: (lax.cummax(x), lax.cumsum(x), lax.cummin(x, reverse=True)),
    "product": lambda x: jnp.outer(x, x) @ x,
    "scan": lambda x: lax.scan(lambda c, a: (c + a, c), x[0], x),
    "loop": lambda x: lax.fori_loop(0, 3, lambda _, c: c[::-1] + c, x),
    "branch": lambda x: lax.cond(x[0] == 1, lambda a: a * a, lambda a: a, x),
    "vmap": lambda x: fnx.vmap(lambda a: a * a + x)(x),
}  # fmt: skip


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("name", PROGRAMS)
def test_compiled_programs_give_what_eager_ones_do(dtype, name):
    f, x = PROGRAMS[name], jnp.asarray(numbers(dtype))
    pairs = zip(fnx.tree.leaves(fnx.jit(f)(x)), fnx.tree.leaves(f(x)), strict=True)
    for found, expected in pairs:
        assert found.aval == expected.aval
        both = [dtypes.widened(np.asarray(a)) for a in (found, expected)]
        np.testing.assert_array_equal(*both)


def test_integers_wrap_and_floats_round():
    x = jnp.array([7, -8, 3], jnp.int4)
    assert (x + 1).tolist() == [-8, -7, 4]
    assert fnx.jit(lambda x: x * x)(x).tolist() == [1, 0, -7]
    y = jnp.array([1.1, 100.0], jnp.float8_e4m3fn)
    assert (y + y).tolist() == [2.25, 192.0]
    assert x.nbytes == 3
    assert repr(x) == "Array([7, -8, 3], dtype=int4)"


@pytest.mark.parametrize("other", ["int8", "float32", "bfloat16", "uint2", "float8_e5m2"])
def test_no_promotion_to_or_from_them(other):
    with pytest.raises(TypePromotionError, match="astype"):
        jnp.ones(3, jnp.int4) + jnp.ones(3, other)
    if "float" in other:
        with pytest.raises(TypePromotionError, match="astype"):
            jnp.ones(3, jnp.float8_e4m3fn) + jnp.ones(3, other)


def test_bits_are_split_and_joined():
    nibbles = jnp.array([[8, 3], [0, 4]], jnp.uint4)
    for run in (lambda f: f, fnx.jit):
        whole = run(lambda x: lax.bitcast_convert_type(x, jnp.uint8))(nibbles)
        assert whole.tolist() == [0x38, 0x40]
        back = run(lambda x: lax.bitcast_convert_type(x, jnp.uint4))(whole)
        np.testing.assert_array_equal(np.asarray(back), np.asarray(nibbles))
        number = run(lambda x: lax.bitcast_convert_type(x, jnp.float8_e4m3fn))(nibbles)
        assert number.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("run", [lambda f: f, fnx.jit])
def test_views_count_bits(run):
    x = jnp.array([[8, 3, 1, 2], [0, 4, 15, 0]], jnp.uint4)
    wide = run(lambda x: x.view(jnp.uint16))(x)
    assert wide.tolist() == [[0x2138], [0x0F40]]
    np.testing.assert_array_equal(run(lambda x: x.view(jnp.uint4))(wide), x)
    halves = run(lambda x: x.view(jnp.uint2))(jnp.array([True, False]))
    assert halves.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
    nibbles = run(lambda x: x.view(jnp.uint4))(jnp.array([2 - 1j], jnp.complex64))
    assert nibbles.tolist() == [0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 15, 11]
    with pytest.raises(ValueError):
        run(lambda x: x.view(jnp.uint32))(x[:, :2])
    for dtype, other in (("bool", "uint2"), ("complex64", "int4"), ("uint8", "bool")):
        with pytest.raises(TypeError):
            run(lambda x, d=other: lax.bitcast_convert_type(x, d))(jnp.ones(4, dtype))


@pytest.mark.parametrize("run", [lambda f: f, fnx.jit])
def test_small_integers_are_integers(run):
    """NumPy's own word for the kind of their dtypes is another one."""
    z, i = jnp.arange(5), jnp.array([-2, 1, 0, -1, 1], jnp.int4)
    wide = i.astype(int)
    for f in (
        lambda i: z[i],
        lambda i: z.at[i].add(9),
        lambda i: jnp.take_along_axis(z, i, 0),
        lambda i: jnp.ldexp(1.5, i),
        lambda i: jnp.gcd(i, i[::-1]),
        lambda i: jnp.lcm(i, i[::-1]),
        jnp.packbits,
    ):
        found, expected = run(f)(i), f(wide)
        np.testing.assert_array_equal(found.astype(expected.dtype), expected)
    assert run(jnp.abs)(i.astype(jnp.uint4)).tolist() == [14, 1, 0, 15, 1]


@pytest.mark.parametrize("run", [lambda f: f, fnx.jit])
@pytest.mark.parametrize("dtype", ["float4_e2m1fn", "float8_e5m2", "float8_e4m3fn"])
def test_signs_of_small_floats(run, dtype):
    x = jnp.array([-1.0, 1.0, -0.0, 2.0]).astype(dtype)
    assert run(jnp.signbit)(x).tolist() == [True, False, True, False]


def test_derivatives_go_through_conversions():
    f = lambda x: jnp.sum(x.astype(jnp.float8_e4m3fn).astype(jnp.float32) ** 2)
    np.testing.assert_array_equal(fnx.grad(f)(jnp.array([1.0, 2.0], jnp.float32)), [2.0, 4.0])


def test_what_is_asked_of_them():
    assert jnp.iinfo(jnp.int4).max == 7
    assert float(jnp.finfo(jnp.float8_e4m3fn).max) == 448
    assert jnp.issubdtype(jnp.int2, jnp.signedinteger)
    assert not jnp.issubdtype(jnp.uint4, jnp.signedinteger)
    assert jnp.issubdtype(jnp.float8_e5m2, jnp.floating)
    assert fnx.dtypes.itemsize_bits(jnp.int4) == 4
    assert jnp.int4(3).dtype == jnp.int4


def test_others_are_as_they_were_where_small_ones_are_in_use():
    """Numbers of Python, which have no dtype, go into what is evaluated."""
    assert jnp.zeros(1, "int4").dtype == jnp.int4
    square = fnx.custom_jvp(lambda x: x * x)
    square.defjvp(lambda primals, tangents: (primals[0] ** 2, 2 * primals[0] * tangents[0]))
    assert fnx.jvp(square, (3.0,), (1.0,)) == (9.0, 6.0)
    assert eval_jaxpr(fnx.make_jaxpr(lambda x: x + 1)(1.0).jaxpr, [2.0]) == [3.0]


@pytest.mark.parametrize(
    ("a", "b", "wanted", "expected"),
    [
        ("float8_e4m3fn", "float8_e5m2", "float32", "float32"),
        ("float64", "float8_e4m3fn", None, "float64"),
        ("float8_e4m3fn", "bfloat16", None, "bfloat16"),
        ("int8", "float8_e4m3fn", "float32", "float32"),
        ("int4", "int8", None, "int8"),
    ],
)
def test_products_of_small_dtypes_and_others(a, b, wanted, expected):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.integers(-3, 4, (2, 5))).astype(a)
    y = jnp.asarray(rng.integers(-3, 4, (5, 3))).astype(b)
    exact = np.asarray(x.astype("float64")) @ np.asarray(y.astype("float64"))
    dims = (((1,), (0,)), ((), ()))
    product = fnx.jit(lambda x, y: lax.dot_general(x, y, dims, preferred_element_type=wanted))(x, y)
    assert product.dtype == expected
    np.testing.assert_array_equal(np.asarray(product.astype("float64")), exact)
    if wanted:
        np.testing.assert_array_equal(jnp.matmul(x, y, preferred_element_type=wanted), exact)
    else:
        with pytest.raises(TypeError, match="there is no dtype for both"):
            jnp.matmul(x, y)


def test_halves_of_a_single_byte():
    halves = lambda x: lax.bitcast_convert_type(x, jnp.int4)
    for f in (halves, fnx.jit(halves)):
        assert f(jnp.int8(37)).tolist() == [5, 2]
        whole = lax.bitcast_convert_type(f(jnp.int8(37)), jnp.int8)
        assert (whole.shape, int(whole)) == ((), 37)


@pytest.mark.parametrize("wanted", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("dtype", ["float8_e5m2", "float8_e4m3fn", "int4"])
def test_products_and_convolutions_of_small_dtypes_in_a_wider_one(dtype, wanted):
    rng = np.random.default_rng(0)
    x, y, z = [
        jnp.asarray(rng.integers(-3, 4, s)).astype(dtype) for s in ((6, 8), (8, 5), (2, 3, 6))
    ]
    options = {"preferred_element_type": wanted}
    product = fnx.jit(lambda x, y: jnp.matmul(x, y, **options))(x, y)
    assert product.dtype == wanted
    exact = np.asarray(x.astype("float64")) @ np.asarray(y.astype("float64"))
    np.testing.assert_array_equal(np.asarray(product.astype("float64")), exact)
    convolve = lambda z: lax.conv_general_dilated(z, z[:, :, :2], (1,), "VALID", **options)
    np.testing.assert_array_equal(
        fnx.jit(convolve)(z), convolve(z.astype("float64")).astype(wanted)
    )


@pytest.mark.parametrize("run", [fnx.jit, lambda f: f], ids=["jit", "eager"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("fold", [lax.cumsum, lax.cumprod, lax.cumlogsumexp])
def test_partial_results_are_accumulated_in_float32(fold, dtype, run):
    """In 8 or 11 bits a sum of ones would stay at 256 or 2048."""
    x = jnp.ones(3000, dtype) if fold is lax.cumsum else jnp.linspace(0.99, 1.01, 3000, dtype=dtype)
    for reverse in (False, True):
        out = run(lambda x, r=reverse: fold(x, reverse=r))(x)
        expected = fold(x.astype("float32"), reverse=reverse).astype(dtype)
        np.testing.assert_array_equal(*(np.asarray(v, "float32") for v in (out, expected)))


@pytest.mark.parametrize("run", [fnx.jit, lambda f: f], ids=["jit", "eager"])
def test_tangents_of_partial_results_are_accumulated_in_float32(run):
    x, t = jnp.ones(3000, "bfloat16"), jnp.ones(3000, "bfloat16")
    _, tangents = run(lambda x, t: fnx.jvp(jnp.cumprod, (x,), (t,)))(x, t)
    assert tangents.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(tangents, "float32"), np.arange(1, 3001), rtol=4e-3)
