"""Products of axes in groups, against products of each group."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
SIZES = np.array([2, 0, 3])  # of an axis of 6: the last row is in no group


def numbers(contracted, batch, ragged, group):
    return lax.RaggedDotDimensionNumbers((contracted, batch), ragged, group)


def groups(n=6):
    ends = np.cumsum(SIZES)
    return [slice(e - s, e) for s, e in zip(SIZES, ends)]


def test_groups_of_a_free_axis():
    x, w = RNG.normal(size=(6, 4)), RNG.normal(size=(3, 5, 4))
    expected = np.zeros((6, 5))
    for g, rows in enumerate(groups()):
        expected[rows] = x[rows] @ w[g].T
    dims = numbers(((1,), (2,)), ((), ()), [0], [0])
    for f in (lax.ragged_dot_general, fnx.jit(lax.ragged_dot_general, static_argnums=3)):
        np.testing.assert_allclose(f(x, w, SIZES, dims), expected, rtol=1e-12)
    slope = fnx.grad(lambda x: lax.ragged_dot_general(x, w, SIZES, dims).sum())(x)
    assert not np.any(slope[5:])
    np.testing.assert_allclose(slope[0], w[0].sum(0), rtol=1e-12)


def test_groups_of_a_contracted_axis():
    x, y = RNG.normal(size=(2, 6)), RNG.normal(size=(6, 4))
    expected = [x[:, rows] @ y[rows] for rows in groups()]
    found = lax.ragged_dot_general(x, y, SIZES, numbers(((1,), (0,)), ((), ()), [1], []))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_batch_axes_have_groups_of_their_own():
    x, w = RNG.normal(size=(2, 6, 4)), RNG.normal(size=(3, 2, 4, 5))
    sizes = np.stack([SIZES, SIZES[::-1]])
    dims = numbers(((2,), (2,)), ((0,), (1,)), [1], [0])
    one = numbers(((1,), (1,)), ((), ()), [0], [0])
    found = lax.ragged_dot_general(x, w, sizes, dims)
    for b in range(2):
        expected = lax.ragged_dot_general(x[b], w[:, b], sizes[b], one)
        np.testing.assert_allclose(found[b], expected, rtol=1e-12)
    whole = lax.ragged_dot_general(x, w[0], SIZES, numbers(((2,), (1,)), ((0,), (0,)), [0], []))
    np.testing.assert_allclose(whole, np.einsum("bmk,bkn->bmn", x, w[0]), rtol=1e-12)


@pytest.mark.parametrize(
    ("dims", "sizes", "options"),
    [
        (numbers(((1,), (0,)), ((), ()), [0, 1], []), SIZES, {}),
        (numbers(((1,), (0,)), ((), ()), [1], [0]), SIZES, {}),
        (numbers(((1,), (0,)), ((), ()), [1], []), np.ones((4, 3), int), {}),
        (numbers(((1,), (0,)), ((), ()), [1], []), SIZES, {"group_offset": 1}),
    ],
)
def test_what_is_refused(dims, sizes, options):
    with pytest.raises(ValueError, match="expected"):
        lax.ragged_dot_general(jnp.ones((2, 6)), jnp.ones((6, 4)), sizes, dims, **options)
