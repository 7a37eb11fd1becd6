"""All elementwise functions with NumPy's names, in one place."""
# ruff: noqa: F401, F403

from fnx.numpy.elementwise.arithmetic import *
from fnx.numpy.elementwise.arithmetic import one, times, truth, where3, without_complex, zero
from fnx.numpy.elementwise.division import *
from fnx.numpy.elementwise.elementary import *
from fnx.numpy.elementwise.logic import *
from fnx.numpy.elementwise.rounding import *
