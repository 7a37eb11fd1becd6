"""Members of a named axis, for tests of collectives."""

import numpy as np

import fnx

N = 4
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4, 8))
RING = [(k, (k + 1) % N) for k in range(N)]


def spread(x):
    """The same for all members."""
    return np.broadcast_to(x, (N, *np.shape(x)))


def mapped(f, **options):
    """f for each member of an axis that is named i."""
    return fnx.vmap(f, axis_name="i", **options)
