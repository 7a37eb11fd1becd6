"""`jax._src.public_test_util`: comparisons of trees of arrays."""

from typing import Any

import numpy as np

from fnx import tree_util

# As JAX's tests compare by default.
_TOLERANCE = {
    "float16": 1e-3,
    "float32": 1e-6,
    "float64": 1e-15,
    "complex64": 1e-6,
    "complex128": 1e-15,
}


def check_close(  # tinygp
    xs: Any, ys: Any, atol: float | None = None, rtol: float | None = None, err_msg: str = ""
) -> None:
    """AssertionError unless the leaves of two trees agree to within the tolerances of their dtypes."""

    def compare(x: Any, y: Any) -> None:
        tolerance = max(_TOLERANCE.get(str(np.asarray(z).dtype), 0.0) for z in (x, y))
        np.testing.assert_allclose(
            x,
            y,
            atol=tolerance if atol is None else atol,
            rtol=tolerance if rtol is None else rtol,
            err_msg=err_msg,
        )

    tree_util.tree_map(compare, xs, ys)
