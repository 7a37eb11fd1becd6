"""Arrays compared with arrays, within rounding."""

import numpy as np


def close(a, b, rtol=1e-12, atol=1e-12):
    """The same shape, and the same numbers but for rounding."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
