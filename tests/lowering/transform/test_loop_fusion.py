"""Passes over rows become one nest; vector loops end with a whole vector."""

import numpy as np
import pytest

import fnx as jax
import fnx.numpy as jnp
from fnx.lowering.cpu.runtime import thread_pool

RNG = np.random.default_rng(0)

pytestmark = pytest.mark.usefixtures("checked")


def softmax(np_, x):
    e = np_.exp(x - np_.max(x, axis=-1, keepdims=True))
    return e / np_.sum(e, axis=-1, keepdims=True)


def layer_norm(np_, x):
    centred = x - np_.mean(x, axis=-1, keepdims=True)
    return centred / np_.sqrt(np_.mean(centred**2, axis=-1, keepdims=True) + 1e-5)


def log_sum_exp(np_, x):
    top = np_.max(x, axis=-1, keepdims=True)
    return np_.log(np_.sum(np_.exp(x - top), axis=-1)) + top[..., 0]


def normalised(np_, x):
    low, high = np_.min(x, axis=-1, keepdims=True), np_.max(x, axis=-1, keepdims=True)
    return (x - low) / (high - low)


def cosines(np_, x):
    return np_.sum(np_.cos(x) * x, axis=-1, keepdims=True) * np_.sin(x)


def next_ones(np_, x):
    y = np_.exp(x)
    return y[..., 1:] * y[..., :-1] - np_.sum(y, axis=-1, keepdims=True)


ROWS = [softmax, layer_norm, log_sum_exp, normalised, cosines, next_ones]


def kernel(f, *args):
    return jax.jit(f).lower(*args).as_text("kernel")


