import math

import numba
import numpy as np
from fnx.lowering.numba.operations import div_int32

jit = numba.njit(error_model='numpy')


@jit
def shuffle(x, y, z):
    for k0 in range(12):
        y[k0] = x[k0]
    kept1 = y[0]
    y[0] = y[11]
    y[11] = kept1
    for k2 in range(4):
        z[k2] = np.uint8(255)
    # thirds
    for i3 in range(12 - 1, -1, -1):
        t4 = y[i3]
        t5 = np.int32(t4 * np.int32(3)) if (np.int32(t4 & np.int32(1)) != np.int32(0)) else div_int32(t4, np.int32(3))
        y[i3] = t5
    z[1] = np.uint8(z[0] >> np.uint8(4))
