"""Functions of whole arrays against NumPy: each expression is evaluated with NumPy and with fnx.numpy.

In the expressions `m` is the module, `a` makes an array of a NumPy one.
"""

import functools

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.errors import ConcretizationTypeError, ShapeError

rng = np.random.default_rng(0)
DATA = {
    "A": rng.normal(size=(3, 4)),
    "B": rng.normal(size=(3, 4)),
    "V": rng.normal(size=5),
    "I": rng.integers(-5, 6, size=(3, 4)),
    "J": rng.integers(1, 6, size=(3, 4)),
    "M": rng.normal(size=(4, 4)),
    "T": rng.normal(size=(2, 3, 4)),
    "W": np.array([0.1, 0.5, 0.9, 2.0]),
    "i": np.array([0, 2, 1]),
}
DATA |= {
    "P": np.abs(DATA["A"]) + 0.1,
    "C": DATA["A"] + 1j * DATA["B"],
    "S": DATA["M"] @ DATA["M"].T + 4 * np.eye(4),
    "K": DATA["A"] > 0,
    "N": np.where(DATA["A"] > 1, np.nan, DATA["A"]),
}

CREATION = """
m.arange(5) | m.arange(5.0) | m.arange(1, 7, 2) | m.arange(0, 1, 0.25)
m.arange(3, dtype="float32") | m.arange(5, 0, -1) | m.linspace(0, 1, 5)
m.linspace(0, 1, 5, endpoint=False) | m.linspace(a(A[0]), a(A[1]), 3)
m.linspace(a(A[0]), a(A[1]), 3, axis=1) | m.logspace(0, 2, 5) | m.geomspace(1, 100, 4) | m.eye(3)
m.eye(3, 4, 1) | m.eye(2, dtype=int) | m.identity(2) | m.tri(3, 4, -1, dtype=float) | m.tril(a(M), 1)
m.triu(a(T), -1) | m.diag(a(V)) | m.diag(a(V), 2) | m.diag(a(V), -1) | m.diag(a(A), 1)
m.diagonal(a(T), 1, 1, 2) | m.diagflat(a(A)) | m.zeros(3) | m.zeros((2, 3), int) | m.ones(())
m.full((2,), 3) | m.full_like(a(I), 2) | m.zeros_like(a(I)) | m.ones_like(a(C)) | m.array([1, 2])
m.array([[1, 2], [3, 4.5]]) | m.array([True, False]) | m.array([]) | m.array(A, ndmin=3)
m.array([a(A[0]), a(A[1])]) | m.array([1j, 2]) | m.array((1, 2), dtype="float32")
m.indices((2, 3)) | m.meshgrid(a(V), a(A[0]))
m.meshgrid(a(V), a(A[0]), indexing="ij", sparse=True) | m.tril_indices(3) | m.triu_indices(3, 1)
m.diag_indices(3) | m.vander(a(V)) | m.vander(a(V), 3, increasing=True) | m.hanning(6)
m.hamming(6) | m.blackman(6) | m.bartlett(6) | m.kaiser(6, 2.0) | m.mgrid[0:3, 1:3] | m.r_[0:3, 5]
m.c_[a(V), a(V)] | m.fromfunction(lambda i, j: i + j, (2, 3)) | m.ix_(a(i), a(i))
"""
MOVING = """
m.reshape(a(A), (2, 6)) | m.reshape(a(A), -1) | m.reshape(a(A), (2, -1), order="F")
m.ravel(a(A), "F") | m.transpose(a(T)) | m.transpose(a(T), (1, 0, 2)) | m.moveaxis(a(T), 0, -1)
m.moveaxis(a(T), (0, 1), (-1, 0)) | m.swapaxes(a(T), 0, 2) | m.rollaxis(a(T), 2)
m.squeeze(a(T[:1])) | m.expand_dims(a(A), (0, -1)) | m.atleast_1d(3.0) | m.atleast_2d(a(V))
m.atleast_3d(a(A)) | m.broadcast_to(a(V), (2, 5)) | m.broadcast_arrays(a(A), a(A[0]))
m.concatenate([a(A), a(I)], axis=1) | m.concatenate([a(A), a(B)], axis=None)
m.stack([a(A), a(B)], -1) | m.vstack([a(V), a(V)]) | m.hstack([a(A), a(B)]) | m.dstack([a(A), a(B)])
m.column_stack([a(V), a(V)]) | m.block([[a(A), a(B)], [a(B), a(A)]]) | m.append(a(A), a(V))
m.split(a(A), 2, axis=1) | m.split(a(V), [1, 3]) | m.array_split(a(V), 3) | m.hsplit(a(A), 2)
m.vsplit(a(A), 3) | m.dsplit(a(T), 2) | m.tile(a(A), (2, 1, 3)) | m.repeat(a(A), 3, axis=1)
m.repeat(a(V), np.array([1, 0, 2, 1, 1])) | m.roll(a(A), 1) | m.roll(a(A), -2, axis=1)
m.roll(a(A), (1, 2), axis=(0, 1)) | m.flip(a(A)) | m.fliplr(a(A)) | m.rot90(a(A))
m.rot90(a(T), 3, (1, 2)) | m.resize(a(A), (5, 4)) | m.where(a(K), a(A), a(B))
m.where(a(K), a(A), 0.0) | m.select([a(A > 1), a(A > 0)], [a(A), a(B)], 5.0)
m.take(a(A), a(i), axis=1) | m.take(a(A), 2) | m.take_along_axis(a(A), m.argsort(a(A), 1), 1)
m.choose(a(i), [a(V[:3]), a(V[2:]), a(V[1:4])])
m.compress(np.array([True, False, True]), a(A), axis=0) | m.extract(a(K), a(A))
m.insert(a(V), 2, 9.0) | m.insert(a(A), 1, a(V[:4]), axis=0)
m.insert(a(V), np.array([1, 3]), np.array([7.0, 8.0])) | m.delete(a(V), 2) | m.delete(a(V), [])
m.delete(a(A), np.array([0, 2]), axis=1) | m.unravel_index(a(np.array([5, 7])), (3, 4))
m.trim_zeros(a(np.array([0, 1.0, 0])))
m.ravel_multi_index((a(np.array([1, 2])), a(np.array([0, 3]))), (3, 4)) | m.packbits(a(K))
m.unpackbits(m.packbits(a(K))) | m.pad(a(A), ((1, 2), (0, 3)), constant_values=((1, 2), (3, 4)))
m.pad(a(A), 1, constant_values=7) | m.pad(a(A), 2, mode="edge") | m.pad(a(A), 5, mode="reflect")
m.pad(a(A), 7, mode="symmetric") | m.pad(a(A), (1, 6), mode="wrap") | m.pad(a(A), 2, mode="maximum")
m.pad(a(A), 2, mode="mean") | m.pad(a(A), 2, mode="median")
m.pad(a(A), 2, mode="minimum", stat_length=2) | m.pad(a(A), 2, mode="linear_ramp", end_values=1.0)
m.pad(a(A), 2, mode="reflect", reflect_type="odd")
m.pad(a(A), 2, mode="symmetric", reflect_type="odd")
"""
REDUCTIONS = """
m.sum(a(A)) | m.sum(a(A), 0) | m.sum(a(A), (0, 1)) | m.sum(a(A), 1, keepdims=True) | m.sum(a(K))
m.sum(a(A), 1, where=K) | m.sum(a(A), initial=2.0) | m.sum(a(A), dtype="float32") | m.prod(a(A), 0)
m.max(a(A), 1) | m.min(a(A)) | m.max(a(A), 1, initial=0.0, where=K) | m.mean(a(A), 1) | m.mean(a(I))
m.mean(a(A), 1, where=a(K)) | m.std(a(A), 0, ddof=1) | m.var(a(C)) | m.any(a(K), 1) | m.all(a(K), 0)
m.argmax(a(A)) | m.argmin(a(A), 1) | m.argmax(a(A), 0, keepdims=True) | m.cumsum(a(A))
m.cumsum(a(A), 1) | m.cumprod(a(A), 0) | m.ptp(a(A), 1) | m.count_nonzero(a(I), 1)
m.nansum(a(N), 1) | m.nanmax(a(N), 0) | m.nanmin(a(N)) | m.nanmean(a(N), 0) | m.nanstd(a(N), 1)
m.nanvar(a(N)) | m.nanprod(a(N)) | m.nanargmax(a(N), 1) | m.nancumsum(a(N))
m.average(a(A), 0, weights=a(V[:3])) | m.median(a(A), 0) | m.nanmedian(a(N), 1)
m.quantile(a(A), 0.3) | m.quantile(a(A), a(W[:3]), axis=1) | m.percentile(a(A), 30, axis=(0, 1))
m.nanpercentile(a(N), 30) | m.quantile(a(A), 0.35, method="midpoint")
m.quantile(a(A), a(W[:3]), axis=1, method="inverted_cdf") | m.quantile(a(N), 0.5, method="inverted_cdf")
m.nanquantile(a(N), 0.4, axis=1, method="inverted_cdf", weights=a(A * A), keepdims=True)
m.nanpercentile(a(N), 60, method="inverted_cdf", weights=a(A * A))
m.quantile(a(A), 0.7, axis=0, method="inverted_cdf", weights=a(W[:3]))
m.quantile(a(A), 0.4, axis=(0, 1), method="inverted_cdf", weights=a(A * A))
m.percentile(a(N), 60, axis=1, method="inverted_cdf", weights=a(A * A))
m.quantile(a(A), 0.35, axis=1, keepdims=True) | m.cov(a(A)) | m.cov(a(A), a(B), ddof=0)
m.corrcoef(a(A)) | m.isclose(a(A), a(A + 1e-9)) | m.diff(a(V), 2) | m.diff(a(A), prepend=0.0)
m.ediff1d(a(V)) | m.gradient(a(V)) | m.gradient(a(A))
m.gradient(a(V), np.array([0.0, 1, 3, 4, 7])) | m.gradient(a(V), edge_order=2) | m.trapezoid(a(A))
m.trapezoid(a(V), np.cumsum(V)) | m.unwrap(a(V * 5)) | m.interp(a(A), a(W), a(V[:4]))
m.interp(a(A), a(W), a(V[:4]), period=1.5) | m.convolve(a(V), a(W)) | m.convolve(a(V), a(W), "same")
m.clip(a(A), -0.5, 0.5) | m.correlate(a(V), a(W)) | m.correlate(a(W), a(V), "same")
m.correlate(a(V), a(W), "full") | m.round(a(A), 2) | m.polyval(a(V), a(A)) | m.polyadd(a(V), a(W))
m.polymul(a(V), a(W)) | m.polyder(a(V)) | m.polyint(a(V)) | m.poly(a(V))
m.polyfit(np.arange(5.0), a(V), 2) | m.sort(m.abs(m.roots(a(V)))) | m.nan_to_num(a(N))
m.apply_over_axes(m.sum, a(T), [0, 2]) | m.apply_over_axes(lambda x, k: x.sum(k), a(T), [0, 2])
m.piecewise(a(A), [a(A < 0), a(A > 1)], [-1.0, lambda x: x * 2, lambda x: x + 1])
m.apply_along_axis(m.cumsum, 1, a(A))
"""
SORTING = """
m.sort(a(A)) | m.sort(a(A), axis=0) | m.sort(a(N), axis=None) | m.sort(a(C)) | m.argsort(a(A))
m.argsort(a(N), axis=0) | m.lexsort((a(I[0]), a(J[0]))) | m.searchsorted(a(W), a(A)).astype(int)
m.searchsorted(a(W), a(W), side="right").astype(int) | m.digitize(a(A), a(W)).astype(int) | m.nonzero(a(K))
m.flatnonzero(a(I)) | m.argwhere(a(K)) | m.unique(a(I)) | m.unique(a(I), return_counts=True)
m.unique(a(I), return_index=True, return_inverse=True, return_counts=True)
m.unique(a(I % 2), axis=0) | m.union1d(a(I), a(J)) | m.intersect1d(a(I), a(J))
m.setdiff1d(a(I), a(J)) | m.setxor1d(a(I), a(J)) | m.isin(a(I), a(J)) | m.bincount(a(J.ravel()))
m.bincount(a(J.ravel()), weights=a(A.ravel()), minlength=9) | m.histogram(a(P), 4, density=True)
m.histogram(a(A), np.array([-1.0, 0, 2]), weights=a(P))
"""
PRODUCTS = """
m.dot(a(A), a(B.T)) | m.dot(a(V), a(V)) | m.dot(a(T), a(M)) | a(A) @ a(B.T)
m.matmul(a(T), a(T.transpose(0, 2, 1))) | m.matmul(a(A), a(T.transpose(0, 2, 1)))
m.matmul(a(T), a(V[:4])) | m.matmul(a(V[:3]), a(T)) | m.matmul(a(I), a(J.T))
m.matmul(a(K), a(K.T)) | m.matmul(a(T[:, None]), a(T.transpose(0, 2, 1))) | m.vdot(a(C), a(C))
m.inner(a(A), a(B)) | m.outer(a(V), a(A))
m.tensordot(a(T), a(A), ([1, 2], [0, 1])) | m.kron(a(A), a(B))
m.cross(a(A[:, :3]), a(B[:, :3])) | m.trace(a(T), 0, 0, 2) | m.vecdot(a(C), a(C))
m.einsum("ij,kj->ik", a(A), a(B)) | m.einsum("ij,ij->i", a(A), a(B)) | m.einsum("ii", a(M))
m.einsum("ii->i", a(M)) | m.einsum("ij,jk,kl->il", a(A), a(M), a(M))
m.einsum("...ij,...jk->...ik", a(T), a(T.transpose(0, 2, 1))) | m.einsum("ijk->", a(T))
m.einsum("ij,j", a(A), a(V[:4])) | m.einsum("ijk,ijk->ik", a(T), a(T))
m.einsum(a(A), [0, 1], a(B), [2, 1], [0, 2]) | m.einsum("ij,ik,il->jkl", a(A), a(A), a(B))
m.linalg.norm(a(A)) | m.linalg.norm(a(V), 3) | m.linalg.norm(a(V), np.inf)
m.linalg.norm(a(A), axis=1, keepdims=True) | m.linalg.norm(a(A), "nuc") | m.linalg.norm(a(A), 2)
m.linalg.norm(a(A), 1) | m.linalg.norm(a(T), "fro", axis=(1, 2)) | m.linalg.inv(a(M))
m.linalg.cholesky(a(S)) | m.linalg.solve(a(M), a(V[:4])) | m.linalg.solve(a(M), a(A.T))
m.linalg.det(a(M)) | m.linalg.det(a(M[:2, :2])) | m.linalg.slogdet(a(M)) | m.linalg.eigh(a(S))[0]
m.linalg.eigvalsh(a(S)) | m.sort(m.linalg.eigvals(a(M))) | m.abs(m.linalg.qr(a(A))[1])
m.linalg.svd(a(A), compute_uv=False) | m.linalg.pinv(a(A))
m.linalg.lstsq(a(A.T), a(V[:4]), rcond=None)[0] | m.linalg.matrix_power(a(M), 3)
m.linalg.matrix_power(a(M), -2) | m.linalg.matrix_rank(a(A))
m.linalg.multi_dot([a(A), a(M), a(V[:4])]) | m.linalg.cond(a(M))
m.linalg.tensorsolve(np.eye(6).reshape(2, 3, 6), a(A[:2, :3])) | m.fft.fft(a(A)) | m.fft.ifft(a(C))
m.fft.rfft(a(A)) | m.fft.irfft(a(C)) | m.fft.fft2(a(T)) | m.fft.fftn(a(T)) | m.fft.rfftn(a(T))
m.fft.irfftn(a(T + 0j)) | m.fft.fft(a(A), n=6, axis=0) | m.fft.fft(a(A), norm="ortho")
m.fft.irfft(a(C), n=5, norm="forward") | m.fft.fftfreq(5, 0.1) | m.fft.rfftfreq(6)
m.fft.fftshift(a(A)) | m.fft.ifftshift(a(A), axes=1) | m.fft.hfft(a(C)) | m.fft.ihfft(a(A))
"""


