"""Programs on the fake GPU: which kernels there are, and whether results are those of the CPU."""

import numpy as np

import fnx


def shapes(f, *args):
    """The shapes of a program's kernels, and the program."""
    compiled = fnx.jit(f, backend="cuda").lower(*args).program.compiled()
    return [k.shape for k in compiled.plan.kernels()], compiled


def same(f, *args):
    """Compare a program's results with those of its operations one by one."""
    found, wanted = fnx.jit(f, backend="cuda")(*args), f(*args)
    for a, b in zip(*map(fnx.tree.leaves, (found, wanted)), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
