"""Programs whose kernels the simulator runs: small arrays, every shape of kernel."""

import itertools
import os
from functools import partial

import numpy as np
import programs as random_programs
from programs_wide import Wide
from transformed import MADE

import fnx
import fnx.numpy as jnp
from fnx import lax

_rng = np.random.default_rng(0)
X, Y, V = _rng.normal(size=(5, 50)), _rng.normal(size=(50, 5)), _rng.normal(size=61)
STATES = _rng.normal(size=(12, 3))


def lorenz(state):
    def step(c, _):
        x, y, z = c
        new = x + 0.01 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - z)
        return new, None

    return lax.scan(step, tuple(state), None, length=4)[0]


def growing(x):
    return lax.while_loop(lambda c: c[0] < 10.0, lambda c: (c[0] * 1.5 + 1, c[1] + 1), (x, 0))


def smoothed(u):
    return lax.fori_loop(0, 5, lambda i, v: v + 0.1 * (jnp.roll(v, 1) - v), u)


def nine_points(u):
    rows, columns = (n - 2 for n in u.shape)
    return sum((i - 2 * j) * u[i : rows + i, j : columns + j] for i in range(3) for j in range(3))


def normalised(x):
    return (x - x.mean(1, keepdims=True)) / jnp.sqrt(x.var(1, keepdims=True) + 1e-5)


def convolved(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME")


INDICES = _rng.integers(-20, 20, 40)
PROGRAMS = {
    "nine points": (nine_points, [X[:, :9]]),
    "rows": (lambda x: x.sum(1), [X]),
    "columns": (lambda x: (x.sum(0), x.std(0)), [Y]),
    "whole": (lambda x: (x.sum(), x.max(), (x * x).min(), x.mean(), x.prod()), [X]),
    "float32": (lambda x: x.sum(), [X.astype("f4")]),
    "float16": (lambda x: x.sum(1), [X.astype("f2")]),
    "complex": (lambda x: (x * 1j).sum(), [X]),
    "int32": (lambda x: (x.sum(1), x.max()), [(X * 10).astype("i4")]),
    "any": (lambda x: ((x > 0).any(1), (x > -9).all()), [X]),
    "arguments": (lambda x: (x.argmax(1), x.argmin(), x.argmax()), [X]),
    "softmax": (lambda x: fnx.nn.softmax(x, 1), [X]),
    "norm": (normalised, [X]),
    "cumulative": (lambda x: (jnp.cumsum(x), jnp.cumprod(1 + x * 0.1)), [V]),
    "cumulative rows": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 1, reverse=True)), [X]),
    "cumulative columns": (lambda x: jnp.cumsum(x, 0), [Y]),
    "long cumulative": (jnp.cumsum, [_rng.normal(size=400)]),
    "product": (lambda x, y: (x @ y, x @ y[:, 0]), [X, Y]),
    "transposed": (lambda x: x.T + jnp.ones((50, 5)), [X]),
    "stencil": (lambda u: u[1:-1, 1:-1] * 4 - u[:-2, 1:-1] - u[1:-1, 2:], [X]),
    "convolution": (convolved, [_rng.normal(size=(2, 3, 8, 8)), _rng.normal(size=(4, 3, 3, 3))]),
    "gather": (lambda x, i: x[0][i], [X, INDICES]),
    "added": (lambda x, i: jnp.zeros(20).at[i].add(x[0, :40]), [X, INDICES]),
    "set": (lambda x, i: jnp.zeros(20).at[i].set(x[0, :40]), [X, INDICES]),
    "counted": (lambda i: jnp.zeros(20, "int64").at[i].add(1), [INDICES]),
    "greatest": (lambda i: jnp.zeros(20, "int64").at[i].max(i), [INDICES]),
    "sorted": (jnp.sort, [V]),
    "ensemble": (fnx.vmap(lorenz), [STATES]),
    "gradient of an ensemble": (
        fnx.grad(lambda s: (fnx.vmap(lorenz)(s)[0] ** 2).sum()),
        [STATES],
    ),
    "while by lanes": (fnx.vmap(growing), [np.linspace(0, 9, 12)]),
    "loop over arrays": (smoothed, [V]),
    "gradient of a loop": (fnx.grad(lambda u: (smoothed(u) ** 2).sum()), [V]),
    "while over arrays": (
        lambda x: lax.while_loop(lambda v: jnp.max(v) > 0.1, lambda v: v / 2, x),
        [V],
    ),
    "cond": (lambda x: lax.cond(x[0] > 0, jnp.sin, lambda v: v * 2, x), [V]),
    "user's scan": (lambda x: lax.scan(lambda c, a: (c * 0.5 + a, c), 0.0, x), [V]),
    "gradient": (fnx.grad(lambda x: jnp.log(jnp.exp(x).sum())), [X]),
    "solved": (lambda a, b: jnp.linalg.solve(a @ a.T + jnp.eye(5), b), [X, V[:5]]),
    "special": (lambda x: fnx.scipy.special.erf(x) + fnx.scipy.special.gammaln(x * x + 1), [V]),
}


