"""Linear algebra with scipy.linalg's names, on stacks of matrices."""

from fnx.numpy.linalg import det as _det
from fnx.numpy.linalg import inv as _inv
from fnx.scipy.linalg.factorizations import *  # noqa: F403
from fnx.scipy.linalg.functions import *  # noqa: F403
from fnx.scipy.linalg.solvers import *  # noqa: F403
from fnx.scipy.linalg.special_matrices import *  # noqa: F403


def det(a, overwrite_a=False, check_finite=True):
    """Determinants."""
    del overwrite_a, check_finite
    return _det(a)


def inv(a, overwrite_a=False, check_finite=True):
    """Inverses."""
    del overwrite_a, check_finite
    return _inv(a)
