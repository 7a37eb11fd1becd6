"""Transformations of transformations: all words up to length three, against eager and differences."""

from functools import cache
from itertools import product

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X = np.array([0.35, 0.8, 0.55, 0.7])


# --- functions ---------------------------------------------------------------------------------


def scalar_maths(x):
    return jnp.tanh(x) * jnp.exp(-x * x) + jnp.sin(x) / (1.0 + x**2) + jnp.log1p(x) ** 3


def matmul(x):
    m = x.reshape(2, 2)
    return jnp.tanh(m @ jnp.array([[0.5, -1.0], [2.0, 0.25]]) @ m.T).ravel()


def reductions(x):
    return x / jnp.sum(x) + jnp.max(x) * jnp.mean(x**2) + jnp.prod(x) + jnp.linalg.norm(x)


def scan(x):
    def step(carry, row):
        a, b = carry
        new = (a + 0.1 * jnp.sin(b) * row, b - 0.1 * a)
        return new, a * b

    (a, b), ys = lax.scan(step, (x[0], x[1]), jnp.stack([x, x**2], 1).sum(1))
    return ys + a * b


def fori_loop(x):
    def body(i, y):
        return y.at[i % 4].add(0.3 * jnp.sin(y[(i + 1) % 4]) * x[i % 4])

    return lax.fori_loop(0, 6, body, x)


def while_loop(x):
    def more(state):
        return (state[0] < 20) & (jnp.sum(state[1]) < 12.0)

    def body(state):
        return state[0] + 1, state[1] * (1.0 + 0.3 * x)

    return lax.while_loop(more, body, (0, x))[1]


def cond(x):
    low, high = (lambda y: y * jnp.sin(y)), (lambda y: jnp.cos(y) + y * x[0])
    return lax.cond(x[0] < 0.33, low, high, x) + lax.cond(jnp.sum(x) > 0.5, high, low, x)


def indexing(x):
    y = x.at[1].multiply(x[3]).at[jnp.array([0, 2])].add(x[::2] ** 2)
    return y[jnp.array([3, 0, 0, 1])] * jnp.flip(x) + jnp.pad(x[1:3], 1) + jnp.roll(x, 1)


def sort(x):
    return jnp.sort(jnp.sin(5.0 * x)) * jnp.arange(4.0) + jnp.cumsum(x**2)


def solve(x):
    matrix = jnp.array(np.eye(4) * 3.0 + 0.1 * np.arange(16.0).reshape(4, 4)) + jnp.diag(x)
    return jnp.linalg.solve(matrix, x * x)


def softmax(x):
    shifted = jnp.exp(3.0 * x - lax.stop_gradient(jnp.max(3.0 * x)))
    return shifted / jnp.sum(shifted)


@fnx.custom_jvp
def _squared_sine(x):
    return jnp.sin(x) ** 2


@_squared_sine.defjvp
def _squared_sine_rule(primals, tangents):
    (x,), (t,) = primals, tangents
    return _squared_sine(x), jnp.sin(2.0 * x) * t


def custom_jvp(x):
    return _squared_sine(x * x) + x


@fnx.custom_vjp
def _cubed(x):
    return x**3


_cubed.defvjp(lambda x: (x**3, x), lambda x, ct: (3.0 * x * x * ct,))


def custom_vjp(x):
    return _cubed(jnp.sin(x)) * x


def closures(x):
    scale = jnp.sum(x * x)
    inner = fnx.jit(lambda y: jnp.sin(scale * y))  # closes over a traced value
    curve = fnx.grad(lambda s: jnp.sum(jnp.cos(s * x)))  # closes over the argument
    return inner(x) + curve(0.7) + inner(2.0 * x)


def switch(x):
    branches = [jnp.sin, lambda y: y * y * x[0], jnp.cos]
    k = jnp.int32(jnp.floor(x[1] * 2.0))
    return lax.switch(k, branches, x) + jnp.where(x > 0.6, jnp.sqrt(x), x**2)


def nested_loops(x):
    def outer(total, i):
        row = lax.fori_loop(0, 3, lambda k, r: r + 0.1 * jnp.sin(r * total), x * i)
        return total + jnp.mean(row), row[0]

    total, ys = lax.scan(outer, x[0], jnp.arange(4.0))
    return ys * total


FUNCTIONS = [
    scalar_maths,
    matmul,
    reductions,
    scan,
    fori_loop,
    while_loop,
    cond,
    indexing,
    sort,
    solve,
    softmax,
    custom_jvp,
    custom_vjp,
    closures,
    switch,
    nested_loops,
]


