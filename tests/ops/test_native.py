"""What is evaluated eagerly has the bits of compiled programs: elementary functions, and samplers."""

import gc

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import dtypes
from fnx.core.array import as_array
from fnx.lowering.math import VMATH
from fnx.ops.elementwise import integrals, special  # noqa: F401  # whose primitives are looked for
from fnx.ops.elementwise.arithmetic import div, log, pow_
from fnx.ops.elementwise.pointwise import Elementwise, Pointwise

SMALL = frozenset(dtypes.SMALL)
FOUND = {p for p in gc.get_objects() if type(p) is Elementwise and hasattr(p.impl, "reference")}
PRIMITIVES = sorted(FOUND | {div, pow_}, key=lambda p: p.name)


def operands(count: int, dtype: np.dtype) -> list[np.ndarray]:
    """Special values beside each other, and random ones of all sizes."""
    rng = np.random.default_rng(0)
    edges = np.array(
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 2.0, 1e-310, 1e300, 710.0]
    )
    grid = np.stack(np.meshgrid(*[edges] * min(count, 2))).reshape(min(count, 2), -1)
    some = [rng.normal(size=300), rng.uniform(0, 1, 300), np.exp(rng.normal(size=300) * 20)]
    found = []
    for k in range(count):
        x = np.concatenate([grid[k % len(grid)], *[rng.permutation(s) for s in some]])
        with np.errstate(all="ignore"):
            if dtype.kind == "c":
                x = x + 1j * np.roll(x, 7 * k + 1)
            found.append(x.astype(dtype))
    return found


def parts(x: np.ndarray) -> np.ndarray:
    """The bits of all numbers; NaNs are all the same."""
    x = x.view(x.real.dtype) if x.dtype.kind == "c" else x
    bits = x.view(f"u{x.dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x.astype(np.float64)), 0, bits)


def arity(p: Pointwise) -> int:
    return max(len(p.jvps), len(p.pulls), 1)


CASES = [
    pytest.param(p, d, id=f"{p.name}-{dtypes.NAME[d]}")
    for p in PRIMITIVES
    for d in p.accepts
    if d not in SMALL and dtypes.kind(d) in "fc"
]


@pytest.mark.parametrize(("prim", "dtype"), CASES)
def test_eager_elements_have_the_bits_of_compiled_ones(prim, dtype):
    given = [as_array(x) for x in operands(arity(prim), dtype)]
    found = prim(*given)
    expected = fnx.jit(prim, backend="cpu")(*given)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(parts(np.asarray(found)), parts(np.asarray(expected)))


def test_all_elementary_functions_are_among_them():
    names = {p.name for p in PRIMITIVES}
    functions = {op for op, _ in VMATH} - {"rem"}  # which is exact
    assert functions <= names


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (15,), (16,), (17,), (3, 5, 7)])
def test_elements_of_all_shapes_are_computed(shape, dtype):
    x = jnp.asarray(np.random.default_rng(0).uniform(0.5, 2, shape), dtype)
    found = jnp.log(x)
    assert (found.shape, found.dtype) == (shape, x.dtype)
    np.testing.assert_array_equal(found, fnx.jit(jnp.log, backend="cpu")(x))


def test_strided_operands_and_numbers_beside_arrays():
    x, number = np.linspace(0.5, 2, 40), np.asarray(1.7)
    for first, second in [
        (x[::-2], x[:20]),
        (number, x),
        (x, number),
        (x.reshape(4, 10).T, number),
    ]:
        both = np.broadcast_arrays(first, second)
        expected = pow_.impl(*[np.ascontiguousarray(v) for v in both])
        np.testing.assert_array_equal(pow_.impl(first, second), expected)


def test_numpy_sees_no_exceptions_of_formulas():
    with np.errstate(all="raise"):
        assert np.isnan(log.impl(np.array([-1.0, 2.0, 0.0]))).tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_powers_of_known_exponents_are_the_same_inside_and_outside_of_jit(dtype):
    x = jnp.asarray(np.random.default_rng(0).uniform(0, 3, 999), dtype)

    def powers(x):
        known = [pow_(x, jnp.asarray(y, dtype)) for y in (2.0, 3.0, -1.5, 2.5)]
        return [*known, x**2, x**3, x**0.5, x**2.5]

    for a, b in zip(powers(x), fnx.jit(powers, backend="cpu")(x), strict=True):
        np.testing.assert_array_equal(parts(np.asarray(a)), parts(np.asarray(b)))


SAMPLERS = {
    "normal": lambda key, dtype: fnx.random.normal(key, (999,), dtype),
    "gumbel": lambda key, dtype: fnx.random.gumbel(key, (999,), dtype),
    "exponential": lambda key, dtype: fnx.random.exponential(key, (999,), dtype),
    "laplace": lambda key, dtype: fnx.random.laplace(key, (999,), dtype),
    "logistic": lambda key, dtype: fnx.random.logistic(key, (999,), dtype),
    "cauchy": lambda key, dtype: fnx.random.cauchy(key, (999,), dtype),
    "pareto": lambda key, dtype: fnx.random.pareto(key, 3.0, (999,), dtype),
    "rayleigh": lambda key, dtype: fnx.random.rayleigh(key, 2.0, (999,), dtype),
    "weibull_min": lambda key, dtype: fnx.random.weibull_min(key, 2.0, 3.0, (999,), dtype),
    "lognormal": lambda key, dtype: fnx.random.lognormal(key, 1.0, (999,), dtype),
    "wald": lambda key, dtype: fnx.random.wald(key, 1.7, (999,), dtype),
    "uniform": lambda key, dtype: fnx.random.uniform(key, (999,), dtype, -2.5, 7.3),
    "truncated_normal": lambda key, dtype: fnx.random.truncated_normal(key, -1, 2, (999,), dtype),
    "double_sided_maxwell": lambda key, dtype: fnx.random.double_sided_maxwell(
        key, 0.3, 1.7, (999,), dtype
    ),
    "gamma": lambda key, dtype: fnx.random.gamma(key, np.linspace(0.1, 9, 999), dtype=dtype),
    "ball": lambda key, dtype: fnx.random.ball(key, 3, shape=(333,), dtype=dtype),
    "multivariate_normal": lambda key, dtype: fnx.random.multivariate_normal(
        key, jnp.arange(2.0), jnp.array([[2.0, 0.3], [0.3, 1.0]]), (333,), dtype
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_samples_are_the_same_inside_and_outside_of_jit(name, dtype):
    found = SAMPLERS[name](fnx.random.key(3), dtype)
    expected = fnx.jit(SAMPLERS[name], static_argnums=1, backend="cpu")(fnx.random.key(3), dtype)
    np.testing.assert_array_equal(parts(np.asarray(found)), parts(np.asarray(expected)))
