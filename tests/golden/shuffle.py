import math

import numba
import numpy as np

jit = numba.njit(error_model='numpy')


@jit
def div_int32(a, b):
    if b == 0:
        return np.int32(-1)
    q = a // b
    if q * b != a and (a < 0) != (b < 0):
        q = np.int32(q + np.int32(1))
    return np.int32(q)


@jit
def shuffle(x, y, z):
    y[:12] = x[:12]
    kept0 = y[0]
    y[0] = y[11]
    y[11] = kept0
    z[:4] = np.uint8(255)
    # thirds
    for i1 in range(12 - 1, -1, -1):
        t2 = y[i1]
        t3 = np.int32(t2 * np.int32(3)) if (np.int32(t2 & np.int32(1)) != np.int32(0)) else div_int32(t2, np.int32(3))
        y[i1] = t3
    z[1] = np.uint8(z[0] >> np.uint8(4))
