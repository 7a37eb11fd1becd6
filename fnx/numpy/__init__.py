"""NumPy's functions on arrays that can be traced, differentiated, batched and compiled."""

import math as _math
import sys as _sys
from typing import Any as _Any

import numpy as _np

from fnx.core import lazy_imports as _later
from fnx.core.array import Array as ndarray
from fnx.core.array import install as _install
from fnx.core.dtypes import bfloat16 as _bfloat16
from fnx.numpy.algebra.einsums import *
from fnx.numpy.algebra.products import *
from fnx.numpy.arrays.creation import *
from fnx.numpy.arrays.creation import asarray as _asarray
from fnx.numpy.arrays.key_arrays import serve as _serve_keys
from fnx.numpy.arrays.protocols import API_VERSIONS as _API_VERSIONS
from fnx.numpy.arrays.protocols import serve as _serve
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.numpy.arrays.scalar_types import *
from fnx.numpy.elementwise.arithmetic import *
from fnx.numpy.elementwise.division import *
from fnx.numpy.elementwise.elementary import *
from fnx.numpy.elementwise.logic import *
from fnx.numpy.elementwise.rounding import *
from fnx.numpy.inspection import array_namespace_info as __array_namespace_info__
from fnx.numpy.methods import members as _members
from fnx.numpy.numerics.calculus import *
from fnx.numpy.numerics.counting import *
from fnx.numpy.numerics.grids import *
from fnx.numpy.numerics.padding import *
from fnx.numpy.numerics.polynomials import *
from fnx.numpy.numerics.sets import *
from fnx.numpy.numerics.statistics import *
from fnx.numpy.numerics.ufunc_methods import *
from fnx.numpy.numerics.vectorize import *
from fnx.numpy.reductions.averages import *
from fnx.numpy.reductions.cumulative import *
from fnx.numpy.reductions.nan_reduce import *
from fnx.numpy.reductions.reduce import *
from fnx.numpy.structure.diagonals import *
from fnx.numpy.structure.insertion import *
from fnx.numpy.structure.joining import *
from fnx.numpy.structure.nonzero import *
from fnx.numpy.structure.ranges import *
from fnx.numpy.structure.selection import *
from fnx.numpy.structure.shapes import *
from fnx.numpy.structure.sorting import *
from fnx.numpy.structure.tiling import *

pi, e, inf, nan, euler_gamma = _math.pi, _math.e, _math.inf, _math.nan, 0.5772156649015329
newaxis = None
__array_api_version__ = _API_VERSIONS[-1]
set_printoptions, get_printoptions = _np.set_printoptions, _np.get_printoptions
printoptions = _np.printoptions


def array_repr(arr, max_line_width=None, precision=None, suppress_small=None):
    """The values as numpy.array_repr prints them.

    >>> jnp.array_repr(jnp.array([0.5, 0.25]))
    'array([0.5 , 0.25])'
    """
    return _np.array_repr(_np.asarray(arr), max_line_width, precision, suppress_small)


def array_str(a, max_line_width=None, precision=None, suppress_small=None):
    """The values as str(a) prints them.

    >>> jnp.array_str(jnp.array([0.5, 0.25]))
    '[0.5  0.25]'
    """
    return _np.array_str(_np.asarray(a), max_line_width, precision, suppress_small)


array2string = _np.array2string


def save(file, arr, allow_pickle=True):
    """Write an array to a .npy file.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> jnp.load(io.BytesIO(file.getvalue()))
    Array([0, 1, 2], dtype=int64)
    """
    _np.save(file, _np.asarray(arr), allow_pickle)


def savez(file, *args, allow_pickle=True, **kwds):
    """Write arrays to a .npz file.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.savez(file, x=jnp.arange(3))
    >>> jnp.load(io.BytesIO(file.getvalue()))["x"]
    array([0, 1, 2])
    """
    arrays = [_np.asarray(a) for a in args]
    _np.savez(
        file, *arrays, allow_pickle=allow_pickle, **{k: _np.asarray(v) for k, v in kwds.items()}
    )


def load(file, *args, **kwargs):
    """Read a .npy file as an array, a .npz file as NumPy arrays.

    >>> import io
    >>> file = io.BytesIO()
    >>> jnp.save(file, jnp.arange(3))
    >>> jnp.load(io.BytesIO(file.getvalue()))
    Array([0, 1, 2], dtype=int64)
    """
    found = _np.load(file, *args, **kwargs)
    if not isinstance(found, _np.ndarray) or found.dtype == object:
        return found
    # NumPy writes bfloat16, which is none of its own dtypes, as nameless bytes.
    return _asarray(found.view(_bfloat16) if found.dtype == "V2" else found)


_install(_members())
_serve(_sys.modules[__name__])
_later.bring(__name__)
_serve_keys(globals())
_retell(globals(), but=("fnx.numpy.elementwise",))

for _name in ("fft", "linalg"):
    _later.add(__name__, f"{__name__}.{_name}", _name, modules=True)


def __getattr__(name: str) -> _Any:
    return _later.find(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_later.names(__name__)})
