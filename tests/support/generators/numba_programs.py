"""Programs of all kinds that the Numba backend compiles, and whether they are right."""

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6, 5))
V = RNG.normal(size=40)
INTS = RNG.integers(-5, 9, size=12)


def collatz(n):
    """How many steps lead to 1; each element of a batch takes its own."""
    step = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return lax.while_loop(lambda s: s[0] > 1, step, (n, 0))[1]


def diffusion(x):
    step = lambda u, _: (u + 0.1 * (jnp.roll(u, 1) - 2 * u + jnp.roll(u, -1)), jnp.max(u))
    return lax.scan(step, x, None, length=7)


def branch(x):
    return lax.cond(x > 0, jnp.sin, lambda v: v * v, x)


PROGRAMS = {
    "elementwise": (lambda x: jnp.exp(x) * jnp.tanh(x) + x / 3, [X]),
    "float32": (lambda x: jnp.sqrt(jnp.abs(x)) + 1, [X.astype(np.float32)]),
    "float16": (lambda x: x * x + 1, [V.astype(np.float16)]),
    "complex": (lambda x: jnp.exp(1j * x) * (x + 2j), [V]),
    "integers": (lambda n: (n // 3, n % 4, n << 2, n > 2), [INTS]),
    "reductions": (lambda x: (x.sum(0), x.max(1), jnp.mean(x), x.argmin(1)), [X]),
    "product": (lambda x: x @ x.T, [X]),
    "sort": (jnp.sort, [V]),
    "gather": (lambda x, n: x[n % 6, 1], [X, INTS]),
    "scatter": (lambda v, n: v.at[n].add(1.5), [V, INTS]),
    "scan": (diffusion, [V]),
    "while": (fnx.vmap(collatz), [np.arange(1, 12)]),
    "cond": (fnx.vmap(branch), [V]),
    "gradient of a loop": (fnx.grad(lambda v: jnp.sum(diffusion(v)[0] ** 2)), [V]),
    "hessian": (fnx.hessian(lambda v: jnp.sum(jnp.sin(v[:3]) * v[1:4])), [V[:4]]),
    "rank 0": (lambda a: a * 2 + 1, [np.float64(0.25)]),
    "empty": (lambda v: (v[:0] * 2, jnp.sum(v[:0])), [V]),
    "convolution": (lambda v: jnp.convolve(v, v[:5], mode="same"), [V]),
    "solve, on the host": (lambda x: jnp.linalg.solve(x[:5] @ x[:5].T + jnp.eye(5), x[0]), [X]),
}


def check(name):
    """The same values and types as the reference backend's."""
    f, args = PROGRAMS[name]
    got = fnx.jit(f, backend="numba")(*args)
    expected = fnx.jit(f, backend="reference")(*args)
    pairs = zip(*map(fnx.tree_util.tree_leaves, (got, expected)), strict=True)
    for ours, theirs in pairs:
        assert (ours.dtype, ours.shape, ours.weak_type) == (
            theirs.dtype,
            theirs.shape,
            theirs.weak_type,
        )
        tolerance = {2: 1e-2, 4: 1e-5}.get(ours.dtype.itemsize, 1e-12)
        np.testing.assert_allclose(
            np.asarray(ours, np.complex128), np.asarray(theirs, np.complex128), tolerance, tolerance
        )
