"""Arrays whose numbers are not in NumPy's memory do all that other arrays do."""

import copy
import pickle

import numpy as np
import pytest
from samples import all_samples

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import ConcreteArray
from fnx.core.buffer import Buffer, DeletedArray


class Remote(Buffer):
    """Numbers in bytes, which stand for the memory of another device; it counts how often they travel."""

    device = "remote"

    def __init__(self, value):
        value = np.asarray(value)
        super().__init__(value.shape, value.dtype)
        self.bytes, self.fetched = value.tobytes(), 0

    def fetch(self):
        self.fetched += 1
        return np.frombuffer(self.bytes, self.dtype).reshape(self.shape)


def remote(value, weak_type=False):
    return ConcreteArray(Remote(value), weak_type)


A = np.random.default_rng(0).normal(size=(3, 4))


def same(found, want):
    found, want = (fnx.tree.leaves(x) for x in (found, want))
    assert len(found) == len(want) > 0
    for x, y in zip(found, want):
        x, y = np.asarray(x), np.asarray(y)
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        assert x.tobytes() == y.tobytes(), (x, y)


SAMPLES = all_samples()


@pytest.mark.slow
@pytest.mark.parametrize("sample", SAMPLES, ids=[s.id for s in SAMPLES])
def test_every_primitive_takes_them(sample):
    arrays = [jnp.asarray(a) for a in sample.args]
    far = [remote(a) for a in arrays]
    same(sample.prim.apply(*far), sample.prim.apply(*arrays))
    if sample.native:
        same(fnx.jit(sample.prim.apply)(*far), fnx.jit(sample.prim.apply)(*arrays))
    assert all(x._value.fetched <= 1 for x in far)


def test_types_are_known_without_the_numbers():
    x = remote(A)
    assert (x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.itemsize) == (
        (3, 4),
        A.dtype,
        2,
        12,
        96,
        8,
    )
    assert x.aval == jnp.asarray(A).aval
    assert fnx.eval_shape(lambda x: x.T @ x, x).shape == (4, 4)
    assert "f64[3,4]" in str(fnx.make_jaxpr(jnp.sin)(x))
    fnx.jit(lambda x: x + 1).lower(x)
    assert x._value.fetched == 0


FUNCTIONS = {
    "operators": lambda x: (x + 1, 2 * x, x - x, x / 3, x**2, -x, x @ x.T, abs(x), x % 2, x // 2),
    "comparisons": lambda x: (x > 0, x == x, x <= 0.5, (x > 0) & (x < 1), ~(x > 0)),
    "indexing": lambda x: (x[0], x[1:, ::2], x[..., -1], x[x > 0], x[jnp.array([0, 2])], x[0, 1]),
    "updates": lambda x: (x.at[0].set(1.0), x.at[:, 1].add(x[:, 0]), x.at[1, 2].mul(3.0)),
    "methods": lambda x: (
        x.sum(0),
        x.reshape(-1),
        x.T,
        x.astype("f4"),
        x.argmax(),
        x.std(),
        x.item,
    ),
    "functions": lambda x: (
        jnp.sort(x),
        jnp.where(x > 0, x, 0),
        jnp.concatenate([x, x]),
        jnp.sin(x),
    ),
    "statistics": lambda x: (
        jnp.median(x),
        jnp.histogram(x)[0],
        jnp.quantile(x, 0.3),
        jnp.interp(x, x[0], x[1]),
    ),
    "unique": jnp.unique,
    "grad": fnx.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)),
    "hessian": fnx.hessian(lambda x: jnp.sum(x**3)),
    "jvp": lambda x: fnx.jvp(jnp.sin, (x,), (x,)),
    "vmap": fnx.vmap(lambda row: row / jnp.sum(row)),
    "jit": fnx.jit(lambda x: jnp.cumsum(x) * 2),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x),
    "while": lambda x: lax.while_loop(lambda c: jnp.sum(c) < 1e3, lambda c: c * c + 1, x),
    "cond": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "linalg": lambda x: (jnp.linalg.svd(x), jnp.linalg.norm(x), jnp.linalg.inv(x @ x.T)),
    "fft": jnp.fft.fft,
    "closed over": lambda x: fnx.jit(lambda y: x * y)(jnp.ones(4)),
    "callback": lambda x: fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct((3, 4), "f8"), x),
    "tree": lambda x: fnx.tree.map(lambda y: y * 2, {"a": x, "b": (x, x)}),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_users_do(name):
    strip = lambda out: [x for x in fnx.tree.leaves(out) if isinstance(x, (fnx.Array, np.ndarray))]
    far = remote(A)
    same(strip(FUNCTIONS[name](far)), strip(FUNCTIONS[name](jnp.asarray(A))))
    assert far._value.fetched <= 1


def test_they_go_to_numpy_and_python():
    x, one = remote(A), remote(2.5)
    np.testing.assert_array_equal(np.asarray(x), A)
    assert not np.asarray(x).flags.writeable
    assert np.asarray(x, "f4").dtype == np.float32
    assert (float(one), int(one), complex(one), bool(one), one.item()) == (2.5, 2, 2.5, True, 2.5)
    assert [10, 20, 30][remote(np.int64(1))] == 20
    assert len(x) == 3
    assert [float(r[0]) for r in x] == list(A[:, 0])
    assert x.tolist() == A.tolist()
    assert f"{one:.3f}" == "2.500"
    assert str(one) == "2.5"
    assert repr(x) == repr(jnp.asarray(A))
    np.testing.assert_array_equal(np.from_dlpack(x), A)
    np.testing.assert_array_equal(np.sin(x), np.sin(A))
    np.testing.assert_array_equal(A + x, A + A)


def test_they_are_copied_and_saved():
    x = remote(A)
    for y in (pickle.loads(pickle.dumps(x)), copy.deepcopy(x), x.copy(), fnx.device_put(x)):
        np.testing.assert_array_equal(np.asarray(y), A)


def test_a_deleted_one_says_so():
    x = remote(A)
    x.delete()
    assert x.is_deleted()
    assert x.shape == (3, 4)
    with pytest.raises(DeletedArray, match=r"shape=\(3, 4\) and dtype=float64"):
        x + 1
    y = remote(A)
    f = fnx.jit(lambda y: y * 2, donate_argnums=0)
    np.testing.assert_array_equal(np.asarray(f(y)), 2 * A)


def test_constants_and_flags():
    x = remote(A)
    with fnx.debug_nans(True):
        same(jnp.sin(x), jnp.sin(A))
        with pytest.raises(FloatingPointError):
            jnp.log(remote(-abs(A)))
    same(fnx.checkpoint(lambda y: y * x)(jnp.ones(4)), jnp.asarray(A))


def test_what_is_not_all_here_is_printed_as_what_is():
    class Half(Buffer):
        def shown(self):
            return "Array(half of it)"

    x = ConcreteArray(Half((2,), np.dtype("float64")))
    assert repr(x) == str(x) == f"{x}" == f"{x:.3f}" == "Array(half of it)"