# --- letters: each turns a function of arrays into another, exactly and by definition -------------


def weights(y):
    return np.cos(1.0 + np.arange(np.size(y))).reshape(np.shape(y))


def direction(x):
    return np.sin(2.0 + np.arange(x.size)).reshape(x.shape)


def gradient(f):
    def total(x):
        y = f(x)
        return jnp.sum(y * weights(y))

    return fnx.grad(total)


def slope(f):
    return lambda x: fnx.jvp(f, (x,), (jnp.asarray(direction(x)),))[1]


def lanes(f):
    return lambda x: fnx.vmap(f)(jnp.stack([x, 0.9 * x]))


LETTERS = {"j": fnx.jit, "v": lanes, "g": gradient, "f": slope, "c": fnx.checkpoint}
STEP = 1e-5


def gradient_by_differences(f):
    def run(x):
        x = np.asarray(x)
        total = lambda z: np.sum(np.asarray(y := f(jnp.asarray(z))) * weights(y))
        steps = STEP * np.eye(x.size).reshape(x.size, *x.shape)
        return np.array([(total(x + h) - total(x - h)) / (2 * STEP) for h in steps]).reshape(
            x.shape
        )

    return run


def slope_by_differences(f):
    def run(x):
        x = np.asarray(x)
        h = STEP * direction(x)
        return (np.asarray(f(jnp.asarray(x + h))) - np.asarray(f(jnp.asarray(x - h)))) / (2 * STEP)

    return run


def lane_by_lane(f):
    return lambda x: np.stack([np.asarray(f(x)), np.asarray(f(0.9 * x))])


DEFINITIONS = {
    "v": lane_by_lane,
    "g": gradient_by_differences,
    "f": slope_by_differences,
}


def spelled(word: str, f):
    """The function that a word makes; the last letter is applied first."""
    for letter in reversed(word):
        f = LETTERS[letter](f)
    return f


WORDS = ["".join(w) for n in (1, 2, 3) for w in product("jvgf", repeat=n)]
WITH_CHECKPOINT = ["c", "gc", "cg", "jgc", "gjc", "gcj", "vgc", "fgc", "gcf", "ggc", "gcv", "cgc"]


def makes_sense(word: str, f) -> bool:
    derivatives = [k for k in word if k in "gf"]
    if f is while_loop:  # has no reverse mode
        return "g" not in word
    if f is custom_vjp:  # has no forward mode
        return not derivatives or derivatives[-1] == "g"
    return True


CASES = [(w, f) for f in FUNCTIONS for w in (*WORDS, *WITH_CHECKPOINT) if makes_sense(w, f)]


@pytest.mark.slow
@pytest.mark.parametrize(("word", "f"), CASES, ids=[f"{f.__name__}-{w}" for w, f in CASES])
def test_word(word, f):
    found = np.asarray(spelled(word, f)(jnp.asarray(X)))
    expected = eagerly(word.translate({ord(k): None for k in "jc"}), f)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-11)


@cache
def eagerly(word: str, f) -> np.ndarray:
    """What a word gives without jit and checkpoint, which is what its first letter is by definition."""
    x = jnp.asarray(X)
    with fnx.disable_jit():
        eager = np.asarray(spelled(word, f)(x))
        if word:
            by_definition = np.asarray(DEFINITIONS[word[0]](spelled(word[1:], f))(x))
            scale = 1.0 + np.abs(by_definition).max()
            np.testing.assert_allclose(eager / scale, by_definition / scale, atol=3e-8)
    return eager


# --- perturbation confusion --------------------------------------------------------------------


def test_the_classic_example():
    # d/dx [x * d/dy (x + y)] = 1, not 2.
    for inner in (fnx.grad, lambda f: lambda y: fnx.jvp(f, (y,), (1.0,))[1]):
        for outer in (fnx.grad, lambda f: lambda x: fnx.jvp(f, (x,), (1.0,))[1]):
            product = lambda x, inner=inner: x * inner(lambda y: x + y)(1.0)
            assert float(outer(product)(1.0)) == 1.0


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_an_inner_derivative_at_the_outer_variable(wrap):
    # f(x) = d/dy (x y^2) at y = x: 2 x^2; its derivative is 4 x.
    f = lambda x: wrap(fnx.grad(lambda y: x * y * y))(x)
    assert float(fnx.grad(f)(3.0)) == 12.0
    assert float(fnx.jvp(f, (3.0,), (1.0,))[1]) == 12.0
    assert float(fnx.grad(fnx.grad(f))(3.0)) == 4.0


