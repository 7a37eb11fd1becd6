import math

import numba
import numpy as np

jit = numba.njit(error_model='numpy')


@jit
def root(x, y):
    # newton
    for i0 in range(10):
        t1 = x[i0]
        if t1 >= 0.0:
            guess3 = t1 + 1.0
            step4 = np.int32(0)
            while True:
                if not ((np.abs(((guess3 * guess3) - t1)) > 1e-12) & (step4 < np.int32(60))):
                    break
                guess3, step4 = 0.5 * (guess3 + (t1 / guess3)), np.int32(step4 + np.int32(1))
            r2 = guess3
        else:
            r2 = np.float64(np.nan)
        y[i0] = r2
