import math

import numba
import numpy as np
from fnx.lowering.numba.runtime import shared

jit = numba.njit(error_model='numpy')


@jit
def stencil(x, y, calls):
    # diffuse
    for i0 in shared(calls[2], 24, 136):  # parallel
        for i1 in range(24):  # vector
            t2 = min(max(i0, 0), 23) * 24
            t3 = min(max(i1, 0), 23)
            t4 = x[(t2 + t3)]
            t5 = x[((min(max((i0 - 1), 0), 23) * 24) + t3)] + x[((min(max((i0 + 1), 0), 23) * 24) + t3)]
            t6 = t5 + (x[(t2 + min(max((i1 - 1), 0), 23))] + x[(t2 + min(max((i1 + 1), 0), 23))])
            y[(i0 * 24) + i1] = t4 + (0.1 * (t6 - (t4 * 4.0)))
    return 0