def test_the_shift_operator():
    # D (shift) of a function-valued function, where naive tags confuse the two directions.
    derivative = lambda f: lambda x: fnx.jvp(f, (x,), (1.0,))[1]
    shift = lambda offset: lambda f: lambda x: f(x + offset)
    d_shift = lambda f: lambda y: derivative(lambda offset: shift(offset)(f)(y))(0.0)
    assert float(d_shift(d_shift(jnp.exp))(1.0)) == pytest.approx(np.e)


def test_a_function_whose_argument_is_another_level():
    f = lambda x, y: jnp.sin(x * y)
    mixed = fnx.grad(lambda x: fnx.grad(lambda y: f(x, y))(x * x))(0.5)
    x, y = 0.5, 0.25  # d/dx [x cos(x y)] at y = x^2, moving with x: d/dx [x cos(x^3)]
    del y
    assert float(mixed) == pytest.approx(np.cos(x**3) - 3 * x**3 * np.sin(x**3))


def test_loops_inside_loops_of_derivatives():
    f = lambda x: lax.fori_loop(0, 3, lambda i, y: y * fnx.grad(lambda z: z * z * x)(y), 1.0 + x)
    plain = _unrolled
    for order in (1, 2):
        a, b = f, plain
        for _ in range(order):
            a, b = fnx.grad(a), fnx.grad(b)
        assert float(fnx.jit(a)(0.3)) == pytest.approx(float(b(0.3)), rel=1e-10)


def _unrolled(x):
    y = 1.0 + x
    for _ in range(3):
        y = y * (2.0 * y * x)
    return y


# --- Python control flow on concrete values ----------------------------------------------------


def by_branches(x):
    total, steps = x, 0
    while total < 10.0:
        total = total * 1.7 if total > 2.0 else total + x * x
        steps += 1
    return total * steps if steps % 2 else total - steps


def test_python_branches_under_grad_and_jvp():
    x, h = 1.3, 1e-6
    difference = (by_branches(x + h) - by_branches(x - h)) / (2 * h)
    assert float(fnx.grad(by_branches)(x)) == pytest.approx(difference, rel=1e-6)
    assert float(fnx.jvp(by_branches, (x,), (1.0,))[1]) == pytest.approx(difference, rel=1e-6)
    assert float(fnx.grad(fnx.grad(by_branches))(x)) == pytest.approx(
        (float(fnx.grad(by_branches)(x + h)) - float(fnx.grad(by_branches)(x - h))) / (2 * h),
        rel=1e-5,
    )


def test_python_branches_on_what_vmap_does_not_map():
    def f(flag, x):
        return jnp.sin(x) if flag > 0 else x

    xs = jnp.arange(3.0)
    out = fnx.vmap(f, in_axes=(None, 0))(1.0, xs)
    np.testing.assert_allclose(np.asarray(out), np.sin(np.arange(3.0)))
    with pytest.raises(TypeError, match=r"lax\.cond"):
        fnx.vmap(f)(xs, xs)


def test_numpy_sees_concrete_values_under_grad():
    def f(x):
        order = np.argsort(np.asarray(x))  # a decision, not part of the derivative
        return jnp.sum(x[order] * jnp.arange(3.0))

    np.testing.assert_array_equal(
        np.asarray(fnx.grad(f)(jnp.array([3.0, 1.0, 2.0]))), [2.0, 0.0, 1.0]
    )


# --- leaks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "transform",
    [fnx.jit, fnx.grad, fnx.vmap, lambda f: lambda x: fnx.jvp(f, (x,), (x,)), fnx.make_jaxpr],
    ids=["jit", "grad", "vmap", "jvp", "make_jaxpr"],
)
def test_a_leaked_tracer_says_where_it_was_made(transform):
    kept = []

    def f(x):
        kept.append(jnp.sin(x))  # the leak
        return jnp.sum(x)

    x = jnp.ones(3) if transform is not fnx.grad else jnp.asarray(2.0)
    transform(f)(x)
    with pytest.raises(fnx.errors.UnexpectedTracerError, match=r"test_compose\.py") as caught:
        jnp.cos(kept[0]) + 1.0
    assert "global" in str(caught.value)


def test_a_leak_into_another_trace():
    kept = []

    @fnx.jit
    def f(x):
        kept.append(x * 2.0)
        return x

    f(1.0)
    with pytest.raises(fnx.errors.UnexpectedTracerError, match=r"test_compose\.py"):
        fnx.jit(lambda y: y + kept[0])(1.0)
