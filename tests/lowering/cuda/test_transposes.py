"""What is read along another axis than the threads' one goes through squares of shared memory."""

import numpy as np
import pytest
from launched import same, shapes

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(16, 16), (9, 13), (16, 12), (41, 10)])
@pytest.mark.parametrize("dtype", ["float64", "float16", "bool", "complex128", "int8"])
def test_transposes(gpu, shape, dtype):
    x = jnp.asarray(RNG.normal(size=shape) * 9).astype(dtype)
    f = lambda x: jnp.where(x.T == 0, 1, x.T)
    assert shapes(f, x)[0] == ["square"]
    same(f, x)


@pytest.mark.parametrize("axes", [(2, 0, 1), (2, 1, 0), (0, 2, 1), (1, 2, 0)])
def test_axes(gpu, axes):
    x = RNG.normal(size=(9, 11, 13))
    f = lambda x: jnp.transpose(x, axes) * 2
    assert shapes(f, x)[0] == ["square"]
    same(f, x)


def test_several_arrays_are_staged(gpu):
    x, y, z = (RNG.normal(size=s) for s in ((12, 10), (12, 10), (10, 12)))
    f = lambda x, y, z: x.T * y.T + z + x.T[:, ::-1]
    kinds, compiled = shapes(f, x, y, z)
    assert kinds == ["square"]
    (text,) = [p.source for p in compiled.printed.values()]
    assert text.count("cuda.shared.array") == 3
    same(f, x, y, z)


def test_what_is_not_across_is_read_where_it_lies(gpu):
    x, v = RNG.normal(size=(12, 16)), RNG.normal(size=12)
    for f in (lambda x, v: x + v[:, None], lambda x, v: x[:, ::2] * 2, lambda x, v: x[::-1] * v[0]):
        assert "square" not in shapes(f, x, v)[0]
        same(f, x, v)
    assert "square" not in shapes(lambda x: x.T * 2, x[:3])[0]  # too few for a square


def test_symmetric_sums_and_gradients(gpu):
    x = RNG.normal(size=(12, 12))
    same(lambda x: x + x.T, x)
    same(fnx.grad(lambda x: jnp.sum(jnp.sin(x.T) * x)), x)
    same(fnx.vmap(lambda x: x.T * 2), RNG.normal(size=(3, 9, 10)))


def test_in_loops_of_the_host(gpu):
    x = RNG.normal(size=(10, 10))
    same(lambda x: lax.fori_loop(0, 5, lambda i, v: v.T / v.max() + i, x), x)
    same(lambda x: lax.while_loop(lambda v: v.max() > 0.1, lambda v: v.T / 2 + v.sum() * 0, x), x)


def test_donated_arrays(gpu):
    x = RNG.normal(size=(12, 12))
    given = fnx.jit(lambda x: x + 1, backend="cuda")(x)
    f = fnx.jit(lambda x: x.T * 2, backend="cuda", donate_argnums=0)
    np.testing.assert_array_equal(f(given), (x + 1).T * 2)


def test_the_source(gpu):
    _, compiled = shapes(lambda x: x.T * 2.0, RNG.normal(size=(9, 13)))
    (printed,) = compiled.printed.values()
    assert (
        printed.source
        == '''def k1_mul(in0, out0):
    """[13, 9] mul"""
    square0 = cuda.shared.array(20, numba.float64)
    lane = np.int64(cuda.threadIdx.x)
    for i0 in range(np.int64(cuda.blockIdx.x), (1) * (4) * (3), np.int64(cuda.gridDim.x)):
        i3 = i0 % 3 * 4
        i2 = i0 // 3 % 4 * 4
        i1 = i0 // 12
        for i4 in range(2):
            i5 = np.int64(cuda.threadIdx.y) + i4 * 2
            i6 = i2 + lane
            i7 = i3 + i5
            if i6 < 13 and i7 < 9:
                square0[(i5 * 5) + lane] = in0[((i7 * 13) + i6)]
        cuda.syncthreads()
        for i8 in range(2):
            i9 = np.int64(cuda.threadIdx.y) + i8 * 2
            i10 = i3 + lane
            i11 = i2 + i9
            if i10 < 9 and i11 < 13:
                out0[(i11 * 9) + i10] = libdevice.dmul_rn(square0[((lane * 5) + i9)], np.float64(2.0))
        cuda.syncthreads()
'''
    )