@pytest.mark.parametrize("shape", [(40, 70), (5, 6, 33), (1, 100), (60, 12), (3, 20_000)], ids=str)
@pytest.mark.parametrize("f", ROWS)
def test_rows_are_as_numpy_has_them(f, shape):
    x = RNG.normal(size=shape)
    np.testing.assert_allclose(jax.jit(lambda x: f(jnp, x))(x), f(np, x), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("f", ROWS)
def test_gradients_of_rows(f):
    x = RNG.normal(size=(40, 50))

    def loss(x):
        return jnp.sum(jnp.sin(f(jnp, x)))

    gradient = jax.jit(jax.grad(loss))(x)
    direction = RNG.normal(size=x.shape)
    step = 1e-6
    difference = (loss(x + step * direction) - loss(x - step * direction)) / (2 * step)
    np.testing.assert_allclose(np.sum(gradient * direction), difference, rtol=1e-5, atol=1e-6)


@pytest.mark.own_code
@pytest.mark.parametrize("f", [softmax, layer_norm, normalised, cosines])
def test_one_nest_without_memory_of_the_size_of_the_array(f):
    text = kernel(lambda x: f(jnp, x), RNG.normal(size=(300, 200)))
    assert text.count("\nkernel ") == 1
    assert "global" not in text


@pytest.mark.own_code
def test_long_rows_stay_in_memory():
    text = kernel(lambda x: softmax(jnp, x), RNG.normal(size=(40, 20_000)))
    assert text.count("\nkernel ") == 1
    assert "private" not in text


@pytest.mark.own_code
def test_single_numbers_at_the_end_are_vectors():
    text = kernel(lambda x: log_sum_exp(jnp, x), RNG.normal(size=(300, 200)))
    assert text.count("\nkernel ") == 2


def test_rows_that_read_other_rows_stay_apart():
    def f(x):
        y = jnp.exp(x)
        return jnp.sum(y[1:] * y[:-1], axis=1), y

    x = RNG.normal(size=(80, 90))
    y = np.exp(x)
    found = jax.jit(f)(x)
    np.testing.assert_allclose(found[0], np.sum(y[1:] * y[:-1], axis=1))
    np.testing.assert_allclose(found[1], y)


def test_sums_over_columns_between():
    def f(np_, x):
        centred = x - np_.mean(x, axis=0)
        return softmax(np_, centred / np_.sqrt(np_.mean(centred**2, axis=0))) + centred

    x = RNG.normal(size=(80, 90))
    np.testing.assert_allclose(jax.jit(lambda x: f(jnp, x))(x), f(np, x), rtol=1e-11)


def test_rows_inside_a_loop():
    def f(np_, loop, x):
        return loop(lambda x: softmax(np_, np_.sin(x) + x), x)

    def ours(step, x):
        return jax.lax.fori_loop(0, 5, lambda _, x: step(x), x)

    def theirs(step, x):
        for _ in range(5):
            x = step(x)
        return x

    x = RNG.normal(size=(30, 70))
    np.testing.assert_allclose(jax.jit(lambda x: f(jnp, ours, x))(x), f(np, theirs, x), rtol=1e-11)


def test_statements_between_that_matter():
    """The library's product reads one pass and feeds the next: the order stays."""

    def f(np_, x):
        y = softmax(np_, x)
        z = y @ y.T
        return layer_norm(np_, z) + np_.sum(y, axis=1)

    x = RNG.normal(size=(90, 70))
    np.testing.assert_allclose(jax.jit(lambda x: f(jnp, x))(x), f(np, x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [17, 23, 32, 33, 47, 100])
def test_last_vectors_overlap(n, dtype):
    x, y = RNG.normal(size=(2, 7, n, n)).astype(dtype)

    def f(np_, x, y):
        a = np_.tanh(x[:, 1:] - x[:, :-1]) * y[:, 1:]
        return a, np_.exp(y).swapaxes(1, 2) * 2.0, np_.sin(x) + np_.cos(y[:, :1])

    tolerance = 2e-6 if dtype == "float32" else 1e-14
    for ours, theirs in zip(jax.jit(lambda x, y: f(jnp, x, y))(x, y), f(np, x, y), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
        assert ours.dtype == dtype


@pytest.mark.own_code
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [18, 39, 47])
def test_last_vectors_of_rows_on_the_stack_overlap(n, dtype):
    x = RNG.normal(size=(9, n, n)).astype(dtype)

    def f(np_, x):
        a = np_.tanh(x[:, 1:] - x[:, :-1])
        return a[:, 1:] * a[:, :-1]

    ours = jax.jit(lambda x: f(jnp, x))
    tolerance = 2e-6 if dtype == "float32" else 1e-14
    np.testing.assert_allclose(ours(x), f(np, x), rtol=tolerance, atol=tolerance)
    stages = ours.lower(x)
    assert "private" in stages.as_text("kernel")
    assert stages.as_text("llvm").count("llvm.smin.i64(") == 2  # the costly loop, a declaration


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(100, 20, 10), (40, 30, 70), (33, 17, 5)], ids=str)
@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (2, 1, 0), (0, 2, 1)])
def test_reductions_of_transposed_arrays(shape, order):
    x = RNG.normal(size=shape)
    for axes in [0, 1, 2, (0, 1), (0, 2), (1, 2)]:

        def f(np_, x, axes=axes):
            y = np_.transpose(x, order)
            found = [np_.sum(y * y, axis=axes), np_.max(y, axis=axes), np_.sum(y > 0.1, axis=axes)]
            if isinstance(axes, int):
                found.append(np_.argmax(y, axis=axes))
            return found, y + 1.0

        found, expected = jax.jit(lambda x, f=f: f(jnp, x))(x), f(np, x)
        for ours, theirs in zip([*found[0], found[1]], [*expected[0], expected[1]], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


def test_the_first_of_equal_elements_is_found_in_any_order():
    x = RNG.integers(0, 3, (40, 60, 50)).astype(float)
    y = x.transpose(2, 0, 1)
    for axis in (0, 1, 2, None):
        found = jax.jit(lambda x, axis=axis: jnp.argmax(jnp.transpose(x, (2, 0, 1)), axis=axis))(x)
        np.testing.assert_array_equal(found, np.argmax(y, axis=axis))


@pytest.mark.parametrize("axis", [0, 2])
def test_what_lies_side_by_side_is_read_innermost(axis):
    """x[k, i, n] as y[n, k, i], summed over its first or its last axis."""
    text = kernel(
        lambda x: jnp.sum(jnp.transpose(x, (2, 0, 1)) ** 2, axis=axis),
        RNG.normal(size=(20, 10, 999)),
    )
    innermost = max(text.splitlines(), key=lambda line: len(line) - len(line.lstrip()))
    assert "in0" in innermost
    contiguous = innermost.split("in0[")[1]
    assert ("+ i" in contiguous.split("))")[0]) == (axis == 0)
    assert ("+ l" in contiguous) == (axis == 2)


def test_products_share_a_copy_of_an_operand():
    def f(x, a, b):
        y = x.transpose(2, 0, 1) * 2.0
        return jnp.einsum("nki,kij->nkj", y, a), jnp.einsum("nki,kij->nkj", y, b)

    x, a, b = RNG.normal(size=(20, 30, 300)), *RNG.normal(size=(2, 20, 30, 30))
    compiled = jax.jit(f).lower(x, a, b)
    assert compiled.as_text("kernel").count("* 2.0)") == 1
    for ours, theirs in zip(compiled.compile()(x, a, b), (a, b), strict=True):
        y = x.transpose(2, 0, 1) * 2.0
        np.testing.assert_allclose(
            ours, np.einsum("nki,kij->nkj", y, theirs), rtol=1e-11, atol=1e-11
        )


@pytest.mark.parametrize("shape", [(3, 256, 256), (2, 2, 90, 300), (5, 400, 200)], ids=str)
def test_few_outer_rounds_are_shared_by_their_rows(shape):
    x = RNG.normal(size=shape)

    def f(np_, x):
        return softmax(np_, x), np_.sin(x[..., 1:, :] - x[..., :-1, :])

    text = kernel(lambda x: f(jnp, x), x)
    rounds = [
        int(line.split(" < ")[1].split(":")[0]) for line in text.splitlines() if "parallel" in line
    ]
    assert rounds
    assert min(rounds) >= 64
    before = thread_pool.get_num_threads()
    try:
        thread_pool.set_num_threads(3)
        found = jax.jit(lambda x: f(jnp, x))(x)
    finally:
        thread_pool.set_num_threads(before)
    for ours, theirs in zip(found, f(np, x), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


PASSES = [
    lambda a, b, k: jnp.tanh(a) + b,
    lambda a, b, k: jnp.exp(-a * a) * b,
    lambda a, b, k: a - jnp.mean(a, axis=k, keepdims=True),
    lambda a, b, k: a / (1.0 + jnp.sum(a * a, axis=k, keepdims=True)),
    lambda a, b, k: jnp.exp(a - jnp.max(a, axis=k, keepdims=True)),
    lambda a, b, k: jnp.roll(a, 1, axis=k) + 0.5 * b,
    lambda a, b, k: jnp.where(a > b, a, b * 0.5),
    lambda a, b, k: a.at[..., 1:-1].add(b[..., 2:] - b[..., :-2]),
    lambda a, b, k: (a.mT * jnp.max(b.mT, axis=-2, keepdims=True)).mT,
    lambda a, b, k: a / jnp.sqrt(jnp.mean(jnp.square(a), axis=k, keepdims=True) + 1e-3),
]


def passes(seed):
    """A function of two arrays: random passes over rows, columns and neighbours."""
    kinds = np.random.default_rng(seed).integers(1 << 30, size=9)

    def f(x, y):
        values, found = [x, y], []
        for kind in kinds:
            rng = np.random.default_rng(kind)
            a, b = (values[rng.integers(len(values))] for _ in range(2))
            axis = -1 if rng.random() < 0.7 else int(rng.integers(a.ndim))
            values.append(PASSES[rng.integers(len(PASSES))](a, b, axis))
            if rng.random() < 0.3:
                found.append(jnp.sum(values[-1], axis=axis))
        return [*found, values[-1], jnp.sum(values[-1] * values[-2])]

    return f


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(16))
def test_random_passes(seed):
    shape = [(40, 70), (33, 17), (5, 40, 33), (20, 7, 65), (3, 4, 5, 40)][seed % 5]
    f = passes(seed)
    x, y = (jnp.asarray(v) for v in np.random.default_rng(seed).normal(size=(2, *shape)))

    def loss(x, y):
        return sum(jnp.sum(jnp.cos(v)) for v in f(x, y))

    found = [*jax.jit(f)(x, y), *jax.jit(jax.grad(loss, (0, 1)))(x, y)]
    for ours, theirs in zip(found, [*f(x, y), *jax.grad(loss, (0, 1))(x, y)], strict=True):
        scale = max(1.0, np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-7 * scale)


def test_the_largest_element_of_a_row_equals_itself():
    """Though it is cheap enough to be computed twice: once with a product that is not rounded."""
    x = jnp.asarray(RNG.normal(size=(300, 20)))
    offset = jnp.asarray(RNG.normal(size=20))

    def count(x):
        y = x * 0.1 - offset
        return jnp.sum(y == jnp.max(y, axis=1, keepdims=True), axis=1), jnp.sin(x * 0.1)

    np.testing.assert_array_equal(jax.jit(count)(x)[0], 1)

    def loss(x):
        k = jnp.cumsum(x, axis=0) * 0.1
        y = k - jnp.mean(k, axis=0)
        top = jnp.exp(y - jnp.max(y, axis=1, keepdims=True))
        return jnp.sum(jnp.cos(k / (1.0 + jnp.sum(k * k, axis=1, keepdims=True)))) + jnp.sum(top)

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), jax.grad(loss)(x), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("start", [0, 3])
def test_rows_on_the_stack_that_are_updated_at_offsets(start):
    """Positions that begin at a constant, or at a number of the program's and a constant."""
    x = np.random.default_rng(5).normal(size=(3, 17, 20))

    def f(a, start):
        r = a.at[..., 11].set(jnp.sum(a[..., :8], -1) * 0.07) * 0.9 + a * 0.1
        moved = r[..., :7] * 0.9 + 0.05
        r = jax.lax.dynamic_update_slice(r, moved, (0, 0, 8))
        r = jax.lax.dynamic_update_slice(r, moved + 1.0, (0, 0, start))
        return r.at[..., :-2].set(r[..., 2:] * 0.5)

    for g in (f, lambda a, _: f(a, 5)):
        with jax.disable_jit():
            expected = g(jnp.asarray(x), jnp.asarray(start))
        np.testing.assert_allclose(jax.jit(g)(x, start), expected, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("shape", [(2, 2, 5, 8), (2, 3, 5, 7), (3, 2, 4, 9)])
def test_rows_at_a_level_that_is_a_number_of_the_program(shape):
    """A loop of one round leaves a literal in positions, where a row is kept."""
    x, y = RNG.normal(size=(2, *shape))

    def fn(x, y):
        x, y = jnp.moveaxis(x, 0, -1), jnp.moveaxis(y, 0, -1)
        step = lambda k, z: z.at[..., k].set(0.6 * z[..., k - 1] + y[..., k])
        return jnp.moveaxis(jax.lax.fori_loop(1, 2, step, x), -1, 0)

    found = jax.jit(jax.grad(lambda x, y: jnp.sum(jnp.cos(fn(x, y))), (0, 1)))(x, y)
    out = x.copy()
    out[1] = 0.6 * x[0] + y[1]
    slope = -np.sin(out)
    dx, dy = slope.copy(), np.zeros(shape)
    dx[0] += 0.6 * slope[1]
    dx[1], dy[1] = 0.0, slope[1]
    np.testing.assert_allclose(jax.jit(fn)(x, y), out, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found[0], dx, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(found[1], dy, rtol=1e-13, atol=1e-14)
