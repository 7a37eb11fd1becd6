"""fnx: composable transformations of NumPy-style functions."""

from fnx import control_flow as _control_flow
from fnx import lax as lax
from fnx import numpy as numpy
from fnx import tree as tree
from fnx import tree_util as tree_util
from fnx.api import *
from fnx.core.array import Array as Array
from fnx.jit import clear_caches as clear_caches
from fnx.jit import jit as jit

for _name in "associative_scan cond fori_loop map scan switch while_loop".split():
    setattr(lax, _name, getattr(_control_flow, _name))
