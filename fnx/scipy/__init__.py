"""SciPy's functions on arrays that can be traced, differentiated, batched and compiled."""

from fnx.scipy import (
    cluster,
    fft,
    integrate,
    interpolate,
    linalg,
    ndimage,
    optimize,
    signal,
    sparse,
    spatial,
    special,
    stats,
)
