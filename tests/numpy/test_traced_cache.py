"""Functions that are replayed when they are called eagerly: the same results as by plain calls."""

from functools import partial

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
import fnx.numpy.linalg
from fnx.core import config
from fnx.numpy.arrays import traced_cache

RNG = np.random.default_rng(3)
V, W = (jnp.asarray(RNG.normal(size=9)) for _ in range(2))
GAPS = V.at[4].set(jnp.nan)
M, S = jnp.asarray(RNG.normal(size=(5, 4))), jnp.asarray(RNG.normal(size=(4, 4)))
I = jnp.asarray(RNG.integers(0, 9, 6))
F32 = V.astype(jnp.float32)
ONE = jnp.asarray(2.5)  # of rank 0

# Arguments of each replayed function.
CALLS: dict[str, list[tuple[tuple, dict]]] = {
    **{n: [((V,), {}), ((F32,), {"axis": 0}), ((M,), {"axis": (0, 1)})] for n in "var std".split()},
    **{
        n: [((GAPS,), {}), ((M, 1), {"keepdims": True})]
        for n in "nanvar nanstd nanmean nanmedian median".split()
    },
    **{
        n: [((V, 0.3), {}), ((M, jnp.array([0.1, 0.9]), 1), {"method": "nearest"}), ((F32, 1), {})]
        for n in "quantile nanquantile".split()
    },
    **{n: [((V, 30), {}), ((GAPS, 99.5), {})] for n in "percentile nanpercentile".split()},
    **{n: [((M,), {}), ((V, W), {}), ((M.T,), {"rowvar": False})] for n in "cov corrcoef".split()},
    **{n: [((V,), {}), ((F32,), {}), ((I * 1.0,), {})] for n in "frexp modf sinc".split()},
    "ldexp": [((V, I[0]), {}), ((V, 3), {})],
    "roll": [((V, 2), {}), ((M, -1, 0), {}), ((M, (1, 2), (0, 1)), {}), ((M,), {"shift": 3})],
    "hypot": [((V, W), {}), ((V, 2.0), {}), ((3, 4), {}), ((F32, 1), {})],
    "unwrap": [((4 * V,), {}), ((V, 1.0), {"period": 2})],
    "trapezoid": [((V,), {}), ((V,), {"dx": 0.5}), ((V, W), {})],
    **{n: [((V, W[:4]), {}), ((V, W), {"mode": "same"})] for n in "convolve correlate".split()},
    **{
        n: [
            ((V, V), {}),
            ((V, 1.0), {}),
            ((1, 1.0 + 1e-9), {}),
            ((GAPS, GAPS), {"equal_nan": True}),
        ]
        for n in "isclose allclose".split()
    },
    "slogdet": [((S,), {}), ((-S,), {}), ((0 * S,), {})],
    "lstsq": [((M, V[:5]), {})],
    "matrix_rank": [((M,), {}), ((M,), {"rtol": 0.5})],
    "cond": [((S,), {}), ((S, 1), {})],
    "pinv": [((M,), {}), ((M,), {"rtol": 0.1})],
    "linspace": [((0, 1), {}), ((0.0, V, 4), {}), ((1, 2.5), {"num": 3, "retstep": True})],
    **{n: [((1, 2.0), {}), ((1.0, ONE, 5), {})] for n in "logspace geomspace".split()},
    "vander": [((V,), {}), ((V, 3), {"increasing": True})],
    "polyfit": [((V, W, 2), {})],
    "polyval": [((V, W), {}), ((V, 2), {}), ((V, 0.5), {})],
    "poly": [((V[:4],), {}), ((S,), {})],
    "nan_to_num": [((GAPS,), {}), ((GAPS,), {"nan": 7}), ((F32 / 0,), {"posinf": 1.0})],
    "take": [((V, I), {}), ((V, 3), {}), ((V, -30), {}), ((M, I, 0), {"mode": "wrap"})],
    "take_along_axis": [((V, I), {}), ((M, I[:4][None], 0), {"fill_value": 3})],
    **{
        n: [((V, W), {}), ((7, 2.0), {}), ((I, 2), {}), ((V, 0.0), {}), ((F32, 3), {})]
        for n in "floor_divide remainder divmod".split()
    },
    "packbits": [((V > 0,), {})],
    "unpackbits": [((I.astype(jnp.uint8),), {})],
}


