"""Trees of arrays compared, leaf by leaf."""

import numpy as np

import fnx


def equal(a, b):
    if isinstance(a, fnx.Array):
        a, b = [a], [np.asarray(b)]
    for x, y in zip(fnx.tree.leaves(a), fnx.tree.leaves(b), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12)
