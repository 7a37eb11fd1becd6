"""fnx: composable transformations of NumPy-style functions."""

import importlib as _importlib

from fnx import numpy as numpy
from fnx import tree as tree
from fnx import tree_util as tree_util
from fnx.api import *  # noqa: F403
from fnx.core.array import Array as Array
from fnx.jit import clear_caches as clear_caches
from fnx.jit import jit as jit

from fnx import control_flow as _control_flow
from fnx import lax as lax

for _name in _control_flow.__all__ if hasattr(_control_flow,"__all__") else "scan map while_loop fori_loop cond switch associative_scan".split():
    setattr(lax, _name, getattr(_control_flow, _name))
