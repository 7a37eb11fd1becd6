"""NumPy's functions in corners: empty, clipped, traced, ragged and overflowing arguments."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import errors, lax

same = partial(close, atol=1e-14)

# --- reductions --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_reductions_check_initial_and_where(name):
    fn = getattr(jnp, name)
    with pytest.raises(ValueError, match="initial"):
        fn(jnp.ones((2, 3)), axis=-1, initial=jnp.zeros(2))
    with pytest.raises(ValueError, match="where"):
        fn(jnp.ones(3), where=jnp.ones(3, int), initial=0.0)


@pytest.mark.parametrize("axis", [(1, 2), (2, 0), (2, 1, 0), (0, 2)])
def test_average_with_weights_of_axes_in_any_order(axis):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4))
    w = rng.random(tuple(x.shape[k] for k in axis))
    same(jnp.average(x, axis, w), np.average(x, axis, w))
    same(fnx.jit(lambda x, w: jnp.average(x, axis, w))(x, w), np.average(x, axis, w))


def test_cumulative_sums_of_truths():
    x = jnp.array([0.0, 0.1, 0.0])
    assert jnp.cumsum(x, dtype=bool).tolist() == [False, True, True]
    assert jnp.cumsum(x != 0).tolist() == [0, 1, 1]


def test_covariance():
    assert np.isnan(jnp.cov(jnp.zeros((3, 0)))).all()
    assert jnp.cov(jnp.ones((1, 3)), rowvar=False).shape == (3, 3)
    with pytest.raises(ValueError, match="dtype"):
        jnp.cov(jnp.arange(5), dtype=int)
    assert jnp.corrcoef(jnp.arange(5), jnp.arange(5) ** 2, dtype="float32").dtype == np.float32


# --- elements by position ----------------------------------------------------------------------


def test_piecewise_takes_the_last_condition_that_holds():
    x = np.arange(-3.0, 4.0)
    conditions = [x > -2, x > 1]
    same(jnp.piecewise(x, conditions, [1, 2, 3]), np.piecewise(x, conditions, [1, 2, 3]))


def test_put_clips_and_wraps():
    x = np.zeros(4)
    for mode in ("clip", "wrap"):
        wanted = x.copy()
        np.put(wanted, [-2, 6], [1.0, 2.0], mode=mode)
        same(jnp.put(x, np.array([-2, 6]), np.array([1.0, 2.0]), mode=mode, inplace=False), wanted)


@pytest.mark.parametrize(("wrap", "wanted"), [(True, [30, 20]), (False, [10, 10])])
def test_take_along_axis_counts_from_the_end_or_clips(wrap, wanted):
    x, at = jnp.array([10, 20, 30]), jnp.array([-1, -2])
    found = jnp.take_along_axis(x, at, 0, mode="clip", wrap_negative_indices=wrap)
    assert found.tolist() == wanted


def test_put_along_axis_of_the_flat_array():
    x, at = np.zeros((2, 3)), np.array([4, -6])
    wanted = x.copy()
    np.put_along_axis(wanted, at, np.array([1.0, 2.0]), axis=None)
    same(jnp.put_along_axis(x, at, np.array([1.0, 2.0]), axis=None, inplace=False), wanted)
    with pytest.raises(ValueError, match="inplace"):
        jnp.put_along_axis(x, at, 1.0, axis=None)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 2)])
def test_fill_diagonal_repeats_values(shape):
    wanted, values = np.zeros((3, 5)), np.arange(1.0, 1 + math.prod(shape)).reshape(shape)
    np.fill_diagonal(wanted, values)
    same(jnp.fill_diagonal(np.zeros((3, 5)), values, inplace=False), wanted)


def test_insert_at_a_traced_position():
    x = np.arange(6.0).reshape(2, 3)
    for k in (-2, 0, 3):
        found = fnx.jit(lambda k: jnp.insert(x, k, 9.0, axis=1))(k)
        same(found, np.insert(x, k, 9.0, axis=1))
    with pytest.raises(errors.ConcretizationTypeError):
        fnx.jit(lambda k: jnp.insert(x, k, 9.0, axis=1))(np.array([0, 1]))


def test_what_depends_on_traced_values_says_so():
    for fn in (
        lambda x: jnp.compress(x, x),
        jnp.trim_zeros,
        lambda x: jnp.ravel_multi_index((x,), (3,)),
        lambda x: jnp.choose(x, [x, x]),
        lambda x: x.tolist(),
    ):
        with pytest.raises(errors.ConcretizationTypeError):
            fnx.jit(fn)(np.arange(3))


@pytest.mark.parametrize("trim", ["f", "b", "fb"])
@pytest.mark.parametrize("axis", [None, 0, -1])
def test_trim_zeros_of_hyperplanes(trim, axis):
    x = np.zeros((4, 5))
    x[1:3, 2:4] = 1
    for y in (x, x * 0):
        same(jnp.trim_zeros(y, trim, axis), np.trim_zeros(y, trim, axis))


def test_take_from_an_empty_axis():
    assert jnp.take(jnp.ones((2, 0)), jnp.array([], int), axis=1).shape == (2, 0)
    with pytest.raises(IndexError, match="empty"):
        jnp.take(jnp.ones((2, 0)), jnp.array([0]), axis=1)


def test_an_empty_ellipsis_separates_indices():
    x, i = np.arange(60.0).reshape(3, 4, 5), np.array([0, 1])
    for index in ((slice(None), i, ..., i), (..., i, slice(None), i), (i, ..., 0, None)):
        same(jnp.asarray(x)[index], x[index])
        same(fnx.jit(lambda x, index=index: x[index])(x), x[index])
        y = x.copy()
        y[index] = x[index] + 1
        same(fnx.jit(lambda x, v, index=index: x.at[index].set(v))(x, x[index] + 1), y)
    with pytest.raises(IndexError, match="size 0"):
        fnx.jit(lambda x, i: x[0, i])(np.ones((2, 0)), 0)


def test_apply_as_often_as_named():
    x, i = np.arange(1.0, 5.0), np.array([0, 0, -1, 9])
    wanted = [100.0, 2.0, 3.0, 40.0]
    ten = lambda v: v * 10
    same(jnp.asarray(x).at[i].apply(ten), wanted)
    same(fnx.jit(lambda x: x.at[i].apply(ten))(x), wanted)
    same(fnx.jit(lambda x, i: x.at[i].apply(ten))(x, i), wanted)
    same(fnx.grad(lambda x: x.at[i].apply(lambda v: v**2).sum())(jnp.asarray(x)), [4, 1, 1, 8])


# --- methods of ufuncs -------------------------------------------------------------------------

UFUNCS = [n for n in dir(jnp) if isinstance(getattr(np, n, None), np.ufunc)]


def test_elementwise_functions_are_ufuncs():
    for name in UFUNCS:
        fn = getattr(jnp, name)
        if isinstance(fn, jnp.ufunc):
            assert (fn.nin, fn.nout) == (getattr(np, name).nin, getattr(np, name).nout)
    assert isinstance(jnp.add, jnp.ufunc)
    assert not isinstance(jnp.sum, jnp.ufunc)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "logaddexp", "hypot", "subtract"])
def test_methods_of_ufuncs(name):
    fn, np_fn = getattr(jnp, name), getattr(np, name)
    rng = np.random.default_rng(3)
    x = rng.random((3, 20)) + 0.5
    same(fn.reduce(x, axis=1), np_fn.reduce(x, axis=1))
    same(fn.reduce(x[:, :4], axis=0, keepdims=True), np_fn.reduce(x[:, :4], axis=0, keepdims=True))
    same(fnx.jit(lambda x: fn.reduce(x, 1, initial=2.0))(x), np_fn.reduce(x, 1, initial=2.0))
    same(fn.accumulate(x, axis=1), np_fn.accumulate(x, axis=1))
    same(fn.outer(x[0], x), np_fn.outer(x[0], x))
    at = np.array([0, 7, 3, 12])
    same(fnx.jit(lambda x, at: fn.reduceat(x, at, axis=1))(x, at), np_fn.reduceat(x, at, axis=1))
    keep = x > 0.7
    if np_fn.identity is not None:
        same(fn.reduce(x, 1, where=keep), np_fn.reduce(x, 1, where=keep))
    same(fn.reduce(x, 1, initial=1.0, where=keep), np_fn.reduce(x, 1, initial=1.0, where=keep))


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_folds_of_ufuncs_are_strong_and_take_integers_and_bools(wrap):
    for f in (jnp.logaddexp, jnp.add, jnp.maximum):
        for method in (f.reduce, f.accumulate):
            found = wrap(method)(jnp.array([2]) * 2.0)
            assert (found.dtype, fnx.typeof(found).weak_type) == (float, False)
    k = np.array([1, 5, 2])
    same(wrap(jnp.logaddexp.accumulate)(k), np.logaddexp.accumulate(k))
    for f in (jnp.logaddexp.accumulate, jnp.logaddexp.reduce):
        assert wrap(f)(k.astype("int16")).dtype == np.float32
    assert wrap(jnp.maximum.accumulate)(k > 1).tolist() == [False, True, True]


def test_a_function_of_numbers_as_a_ufunc():
    fn = jnp.frompyfunc(lambda x, y: x + 2 * y, 2, 1, identity=0)
    assert (fn.nin, fn.nout, fn.identity) == (2, 1, 0)
    assert isinstance(fn, jnp.ufunc)
    same(fn(np.ones((2, 1)), np.ones(3)), np.full((2, 3), 3.0))
    same(fn.reduce(np.arange(30.0)), 2 * 435.0)
    same(jnp.bitwise_and.reduce(np.array([True, False])), False)
    with pytest.raises(ValueError, match="initial"):
        jnp.subtract.reduce(np.zeros(0))


def test_vectorize_passes_none_through():
    fn = lambda x, y: x if y is None else x + y
    x = np.arange(3.0)
    same(jnp.vectorize(fn)(x, None), x)
    same(jnp.vectorize(fn)(x, x), 2 * x)
    with pytest.raises(ValueError, match="None"):
        jnp.vectorize(fn, signature="(k),(k)->(k)")(x, None)
    with pytest.raises(ValueError, match="excluded"):
        jnp.vectorize(fn, excluded={-1})


def test_einsum_sums_what_it_broadcasts():
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(3, 4, 5)), rng.normal(size=(3, 1, 6))
    same(jnp.einsum("cij,cjk->cik", x, y), np.einsum("cij,cjk->cik", x, y))


# --- ranges and grids --------------------------------------------------------------------------


@pytest.mark.parametrize("k", [-(2**100), -2, 0, 3, 2**100])
def test_diagonals_far_away(k):
    same(jnp.eye(3, 4, k), np.eye(3, 4, k=max(min(k, 9), -9)))
    same(jnp.tri(3, 4, k), np.tri(3, 4, k=max(min(k, 9), -9)))


def test_traced_diagonal():
    for fn, np_fn in ((jnp.eye, np.eye), (jnp.tri, np.tri)):
        same(fnx.jit(lambda k, fn=fn: fn(4, 3, k))(-1), np_fn(4, 3, k=-1))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_geomspace(axis):
    a, b = np.array([1.0, -2.0]), np.array([16.0, -32.0])
    same(jnp.geomspace(a, b, 5, axis=axis), np.geomspace(a, b, 5, axis=axis))
    same(jnp.geomspace(1j, 8j, 4), np.geomspace(1j, 8j, 4))


HOW = ["-1", "0,2", "1,2,0", "0,4,-1", "0,4,-2", "0,4,1", "0,3,-3", "r", "c"]


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
@pytest.mark.parametrize("name", ["r_", "c_"])
@pytest.mark.parametrize("how", HOW)
def test_joining_by_directions(name, how):
    parts = (how, [1, 2, 3], [4, 5, 6])
    same(getattr(jnp, name)[parts], getattr(np, name)[parts])


def test_joining_and_grids_refuse_or_are_empty():
    with pytest.raises(ValueError, match="how to join"):
        jnp.r_["sideways", [1, 2]]
    assert jnp.mgrid[()].shape == (0,)
    assert jnp.ogrid[()] == ()
    assert jnp.mgrid[:].shape == np.mgrid[:].shape
    with pytest.raises(ValueError, match="order"):
        jnp.arange(1j)


# --- numerical functions -----------------------------------------------------------------------


def test_derivatives_of_sinc_and_i0_at_zero():
    f = jnp.sinc
    for wanted in (0.0, -(math.pi**2) / 3, 0.0, math.pi**4 / 5):
        f = fnx.grad(f)
        assert math.isclose(f(0.0), wanted, abs_tol=1e-12, rel_tol=1e-12)
    assert math.isclose(jnp.sinc(0.1), np.sinc(0.1), rel_tol=1e-15)
    for i0 in (jnp.i0, fnx.scipy.special.i0):
        assert fnx.grad(i0)(0.0) == 0.0
        assert math.isclose(fnx.grad(fnx.grad(i0))(0.0), 0.5)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_derivatives_of_sinc_far_from_zero(dtype):
    # What the series near 0 would be there overflows.
    x = jnp.array([11.0, -40.0, 0.25 * float(jnp.finfo(dtype).max)], dtype)
    found = np.asarray(fnx.vmap(fnx.grad(jnp.sinc))(x), float)
    assert np.all(np.abs(found[:2] - [-1 / 11, -1 / 40]) < 5e-3)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_extrema_of_complex_numbers_are_nan_where_a_part_is(wrap):
    z = jnp.array([[1 + 1j, 2 - 1j], [complex(np.nan, 1), 0], [complex(3, np.nan), 5]])
    for f in (jnp.max, jnp.min):
        found = np.asarray(wrap(lambda z, f=f: f(z, 1))(z))
        assert np.isnan(found).tolist() == [False, True, True]
        assert found[1].imag == 1
        assert np.isnan(wrap(f)(z))


@pytest.mark.parametrize("dtype", ["int8", "int64"])
def test_zero_to_a_negative_integer_power_is_zero(dtype):
    x = jnp.array([[0], [1], [-1]], dtype)
    y = jnp.array([-128, -127, 0, 5], dtype)
    wanted = [[0, 0, 1, 0], [1, 1, 1, 1], [1, -1, 1, -1]]
    assert fnx.jit(jnp.power)(x, y).tolist() == jnp.power(x, y).tolist() == wanted


def test_logaddexp_of_complex_numbers_is_principal():
    rng = np.random.default_rng(1)
    x, y = (5 * (rng.normal(size=20) + 1j * rng.normal(size=20)) for _ in range(2))
    same(jnp.logaddexp(x, y), np.log(np.exp(x) + np.exp(y)))
    found = jnp.logaddexp2(x / 5, y / 5)
    same(found, np.log(2 ** (x / 5) + 2 ** (y / 5)) / np.log(2))


def test_interp_extrapolates():
    xp, fp = np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 50.0])
    found = jnp.interp(np.array([0.5, 2.5, 4.0]), xp, fp, left="extrapolate", right="extrapolate")
    same(found, [5.0, 35.0, 80.0])
    same(jnp.interp(1.5, xp, fp * 1j, period=4), np.interp(1.5, xp, fp * 1j, period=4))
    for bad in ({"left": "interpolate"}, {"period": np.ones(1)}):
        with pytest.raises(ValueError, match=r"left|period"):
            jnp.interp(0.0, xp, fp, **bad)


@pytest.mark.parametrize("shape", [(3, 1, 5), (5,), (4, 5), (3, 4, 5)])
def test_trapezoid_of_varying_steps(shape):
    rng = np.random.default_rng(2)
    y, dx = rng.normal(size=(3, 5, 5)), rng.random(shape)
    same(jnp.trapezoid(y, dx=dx, axis=1), np.trapezoid(y, dx=dx, axis=1))


def test_small_disagreements_with_numpy():
    same(jnp.bincount(np.array([0, 0])), np.bincount([0, 0]))
    assert jnp.bincount(np.array([-3])).tolist() == [1]
    bits = np.array([[5, 255]], "uint8")
    for count in (3, -2, 20):
        same(jnp.unpackbits(bits, 1, count), np.unpackbits(bits, axis=1, count=count))
    edges = [np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0, 5.0])]
    x, y = np.array([0.5, 2.0, 2.5]), np.array([1.0, 2.5, 4.0])
    same(jnp.histogram2d(x, y, edges)[0], np.histogram2d(x, y, edges)[0])
    found = jnp.setdiff1d(np.array([1, 2, 3], "int16"), np.array([2.0], "float32"))
    assert found.dtype == "int16"
    assert found.tolist() == [1, 3]
    found = jnp.setdiff1d(jnp.zeros(0), jnp.ones(2), size=2, fill_value=7)
    assert found.tolist() == [7.0, 7.0]
    same(jnp.polymul([0.0], [1.0, 2.0], trim_leading_zeros=True), [0.0, 0.0])
    assert int(jnp.lcm(np.int8(-126), np.int8(4))) == int(np.lcm(np.int8(-126), np.int8(4)))
    same(jnp.spacing(np.array([-1.0, 1.0], "f2")), np.spacing(np.array([-1.0, 1.0], "f2")))


def test_more_small_disagreements_with_numpy():
    x = np.arange(6.0).reshape(2, 3)
    same(jnp.diff(x, 0, prepend=1.0), np.diff(x, 0, prepend=1.0))
    assert int(jnp.lexsort((np.float64(1), np.float64(2)))) == 0
    assert jnp.linspace(np.zeros(3), 1.0, 0, retstep=True)[1].shape == ()
    for mode in ("reflect", "symmetric"):
        wanted = np.pad(x[:1], 2, mode, reflect_type="odd")
        same(jnp.pad(x[:1], 2, mode, reflect_type="odd"), wanted)
    for decimals in (40, 1000):
        assert jnp.round(np.array([1.5, -2e30], np.float32), decimals).tolist() == [
            1.5,
            np.float32(-2e30),
        ]
    same(jnp.round(x, -1000), 0 * x)
    with pytest.raises(ValueError, match="correction"):
        jnp.var(x, ddof=1, correction=0)
    half = x.astype("float16")
    assert jnp.var(half, mean=half.mean()).dtype == np.float16


def test_operators_leave_containers_alone():
    class Pair(NamedTuple):
        x: object

        def __rmul__(self, other):
            return Pair(other * self.x)

    assert isinstance(jnp.ones(2) * Pair(2.0), Pair)
    for other in ([1.0, 2.0], {1.0}, {1: 2}, (1.0, 2.0)):
        with pytest.raises(TypeError, match=type(other).__name__):
            jnp.ones(2) == other  # noqa: B015


def test_errors_of_shapes_and_axes():
    x = jnp.ones((3, 2, 2))
    for axes in (([0], [0, 1]), ("bad", "axes"), "bad"):
        with pytest.raises(TypeError, match="tensordot"):
            jnp.tensordot(x, jnp.ones(2), axes)
    with pytest.raises(TypeError, match="tensordot"):
        jnp.tensordot(x, jnp.ones(2), 2)
    with pytest.raises(TypeError, match="negative"):
        jnp.ones((-1, 1))
    with pytest.raises(ValueError, match="order"):
        jnp.clip(1j, 0, 1)
    with pytest.raises(TypeError, match="look for"):
        assert "a" in jnp.arange(3)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit, fnx.vmap], ids=["eager", "jit", "vmap"])
def test_what_chooses_does_not_make_results_strong(wrap):
    which = np.array([[True, False, True], [False, False, True]])

    def f(mask):
        weak = jnp.where(mask, 1.0, -1.0)
        k = jnp.argmax(mask)
        return (
            weak, weak[k], jnp.take(weak, k), weak[jnp.array([0, 1])],
            lax.dynamic_slice_in_dim(weak, k, 2), lax.select_n(mask, weak, weak),
            weak.at[k].set(2.0),
            lax.cond(mask.ravel()[0], lambda: 1.0, lambda: 2.0), lax.stop_gradient(weak),
        )  # fmt: skip

    single = jnp.ones((), "float32")
    for y in wrap(lambda mask: [single * x for x in f(mask)])(which):
        assert y.dtype == np.float32

    def updated(mask):
        weak = f(mask)[0]
        return lax.dynamic_update_slice(weak, weak[:1], (0,) * weak.ndim)

    assert (single * wrap(updated)(which)).dtype == np.float64  # this one does, as in JAX


def test_a_strong_branch_makes_the_result_strong():
    f = lambda p: lax.cond(p, lambda: 2.0, lambda: jnp.float64(3.0))
    for run in (f, fnx.jit(f)):
        assert not run(True).weak_type
        assert (run(True) * jnp.float32(1)).dtype == np.float64
    assert lax.stop_gradient(2.0).weak_type


def test_positions_that_are_no_integers():
    rows, columns = jnp.unravel_index(jnp.array([1.0, 3.7, -1.0, 9.0]), (2, 2))
    np.testing.assert_array_equal(rows, [0, 1, 1, 1])
    np.testing.assert_allclose(columns, [1, 1.7, 1, 1])
