"""Linear algebra with scipy.linalg's names, on stacks of matrices."""

from fnx.numpy.linalg import det as _det
from fnx.numpy.linalg import inv as _inv
from fnx.scipy.linalg.factorizations import *
from fnx.scipy.linalg.functions import *
from fnx.scipy.linalg.solvers import *
from fnx.scipy.linalg.special_matrices import *


def det(a, overwrite_a=False, check_finite=True):
    """Determinants."""
    del overwrite_a, check_finite
    return _det(a)


def inv(a, overwrite_a=False, check_finite=True):
    """Inverses."""
    del overwrite_a, check_finite
    return _inv(a)