def random_ones(count=100):
    """Random programs; every fifth, and one with members that loop, unless FNX_FUZZ asks for all."""
    made = {}
    is_all = bool(os.environ.get("FNX_FUZZ"))
    for seed in sorted({*range(0, count, 1 if is_all else 5), count - 2}):
        f, args = random_programs.Random(seed).program()
        made[f"random program {seed}"] = partial(f, jnp, lax), args
    for seed, (word, make) in itertools.product(range(count if is_all else 3), MADE.items()):
        f, args = Wide(seed).program(length=4, smooth=word != "members")
        made[f"{word} of random program {seed}"] = make(partial(f, jnp, lax), args)
    return made


# --- calls of users -------------------------------------------------------------------------------


def jitted():
    f = fnx.jit(lambda x: (jnp.sin(x).sum(0), fnx.nn.softmax(x)), backend="cuda")
    first, second = f(X)
    assert type(second._value).__name__ == "DeviceBuffer"
    assert second._value._host is None
    np.testing.assert_allclose(first, np.sin(X).sum(0), rtol=1e-12)
    again = f(second)[1]  # from one call to the next nothing comes to the host
    assert second._value._host is None
    np.testing.assert_allclose(np.asarray(again).sum(1), 1.0)


def gradients():
    f = fnx.jit(lambda x: jnp.sin(x).sum(), backend="cuda")
    np.testing.assert_allclose(fnx.grad(f)(X), np.cos(X), rtol=1e-12)
    np.testing.assert_allclose(fnx.vmap(f)(X), np.sin(X).sum(1), rtol=1e-12)


def donated():
    twice = fnx.jit(lambda x: x * 2, backend="cuda", donate_argnums=0)
    given = fnx.jit(lambda x: x + 1, backend="cuda")(X)
    memory = given._value.memory
    result = twice(given)
    assert given.is_deleted()
    assert result._value.memory is memory
    np.testing.assert_allclose(result, 2 * X + 2)


def shared_numbers_are_not_donated():
    twice = fnx.jit(lambda x: x * 2, backend="cuda", donate_argnums=0)
    given = fnx.jit(lambda x: x + 1, backend="cuda")(X)
    other = type(given)(given._value, False)
    twice(given)
    np.testing.assert_allclose(other, X + 1)


def setting():
    with fnx.core.config.backend("cuda"):
        found = fnx.jit(lambda x: x.sum())(X)
    assert type(found._value).__name__ == "DeviceBuffer"
    np.testing.assert_allclose(found, X.sum())


def same_bits():
    f = fnx.jit(lambda x, i: (x.sum(), jnp.zeros(20).at[i].add(x[0, :40])), backend="cuda")
    runs = [[np.asarray(y).tobytes() for y in f(X, INDICES)] for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]


def random_bits():
    keys = fnx.random.key(7)
    made = fnx.jit(lambda k: fnx.random.bits(k, (40,)), backend="cuda")(keys)
    np.testing.assert_array_equal(made, fnx.random.bits(keys, (40,)))


def devices():
    (gpu,) = fnx.devices("gpu")
    x = fnx.device_put({"x": X}, gpu)["x"]
    assert type(x._value).__name__ == "DeviceBuffer"
    assert gpu.memory_stats()["bytes_in_use"] >= X.nbytes
    np.testing.assert_array_equal(fnx.jit(lambda v: v * 2, backend="cuda")(x), X * 2)
    np.testing.assert_array_equal(fnx.device_put(x, fnx.devices()[0]), X)


CALLS = {
    f.__name__: f
    for f in (
        jitted, gradients, donated, shared_numbers_are_not_donated, setting, same_bits,
        random_bits, devices,
    )
}  # fmt: skip
