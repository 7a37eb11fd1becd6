"""Samples of Fourier transforms."""

import numpy as np
from samples import Sample

from fnx.ops.linalg.fft import FFT

_rng = np.random.default_rng(10)


def _f(*shape):
    return _rng.normal(size=shape)


def _c(*shape):
    return _f(*shape) + 1j * _f(*shape)


SAMPLES = [
    Sample(FFT("fft", (4,)), (_c(3, 4),)),
    Sample(FFT("fft", (3, 4)), (_c(2, 3, 4),)),
    Sample(FFT("ifft", (5,)), (_c(5),)),
    Sample(FFT("ifft", (3, 4)), (_c(3, 4),)),
    Sample(FFT("rfft", (4,)), (_f(3, 4),)),
    Sample(FFT("rfft", (5,)), (_f(5),)),
    Sample(FFT("rfft", (3, 5)), (_f(2, 3, 5),)),
    Sample(FFT("irfft", (4,)), (_c(3, 3),)),
    Sample(FFT("irfft", (5,)), (_c(3, 3),)),
    Sample(FFT("irfft", (3, 4)), (_c(3, 3),)),
    Sample(FFT("irfft", (1,)), (_c(1),)),
    Sample(FFT("irfft", (2,)), (_c(2),)),
    Sample(FFT("fft", (4,)), (_c(4).astype(np.complex64),)),
    Sample(FFT("rfft", (4,)), (_f(4).astype(np.float32),)),
]
