"""Products of matrices that are summed up in another dtype than their result's, on every target."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
DTYPES = [
    ("float16", None),
    ("bfloat16", None),
    ("float16", "float32"),
    ("float32", "float16"),
    ("bfloat16", "float64"),
    ("int8", "int32"),
    ("int32", "int8"),
    ("float32", "float64"),
]
SHAPES = {  # operands' shapes, and axes: (contracted, batched)
    "matrices": ((3, 4), (4, 5), (((1,), (0,)), ((), ()))),
    "batched": ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))),
    "vectors": ((7,), (7,), (((0,), (0,)), ((), ()))),
    "outer": ((3,), (4,), (((), ()), ((), ()))),
    "many": ((30, 40), (40, 50), (((1,), (0,)), ((), ()))),
    "two axes": ((2, 3, 4), (3, 2, 5), (((0, 1), (1, 0)), ((), ()))),
    "none": ((0, 4), (4, 5), (((1,), (0,)), ((), ()))),
    "empty sums": ((3, 0), (0, 5), (((1,), (0,)), ((), ()))),
}


def program(dtype, preferred, case):
    left, right, axes = SHAPES[case]
    given = [jnp.asarray(RNG.integers(-3, 4, n), dtype) for n in (left, right)]
    return lambda x, y: lax.dot_general(x, y, axes, preferred_element_type=preferred), given


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "preferred"), DTYPES)
def test_sums_are_rounded_once(dtype, preferred):
    """All shapes in one program: Numba takes longer for more of them."""
    products, given = zip(*[program(dtype, preferred, case) for case in SHAPES], strict=True)
    f = lambda given: [product(*xy) for product, xy in zip(products, given, strict=True)]
    expected = fnx.jit(f, backend="reference")(given)
    found = fnx.jit(f, backend="numba")(given)
    for case, x, y in zip(SHAPES, found, expected, strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(
            np.asarray(x, np.float64), np.asarray(y, np.float64), err_msg=case
        )  # small integers: every sum is exact


@pytest.mark.parametrize(("dtype", "preferred"), DTYPES)
def test_a_gpu_makes_them_by_itself(dtype, preferred):
    f, given = program(dtype, preferred, "matrices")
    text = fnx.jit(f).lower(*given).as_text("cuda")
    assert "# launch" in text
    assert "# host" not in text
