"""Random programs by Numba against equation-by-equation evaluation.

FNX_FUZZ=100 tries that many, half of each kind, from the seed FNX_FUZZ_FROM on, instead of a few.
"""

import os

import numpy as np
import pytest
from programs import Random
from programs_wide import Wide

import fnx
import fnx.numpy as jnp
from fnx import lax

START = int(os.environ.get("FNX_FUZZ_FROM", "0"))
SEEDS = range(START, START + int(os.environ.get("FNX_FUZZ", "8")) // 2)


@pytest.mark.parametrize("kind", [Random, Wide])
@pytest.mark.parametrize("seed", SEEDS)
def test_numba_computes_what_evaluation_does(seed, kind):
    f, args = kind(seed, "float64").program(length=8)
    args = [jnp.asarray(a) for a in args]
    run = lambda *xs: f(jnp, lax, *xs)
    with fnx.disable_jit():
        expected = run(*args)
    for a, b in zip(fnx.jit(run, backend="numba")(*args), expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = 1.0 + np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a / scale, b / scale, rtol=1e-9, atol=1e-9)
