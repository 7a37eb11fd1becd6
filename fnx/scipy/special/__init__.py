"""Special functions, with scipy.special's names."""

from fnx import numpy as _numpy  # the whole, before parts of it
from fnx.numpy.arrays.public_calls import serve as _retell
from fnx.scipy.special.bessel import *
from fnx.scipy.special.elementary import *
from fnx.scipy.special.gammas import *
from fnx.scipy.special.harmonics import *
from fnx.scipy.special.integrals import *
from fnx.scipy.special.legendre import *
from fnx.scipy.special.normal import *

_retell(globals())