def expressions(text):
    return [e.strip() for line in text.strip().splitlines() for e in line.split(" | ")]


EXPRESSIONS = [e for t in (CREATION, MOVING, REDUCTIONS, SORTING, PRODUCTS) for e in expressions(t)]
# What the shape of the result, or an argument that must be known, depends on cannot be traced.
UNTRACED = (
    "nonzero unique union1d intersect1d setdiff1d setxor1d bincount argwhere extract compress( choose "
    "trim_zeros roots ravel_multi_index"
).split()


def evaluate(text, module, convert):
    return eval(text, {"m": module, "a": convert, "np": np, **DATA})


def check(found, expected):
    found, expected = fnx.tree.leaves(found), fnx.tree.leaves(expected)
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_agrees_with_numpy(text):
    with np.errstate(all="ignore"):
        check(evaluate(text, jnp, jnp.asarray), evaluate(text, np, np.asarray))


@pytest.mark.parametrize("text", [t for t in EXPRESSIONS if not any(w in t for w in UNTRACED)])
def test_traces_to_what_it_evaluates_to(text):
    arrays = []

    def traced(*xs):
        rest = iter(xs)
        return fnx.tree.leaves(
            evaluate(text, jnp, lambda x: next(rest) if xs else arrays.append(x) or jnp.asarray(x))
        )

    expected = traced()
    avals = fnx.eval_shape(traced, *arrays)
    assert [(a.shape, a.dtype) for a in avals] == [(x.shape, x.dtype) for x in expected]
    with fnx.disable_jit():
        jaxpr = fnx.make_jaxpr(traced)(*arrays)
    check(
        fnx.core.jaxpr.eval_jaxpr(jaxpr.jaxpr, [*jaxpr.consts, *map(jnp.asarray, arrays)]), expected
    )


