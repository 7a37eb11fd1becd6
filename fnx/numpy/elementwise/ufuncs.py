"""All elementwise functions with NumPy's names, in one place."""
# ruff: noqa: F401, F403

from fnx.numpy.arithmetic import *
from fnx.numpy.arithmetic import one, times, truth, where3, zero
from fnx.numpy.division import *
from fnx.numpy.elementary import *
from fnx.numpy.logic import *
from fnx.numpy.rounding import *
from fnx.numpy.rounding import dtypes_finfo