def function(name):
    (found,) = [f for f in traced_cache.functions() if f.__name__ == name]
    return found


def described(x):
    return [(type(y), y.dtype, y.shape, y.weak_type, np.asarray(y).tobytes()) for y in leaves(x)]


def leaves(x):
    return jax.tree.leaves(x)


def test_all_functions_are_tried():
    assert {f.__name__ for f in traced_cache.functions()} == set(CALLS)


@pytest.mark.parametrize("name", sorted(CALLS))
def test_results_are_those_of_plain_calls(name):
    f = function(name)
    for args, kwargs in CALLS[name]:
        want = f.__wrapped__(*args, **kwargs)
        for _ in range(3):  # plain, traced, replayed
            got = f(*args, **kwargs)
            assert jax.tree.structure(got) == jax.tree.structure(want)
            assert type(got) is type(want)
            assert described(got) == described(want)
    assert any(isinstance(p, traced_cache.Program) for p in f.replays.programs.values())


def test_numbers_are_no_part_of_a_signature():
    f = function("quantile")
    f.replays.programs.clear()
    for q in np.linspace(0, 1, 7).tolist():
        np.testing.assert_allclose(f(V, q), np.quantile(np.asarray(V), q))
    assert len(f.replays.programs) == 1


def test_other_types_and_settings_have_their_own_results():
    assert jnp.linspace(0, 1).dtype == jnp.float64
    with config.default_float32(True):
        assert jnp.linspace(0, 1).dtype == jnp.float32
    config.default_float32.set(True)
    try:
        assert jnp.linspace(0, 1).dtype == jnp.float32
    finally:
        config.default_float32.set(False)
    assert jnp.linspace(0, 1).dtype == jnp.float64
    assert jnp.take(V, 1).shape == ()
    assert jnp.take(V, True + 0).shape == jnp.take(V, np.int8(1)).shape == ()


def test_errors_are_those_of_plain_calls():
    for call in (
        lambda: jnp.median(V, axis=5),
        lambda: jnp.quantile(V, 0.5, method="none"),
        lambda: jnp.take(V, 0.5),
        lambda: jnp.median("text"),
        lambda: jnp.linspace(0, 1, -1),
    ):
        messages = []
        for _ in range(3):
            with pytest.raises((TypeError, ValueError, IndexError)) as error:
                call()
            messages.append(str(error.value))
        assert len(set(messages)) == 1
    infinite = V / 0.0
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jnp.var(infinite)


def test_large_arrays_take_the_plain_way_and_hidden_ones_raise():
    f = function("median")
    f.replays.programs.clear()
    assert f(jnp.arange(9999.0)) == 4999.0
    assert not f.replays.programs
    x = jnp.ones(3)
    x.delete()
    with pytest.raises(RuntimeError, match="delete"):
        f(x)


def test_transformations_see_the_primitives():
    f = lambda x: jnp.quantile(x, 0.4) + jnp.std(x)
    slope = jax.grad(f)(V)
    np.testing.assert_allclose(slope, jax.jit(jax.grad(f))(V), rtol=1e-12)
    each = jax.vmap(f)(jnp.stack([V, W]))
    np.testing.assert_allclose(each, [f(V), f(W)], rtol=1e-12)
    assert "sort" in str(jax.make_jaxpr(f)(V))


@pytest.mark.slow
def test_places_among_sorted_numbers():
    """The eager way is NumPy's: the compiled one finds the same places."""
    edges = jnp.array([-jnp.inf, -1.0, -0.0, 0.0, 0.0, 2.0, 2.0, jnp.inf, jnp.nan, jnp.nan])
    x = jnp.array([[-jnp.inf, -3.0, -1.0, -0.0, 0.0], [1.0, 2.0, 9.0, jnp.inf, jnp.nan]])
    for dtype in (jnp.float64, jnp.float32, jnp.float16, jnp.bfloat16):
        for side in ("left", "right"):
            f = partial(jnp.searchsorted, side=side)
            got = f(edges.astype(dtype), x.astype(dtype))
            want = jax.jit(f)(edges.astype(dtype), x.astype(dtype))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
    assert jnp.searchsorted(jnp.zeros(0), 1.0) == 0
    assert jnp.searchsorted(jnp.arange(5), 2).shape == ()
