"""`jax._src.public_test_util`: comparisons of trees of arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fnx import tree_util
from fnx.core import dtypes

# As JAX's tests compare by default; what is exact has none.
_TOLERANCE = {
    "float16": 1e-3,
    "bfloat16": 1e-2,
    "float32": 1e-6,
    "float64": 1e-15,
    "complex64": 1e-6,
    "complex128": 1e-15,
}

Tolerance = float | Mapping[Any, float] | None


def _of_dtype(dtype: np.dtype, tolerance: Tolerance) -> float:
    """The tolerance for one dtype, of a number for all, or of a table."""
    if tolerance is None or isinstance(tolerance, Mapping):
        given = {np.dtype(k): v for k, v in (tolerance or {}).items()}
        default = 1e-1 if dtype in dtypes.SMALL else _TOLERANCE.get(str(dtype), 0.0)
        return given.get(dtype, default)
    return tolerance


def check_close(  # tinygp
    xs: Any, ys: Any, atol: Tolerance = None, rtol: Tolerance = None, err_msg: str = ""
) -> None:
    """AssertionError unless the leaves of two trees agree to within the tolerances of their dtypes.

    Tolerances are numbers, or tables by dtype, and, as JAX's, of an element: they are multiplied with the
    number of elements.
    """

    def compare(x: Any, y: Any) -> None:
        x, y = np.asarray(x), np.asarray(y)
        assert x.shape == y.shape, f"shapes {x.shape} and {y.shape} differ. {err_msg}"
        near, ratio = (max(_of_dtype(z.dtype, t) for z in (x, y)) for t in (atol, rtol))
        x, y = (dtypes.widened(z) if z.dtype in dtypes.SMALL else z for z in (x, y))
        np.testing.assert_allclose(x, y, atol=near * x.size, rtol=ratio * x.size, err_msg=err_msg)

    tree_util.tree_map(compare, xs, ys)