# --- lengths that are static -------------------------------------------------------------------


def test_static_sizes():
    x = np.array([3, 0, 1, 0, 3])
    run = fnx.jit
    check(run(lambda x: jnp.nonzero(x, size=4, fill_value=9)[0])(x), np.array([0, 2, 4, 9]))
    check(run(lambda x: jnp.unique(x, size=4, fill_value=-1))(x), np.array([0, 1, 3, -1]))
    values, index, inverse, counts = run(
        lambda x: jnp.unique(x, return_index=True, return_inverse=True, return_counts=True, size=3)
    )(x)
    check(
        [values, index, inverse, counts],
        [np.array(v) for v in ([0, 1, 3], [1, 2, 0], [2, 0, 1, 0, 2], [2, 1, 2])],
    )
    check(run(lambda x: jnp.bincount(x, length=4))(x), np.array([2, 1, 0, 2]))
    check(run(lambda x: jnp.repeat(x, x, total_repeat_length=7))(x), np.repeat(x, x))
    check(run(lambda x: jnp.intersect1d(x, np.array([1, 3, 5]), size=2))(x), np.array([1, 3]))
    some = lambda x: jnp.intersect1d(x, np.array([3, 5]), size=3)  # filled up with its least
    check(run(some)(x), np.array([3, 3, 3]))
    check(run(lambda x: jnp.argwhere(x, size=3))(x), np.array([[0], [2], [4]]))


