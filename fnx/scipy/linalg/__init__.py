"""Linear algebra with scipy.linalg's names, on stacks of matrices."""

from fnx import numpy as _numpy  # the whole, before parts of it
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.linalg import det as _det
from fnx.numpy.linalg import inv as _inv
from fnx.scipy.linalg.factorizations import *
from fnx.scipy.linalg.functions import *
from fnx.scipy.linalg.solvers import *
from fnx.scipy.linalg.special_matrices import *


def det(a, overwrite_a=False, check_finite=True):
    """The determinants of square matrices; ShapeError, a ValueError, for others.

    >>> fnx.scipy.linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]]))
    Array(-2., dtype=float64)
    """
    del overwrite_a, check_finite
    return _det(a)


def inv(a, overwrite_a=False, check_finite=True):
    """The inverses of square matrices; ShapeError, a ValueError, for others.

    >>> fnx.scipy.linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float64)
    """
    del overwrite_a, check_finite
    return _inv(a)


_retell(globals())
