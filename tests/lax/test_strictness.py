"""What fnx.lax and its neighbours refuse, and warn of, where JAX does."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X, N = jnp.ones(3), jnp.arange(3)
Struct = fnx.ShapeDtypeStruct


@pytest.mark.parametrize(
    "call",
    [
        lambda: lax.pad(X, 0, [(1, 1, 0)]),
        lambda: lax.pad(X, False, [(1, 1, 0)]),
        lambda: lax.add(X, 1),
        lambda: lax.mul(2, X),
        lambda: lax.max(X, 0),
        lambda: lax.gt(X, 0),
        lambda: lax.add(N, True),
        lambda: lax.add(X.astype(complex), 1.0),
        lambda: lax.clamp(0, X, 2),
        lambda: lax.atan2(X, 1),
        lambda: lax.complex(X, 0),
        lambda: lax.select(X > 0, X, 0.0),
        lambda: lax.cond(True, lambda: 1, lambda: 2.0),
        lambda: lax.cond(True, lambda: True, lambda: 1),
        lambda: lax.switch(1, [lambda: 1, lambda: 2.0]),
        lambda: fnx.jit(lambda p: lax.cond(p, lambda x: x, lambda x: x * 2.0, 1))(True),
        lambda: jnp.arange(2, dtype=bool),
        lambda: fnx.nn.one_hot(jnp.array([True]), 3),
        lambda: jnp.arange(3.0)[[0, 1]],
        lambda: fnx.random.split(fnx.random.key(0), 3)[[0, 1]],
    ],
)
def test_numbers_of_another_kind_are_refused(call):
    with pytest.raises(TypeError, match=r"expected|astype|not allowed|tuple"):
        call()


def test_numbers_of_the_same_kind_are_taken():
    assert lax.add(X.astype("float32"), 1.0).dtype == np.float32
    assert lax.add(N.astype("uint8"), 1).dtype == np.uint8
    assert lax.pad(X, 0.0, [(1, 1, 0)]).tolist() == [0, 1, 1, 1, 0]
    assert lax.pow(X, 2).dtype == np.float64
    assert lax.cond(True, lambda: 1.0, lambda: jnp.float32(2)).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "category", "expected"),
    [
        (lambda: fnx.nn.one_hot(jnp.array([1.0]), 2), DeprecationWarning, [[0, 1]]),
        (lambda: N.at[0].set(1.5), FutureWarning, [1, 1, 2]),
        (lambda: N.at[0].add(1.5), FutureWarning, [1, 1, 2]),
        (lambda: N.astype("int8").at[0].set(jnp.int32(300)), FutureWarning, [44, 1, 2]),
        (lambda: X.astype("float32").at[0].set(jnp.float64(2)), FutureWarning, [2, 1, 1]),
        (lambda: jnp.array([1 + 2j]).astype(float), DeprecationWarning, [1]),
        (
            lambda: lax.convert_element_type(jnp.array([1 + 2j]), float),
            jnp.ComplexWarning,
            [1],
        ),
    ],
)
def test_warnings_point_to_the_users_line(call, category, expected):
    with pytest.warns(category) as found:
        assert call().tolist() == expected
    assert found[0].filename == __file__


def test_values_that_fit_are_set_without_a_warning():
    assert X.at[0].set(2).tolist() == [2, 1, 1]
    assert N.astype("int8").at[0].set(100).dtype == np.int8
    assert X.at[0].set(jnp.float32(2)).tolist() == [2, 1, 1]


@pytest.mark.parametrize(
    "result",
    [lambda x: np.ones(3), lambda x: np.ones(2, "f4"), lambda x: [1, 2], lambda x: (x, x), lambda x: None],
)  # fmt: skip
def test_callbacks_with_other_results_than_declared(result):
    f = lambda x: fnx.pure_callback(result, Struct((2,), float), x)
    for call in (f, fnx.jit(f)):
        with pytest.raises((TypeError, ValueError), match="declared"):
            call(1.0)


@pytest.mark.parametrize(
    ("method", "shapes"),
    [
        ("sequential", [((3,), (3,))] * 2),
        ("sequential_unrolled", [((3,), (3,))] * 2),
        ("expand_dims", [((2, 3), (1, 3))]),
        ("broadcast_all", [((2, 3), (2, 3))]),
        ("legacy_vectorized", [((2, 3), (3,))]),
    ],
)
def test_callbacks_under_vmap(method, shapes):
    seen = []

    def add(x, y):
        seen.append((x.shape, y.shape))
        return np.add(x, y)

    def f(x):
        return fnx.pure_callback(add, Struct((3,), float), x, X, vmap_method=method)

    xs = jnp.arange(6.0).reshape(2, 3)
    for call in (fnx.vmap(f), fnx.jit(fnx.vmap(f))):
        seen.clear()
        assert call(xs).tolist() == (xs + 1).tolist()
        assert seen == shapes


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: lax.broadcast_shapes((2.5,), (1,)), TypeError),
        (lambda: lax.broadcast_shapes((-1,), (2,)), (TypeError, ValueError)),
        (lambda: lax.reduce_window(X, 0.0, lambda x, y: [x + y], (1,)), ValueError),
        (lambda: lax.reduce_window(X, 0.0, lax.add, (1,), padding=3), ValueError),
        (lambda: fnx.random.key(0, impl="rbg", dtype=fnx.random.key_dtype()), ValueError),
        (lambda: lax.conv(X[None, None], X[None, None], (1,), (3,)), ValueError),
        (
            lambda: lax.gather(X[None], N[:2], _unsorted(lax.GatherDimensionNumbers), (1, 1)),
            TypeError,
        ),
        (
            lambda: lax.scatter(X[None], N[:2], 1.0, _unsorted(lax.ScatterDimensionNumbers)),
            TypeError,
        ),
    ],
)
def test_parameters_that_fit_nothing_are_refused(call, error):
    with pytest.raises(error):
        call()


def _unsorted(kind):
    return kind((), (1, 0), (0, 1))


def test_conjugates_of_real_numbers_have_no_imaginary_part():
    found = np.asarray(lax.conj(jnp.array([np.inf, -2.0])))
    np.testing.assert_array_equal(found.real, [np.inf, -2])
    np.testing.assert_array_equal(found.imag, [0, 0])