@pytest.mark.parametrize("run", [lambda f: f, fnx.jit])
def test_different_elements_of_empty_arrays(run):
    check(run(lambda x: jnp.unique(x, size=3, fill_value=7.0))(np.zeros(0)), np.full(3, 7.0))
    pairs = lambda x: jnp.unique(x, axis=0, size=2, fill_value=7.0)
    check(run(pairs)(np.zeros((0, 3))), np.full((2, 3), 7.0))
    check(run(lambda x: jnp.unique(x, size=0))(np.zeros((0, 2))), np.zeros(0))
    everything = {"return_index": True, "return_inverse": True, "return_counts": True}
    found = run(lambda x: jnp.unique(x, axis=0, size=2, fill_value=0.0, **everything))(
        np.zeros((3, 0))
    )
    check(found, [np.zeros((2, 0)), *(np.array(v) for v in ([0, 0], [0, 0, 0], [3, 0]))])
    with pytest.raises(ValueError, match="expected a fill_value"):
        run(lambda x: jnp.unique(x, size=3))(np.zeros(0))


@pytest.mark.parametrize(
    "fn", [jnp.nonzero, jnp.unique, jnp.bincount, jnp.argwhere, jnp.flatnonzero]
)
def test_lengths_that_depend_on_values_say_what_to_do(fn):
    with pytest.raises(ConcretizationTypeError, match=r"size=|length="):
        fnx.jit(fn)(np.array([1, 0, 2]))


