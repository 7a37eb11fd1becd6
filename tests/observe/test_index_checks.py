"""debug_index names the line, the iteration and the index that is out of bounds."""

import inspect

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.scipy.ndimage import map_coordinates

X = jnp.arange(5.0)


def gathered(x, k):
    return x[k] * 2.0  # here


def sliced(x, k):
    return lax.dynamic_slice(x, (k,), (1,))[0]  # here


def written(x, k):
    return x.at[k].set(7.0).sum()  # here


def added(x, k):
    return x.at[k].add(7.0).sum()  # here


def many(x, k):
    return x[jnp.array([0, 1, 2]) + k].sum()  # here


def by_scan(f):
    return lambda x, k: lax.scan(
        lambda c, j: (c + f(x, j + k - 2), None), 0.0, jnp.array([0, 1, 2])
    )[0]


def by_fori(f):
    return lambda x, k: lax.fori_loop(0, 3, lambda j, c: c + f(x, j + k - 2), 0.0)


def by_while(f):
    body = lambda x, k: lambda c: (c[0] + 1, c[1] + f(x, c[0] + k - 2))
    return lambda x, k: lax.while_loop(lambda c: c[0] < 3, body(x, k), (0, 0.0))[1]


MISTAKES = [gathered, sliced, written, added, many]
LOOPS = {by_scan: "scan", by_fori: "fori_loop", by_while: "while_loop"}


def found(f, *args):
    with fnx.debug_index(), pytest.raises(IndexError) as error:
        f(*args)
    return str(error.value)


def here(f):
    lines, start = inspect.getsourcelines(f)
    (at,) = [k for k, line in enumerate(lines) if "# here" in line]
    return f"made at {__file__}:{start + at} ({f.__name__})"


@pytest.mark.parametrize("loop", LOOPS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_in_loops(mistake, loop):
    most = 2 if mistake is many else 4
    f = fnx.jit(loop(mistake))
    text = found(f, X, most + 1)
    assert here(mistake) in text
    assert f"in iteration 2 of {LOOPS[loop]} at " in text
    assert "index 5 out of bounds for axis 0" in text
    with fnx.debug_index():
        assert f(X, most) == loop(mistake)(X, most)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda f: f.__name__)
def test_alone_compiled_and_eager(mistake):
    assert here(mistake) in found(fnx.jit(mistake), X, 7)
    assert "out of bounds for axis 0 of f64[5]" in found(mistake, X, 7)


def test_the_axis_is_that_of_the_array():
    x = jnp.ones((2, 9))
    text = "index 10 out of bounds for axis 1 of f64[2,9]"
    assert text in found(lambda x, k: x[:, k], x, jnp.array([10]))
    assert text in found(lambda x, k: x.at[:, k].set(0.0), x, 10)


@pytest.mark.parametrize("mistake", [gathered, sliced, many], ids=lambda f: f.__name__)
def test_gradients(mistake):
    f = fnx.jit(fnx.grad(by_scan(mistake)))
    assert here(mistake) in found(f, X, 6)
    with fnx.debug_index():
        assert f(X, 2).shape == (5,)


def test_negative_indices_count_from_the_end():
    with fnx.debug_index():
        assert fnx.jit(gathered)(X, -1) == 8.0
        assert gathered(X, -5) == 0.0
    assert here(gathered) in found(fnx.jit(gathered), X, -6)


FAR = jnp.array([0, 7, -9])
MEANT = {
    "drop": lambda x, k: x.at[k].set(1.0, mode="drop"),
    "fill": lambda x, k: x.at[k].get(mode="fill", fill_value=0.0),
    "clip": lambda x, k: x.at[k].add(1.0, mode="clip"),
    "take": lambda x, k: jnp.take(x, k, mode="clip"),
    "take_along_axis": lambda x, k: jnp.take_along_axis(x, k, 0, mode="fill"),
    "segment_sum": lambda x, k: fnx.ops.segment_sum(x, jnp.array([0, 1, 9, 1, 0]), 2),
    "bincount": lambda x, k: jnp.bincount(x.astype(int), length=3),
    "nonzero": lambda x, k: x[jnp.nonzero(x > 2, size=4, fill_value=0)[0]],
    "map_coordinates": lambda x, k: map_coordinates(x, [jnp.array([-3.0, 9.0])], order=1),
}


@pytest.mark.parametrize("name", MEANT)
def test_a_mode_is_taken_at_its_word(name):
    f = MEANT[name]
    slope = fnx.grad(lambda x, k: jnp.sum(f(x, k) * 1.0))
    with fnx.debug_index():
        for g in (f, slope, fnx.vmap(f, in_axes=(None, None), axis_size=2)):
            np.testing.assert_array_equal(g(X, FAR), fnx.jit(g)(X, FAR))


def test_what_promises_or_says_nothing_is_checked():
    silent = [
        lambda x, k: x.at[k].get(mode="promise_in_bounds"),
        lambda x, k: x.at[k].set(1.0),
        jnp.take,
        lambda x, k: jnp.take_along_axis(x, k, 0),
        lambda x, k: x.at[k].get(mode="clip") + x[k],
    ]
    for f in silent:
        for g in (f, fnx.jit(f)):
            assert "has index 7 out of bounds" in found(g, X, FAR)


@pytest.mark.parametrize("f", [gathered, sliced, written])
def test_an_index_before_the_first_element_says_where_it_counts_from(f):
    assert "index -1, counted from the first element, out of bounds" in found(f, X, -6)
    assert "index 5 out of bounds" in found(f, X, 5)
