import math

import numba
import numpy as np

jit = numba.njit(error_model='numpy')


@jit
def rsqrt_float32(x):
    return np.float32(np.float32(1.0) / np.float32(np.sqrt(x)))


@jit
def normalize(x, y, centred):
    """3 kernels"""
    # mean
    total0 = np.float32(0.0)
    for i1 in range(50):  # reassociate
        total0 = np.float32(total0 + x[i1])
    # centre: with its sum of squares
    ss2 = np.float32(0.0)
    for i3 in range(50):  # reassociate
        t4 = np.float32(x[i3] - np.float32(total0 / np.float32(50.0)))
        centred[i3] = t4
        ss2 = np.float32(ss2 + np.float32(t4 * t4))
    # scale
    for i5 in range(50):  # vector
        y[i5] = np.float32(centred[i5] * rsqrt_float32(np.float32(ss2 / np.float32(50.0))))