# --- arrays and dtypes -------------------------------------------------------------------------


def test_methods_are_the_functions():
    x = DATA["A"]
    y = jnp.asarray(x)
    for (
        name
    ) in "sum mean max min prod std var argmax argmin cumsum any all ravel sort argsort".split():
        check(getattr(y, name)(), getattr(np, name)(x))
    check(y.reshape(2, 6), x.reshape(2, 6))
    check(y.reshape((4, -1)), x.reshape(4, -1))
    check(y.transpose(1, 0), x.T)
    check(
        [y.T, y.flatten(), y.squeeze(), y.repeat(2, 0), y.take(np.array([1]), 1)],
        [x.T, x.ravel(), x, x.repeat(2, 0), x[:, [1]]],
    )
    check(
        [y.astype("int32"), y.clip(0, 1), y.round(1)], [x.astype("int32"), x.clip(0, 1), x.round(1)]
    )
    assert y.tolist() == x.tolist()
    assert y[0, 0].item() == x[0, 0]
    check(
        [jnp.asarray(DATA["C"]).real, jnp.asarray(DATA["C"]).imag], [DATA["C"].real, DATA["C"].imag]
    )
    check(y.view("int64"), x.view("int64"))
    check(jnp.asarray(x.astype("f4")).view("float64"), x.astype("f4").view("float64"))


