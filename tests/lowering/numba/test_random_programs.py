"""Random programs by Numba against the own path, and against equation-by-equation evaluation.

FNX_FUZZ=100 tries that many of each kind, from the seed FNX_FUZZ_FROM on, instead of a few.
"""

import os

import numpy as np
import pytest
from programs import Random
from programs_wide import Wide
from transformed import MADE

import fnx
import fnx.numpy as jnp
from fnx import lax

START = int(os.environ.get("FNX_FUZZ_FROM", "0"))
SEEDS = range(START, START + int(os.environ.get("FNX_FUZZ", "1")))
KINDS = {"Random": Random, "Wide": Wide}


def agree(found, expected, tolerance: float) -> None:
    for a, b in zip(found, expected, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        scale = 1.0 + np.abs(b[np.isfinite(b)]).max(initial=0.0)
        np.testing.assert_allclose(a / scale, b / scale, rtol=tolerance, atol=tolerance)


def program(seed: int, kind: str, **options):
    f, args = KINDS[kind](seed, "float64").program(**options)
    return (lambda *xs: f(jnp, lax, *xs)), [jnp.asarray(a) for a in args]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_numba_computes_what_evaluation_does(seed, kind):
    f, args = program(seed, kind, length=8)
    with fnx.disable_jit():
        expected = f(*args)
    agree(fnx.jit(f, backend="numba")(*args), expected, 1e-9)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("seed", SEEDS)
def test_numba_computes_what_the_own_path_does(seed, made, kind):
    smooth = made != "members"
    f, args = MADE[made](*program(80_000 + seed, kind, length=4, smooth=smooth))
    # Products and factorizations of matrices, and Fourier transforms, are other libraries' here.
    agree(fnx.jit(f, backend="numba")(*args), fnx.jit(f, backend="cpu")(*args), 1e-12)