@pytest.mark.parametrize(
    "name",
    "bool_ int8 int16 int32 int64 uint8 uint32 float16 float32 float64 complex64 bfloat16".split(),
)
def test_dtype_objects(name):
    kind = getattr(jnp, name)
    x = kind(1)
    assert x.dtype == kind
    assert kind == np.dtype(x.dtype)
    assert jnp.zeros(2, kind).dtype == np.dtype(kind)
    assert hash(kind) == hash(kind.dtype.type)
    assert jnp.issubdtype(kind, np.generic)
    assert name.rstrip("_") in repr(kind)


def test_float_to_integer_saturates():
    check(jnp.array([300.7, -3.2, np.nan]).astype(jnp.uint8), np.array([255, 0, 0], np.uint8))


def test_default_dtypes_follow_the_setting():
    with fnx.enable_x64(False):
        assert jnp.zeros(2).dtype == np.float32
        assert jnp.array([1, 2]).dtype == np.int32
        assert jnp.arange(3.0).dtype == np.float32
    assert jnp.zeros(2).dtype == np.float64


@pytest.mark.parametrize("wide", ["f8", "i8", "u8", "c16"])
def test_numpy_arrays_follow_the_default_dtypes(wide):
    x = np.arange(3).astype(wide)
    narrow = np.dtype(f"{x.dtype.kind}{x.dtype.itemsize // 2}")
    scan = lambda x: fnx.lax.scan(lambda c, y: (c + y, y), jnp.zeros((), narrow), x)[0]
    cond = lambda x: fnx.lax.cond(x[1] == 1, lambda: x, lambda: jnp.ones(3, narrow))
    with fnx.enable_x64(False):
        for f in (
            jnp.asarray,
            fnx.jit(lambda x: x),
            fnx.vmap(lambda x: x),
            lambda x: 2 * jnp.array(x),
        ):
            assert f(x).dtype == narrow
        assert scan(x).dtype == cond(x).dtype == narrow
        assert complex(scan(x)) == 3
        assert jnp.asarray(x[0]).dtype == narrow
        if x.dtype.kind in "fc":
            holomorphic = x.dtype.kind == "c"
            f = lambda x: (x * np.ones(3)).sum()
            assert fnx.grad(f, holomorphic=holomorphic)(x).dtype == narrow
            assert fnx.jvp(f, (x,), (x,))[1].dtype == narrow
    assert jnp.asarray(x).dtype == wide


def test_vectorize():
    double = jnp.vectorize(lambda x, y: jnp.sum(x) * y, signature="(n),()->()")
    x, y = DATA["T"], DATA["B"][:2, :3]
    check(double(x, y), x.sum(-1) * y)
    check(jnp.vectorize(lambda x, y: x + y)(DATA["A"], DATA["A"][0]), DATA["A"] + DATA["A"][0])
    with pytest.raises(ShapeError, match="sizes"):
        jnp.vectorize(jnp.dot, signature="(n),(n)->()")(np.ones(2), np.ones(3))
    with pytest.raises(ValueError, match="signature"):
        jnp.vectorize(jnp.dot, signature="n->n")


def test_functions_without_a_name():
    """functools.partial and callable objects have no __name__."""

    class Weighted:
        def __call__(self, x, y):
            return x + 2 * y

    for fn in (Weighted(), functools.partial(lambda a, x, y: x + a * y, 2)):
        x, y = DATA["A"], DATA["A"][0]
        check(jnp.vectorize(fn)(x, y), x + 2 * y)
        check(jnp.frompyfunc(fn, 2, 1)(x, y), x + 2 * y)
        check(jnp.frompyfunc(fn, 2, 1, identity=0).reduce(x[:, 0]), 2 * x[:, 0].sum())
        with pytest.raises(ShapeError, match="sizes"):
            jnp.vectorize(fn, signature="(n),(n)->(n)")(np.ones(2), np.ones(3))


@pytest.mark.parametrize(
    ("fn", "error", "words"),
    [
        (lambda: jnp.sum(jnp.ones(3), axis=3), ValueError, "rank 1"),
        (lambda: jnp.ones((3, 4)).reshape(5), TypeError, "12"),
        (lambda: jnp.concatenate([jnp.ones(2), jnp.ones((2, 2))]), ValueError, r"\(2, 2\)"),
        (lambda: jnp.ones((2, 3)) @ jnp.ones((2, 3)), ValueError, "size 3"),
        (lambda: jnp.einsum("ij,jk", np.ones((2, 3)), np.ones((2, 3))), ValueError, "'j'"),
        (lambda: jnp.max(jnp.zeros(0)), ValueError, "empty"),
        (lambda: jnp.zeros(-1), ValueError, "negative"),
        (lambda: jnp.zeros("a"), TypeError, "integers"),
        (lambda: jnp.array([[1], [1, 2]]), (TypeError, ValueError), "array"),
        (lambda: jnp.array(None), TypeError, "None"),
        (lambda: jnp.array(object()), TypeError, "object"),
        (lambda: jnp.sum(jnp.ones(2), out=np.ones(())), NotImplementedError, "immutable"),
        (lambda: jnp.linalg.inv(jnp.ones((2, 3))), ValueError, "square"),
        (lambda: jnp.split(jnp.ones(5), 2), ValueError, "array_split"),
        (lambda: jnp.pad(jnp.ones(2), 1, mode="no"), ValueError, "reflect"),
        (lambda: jnp.stack([]), ValueError, "at least one"),
        (lambda: jnp.array(2**70), OverflowError, "64 bits"),
        (lambda: jnp.array(300, jnp.uint8), OverflowError, "300"),
    ],
)
def test_errors_say_what_is_wrong(fn, error, words):
    with pytest.raises(error, match=words):
        fn()


def test_save_and_load(tmp_path):
    jnp.save(tmp_path / "x.npy", jnp.arange(3))
    check(jnp.load(tmp_path / "x.npy"), np.arange(3))
