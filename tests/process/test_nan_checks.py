"""debug_nans names the operation that makes a nan, however deep in compiled programs it is."""

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X = jnp.array([1.0, 0.0, -1.0])


def root(x):
    """A root whose derivative at 0 has a nan that `where` cannot keep out."""
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


@fnx.custom_jvp
def logarithm(x):
    return jnp.log(x)


logarithm.defjvp(lambda x, t: (logarithm(*x), t[0] / x[0]))


def halves(x):
    return lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.log(c[1] - 1)), (0, x))


CASES = {
    "eager": ("log", lambda: jnp.log(X)),
    "jit": ("log", lambda: fnx.jit(lambda x: jnp.sum(jnp.log(x) * 2))(X)),
    "jit in jit": ("sqrt", lambda: fnx.jit(lambda x: fnx.jit(jnp.sqrt)(x - 5).sum())(X)),
    "grad": ("mul", lambda: fnx.grad(root)(0.0)),
    "grad of jit": ("mul", lambda: fnx.grad(fnx.jit(root))(0.0)),
    "jit of grad": ("mul", lambda: fnx.jit(fnx.grad(root))(0.0)),
    "hessian": ("mul", lambda: fnx.jit(fnx.hessian(root))(0.0)),
    "scan": ("log", lambda: lax.scan(lambda c, y: (c + jnp.log(y), c), 0.0, X)),
    "scan in jit": (
        "log",
        lambda: fnx.jit(lambda x: lax.scan(lambda c, y: (c + jnp.log(y), c), 0.0, x))(X),
    ),
    "grad of scan": (
        "sqrt",  # of -1, in the first iteration of the reverse sweep; the nan at 0 is made later
        lambda: fnx.grad(lambda x: lax.scan(lambda c, y: (c + root(y), None), 0.0, x)[0])(X),
    ),
    "cond": ("log", lambda: fnx.jit(lambda x: lax.cond(x < 0, jnp.log, jnp.abs, x))(-1.0)),
    "while": ("log", lambda: halves(1.0)),
    "while in jit": ("log", lambda: fnx.jit(halves)(1.0)),
    "fori_loop": (
        "log",
        lambda: fnx.jit(lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.log(c - 1), x))(1.0),
    ),
    "vmap": ("log", lambda: fnx.jit(fnx.vmap(jnp.log))(X)),
    "checkpoint": ("mul", lambda: fnx.grad(fnx.checkpoint(root))(0.0)),
    "custom rule": ("log", lambda: fnx.jit(logarithm)(-1.0)),
    "ahead of time": ("log", lambda: fnx.jit(jnp.log).lower(1.0).compile()(-1.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_operation_is_named(name):
    operation, call = CASES[name]
    with fnx.debug_nans(), pytest.raises(FloatingPointError, match=f"operation {operation} made"):
        call()


def test_the_line_of_the_operation_is_named():
    f = fnx.jit(lambda x: lax.scan(lambda c, y: (c + jnp.log(y), c), 0.0, x))
    with fnx.debug_nans(), pytest.raises(FloatingPointError) as found:
        f(X)
    assert f"made at {__file__}" in str(found.value)


def test_programs_without_nans_run_as_ever():
    with fnx.debug_nans():
        assert float(fnx.jit(root)(4.0)) == 2.0
        assert lax.scan(lambda c, y: (c + y, c), 0.0, X)[1].tolist() == [0.0, 1.0, 1.0]


def test_a_nan_in_the_text_of_a_program_has_a_line_too():
    padded = fnx.jit(lambda x: jnp.where(x > 0, jnp.nan, 2.0 * x))
    mended = fnx.jit(lambda x: jnp.sum(jnp.where(x > 1, jnp.nan, x)) + jnp.log(x[2]))
    alone = fnx.jit(lambda x: jnp.var(x[:1], ddof=1))
    with fnx.debug_nans():
        for f in (padded, alone):
            with pytest.raises(FloatingPointError, match="in the program's text") as found:
                f(X)
            assert f"made at {__file__}" in str(found.value)
        with pytest.raises(FloatingPointError, match="operation log made"):  # which is wrong first
            mended(X)
        assert mended(-X).shape == ()


GAPS = jnp.array([1.0, jnp.nan])  # data that has none for the second
CAME_IN = {
    "an argument": ("argument 1, counted", lambda: fnx.jit(lambda x, y: x * y)(2.0, GAPS)),
    "in a tree": (
        "argument 1, counted",
        lambda: fnx.jit(lambda p: p["a"] @ p["b"])({"a": X[:2], "b": GAPS}),
    ),
    "as it is": ("argument 0, counted", lambda: fnx.jit(lambda x: x)(GAPS)),
    "an array closed over": (
        "an array that it closes over holds one",
        lambda: fnx.jit(lambda x: jnp.sum(x * GAPS))(X[:2]),
    ),
    "rows of a loop": (
        "argument 1, counted",
        lambda: lax.scan(lambda c, y: (c + y, c), 0.0, GAPS),
    ),
    "a gradient": ("argument 1, counted", lambda: fnx.jit(fnx.grad(jnp.dot))(X[:2], GAPS)),
    "members": ("argument 0, counted", lambda: fnx.vmap(fnx.jit(jnp.sqrt))(GAPS)),
    "half precision": (
        "argument 0, counted",
        lambda: fnx.jit(jnp.cumsum)(GAPS.astype(jnp.float16)),
    ),
}


@pytest.mark.parametrize("name", CAME_IN)
def test_a_nan_that_came_in_is_told_as_such(name):
    which, call = CAME_IN[name]
    with fnx.debug_nans(), pytest.raises(FloatingPointError, match=which) as found:
        call()
    assert "has a nan that came in" in str(found.value)
    assert "first at [1]" in str(found.value)
    assert f"at {__file__}" in str(found.value)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_a_nan_that_came_in_hides_none_that_is_made(dtype):
    data = GAPS.astype(dtype)
    apart = fnx.jit(lambda x, d: (jnp.sum(d), jnp.log(x[1] - x[0])))
    beside = fnx.jit(lambda x: jnp.arcsin(x.real))
    with fnx.debug_nans():
        with pytest.raises(FloatingPointError, match="operation log made"):
            apart(X, data)
        with pytest.raises(FloatingPointError, match=r"operation asin made .* first at \[0\]"):
            beside(2.0 * data)


def test_of_two_that_are_made_the_earlier_is_named():
    def f(x):
        return lax.fori_loop(0, 10, lambda k, t: jnp.log(t) + 2.0 - k, x)

    with fnx.debug_nans(), pytest.raises(FloatingPointError, match=r"first at \[1\]") as found:
        fnx.jit(f)(jnp.array([5.0, 0.1]))  # of both elements in the end
    assert "in iteration 1 of fori_loop" in str(found.value)


def test_a_nan_of_an_argument_that_results_have_not_is_no_mistake():
    cost = fnx.jit(lambda x: jnp.sum(jnp.where(jnp.isnan(GAPS), 0.0, (x - GAPS) ** 2)))
    with fnx.debug_nans():
        assert cost(3.0) == 4.0
        assert fnx.jit(jnp.nanmean)(GAPS) == 1.0
        assert (GAPS + 1.0)[0] == 2.0  # what is not compiled computes with what it is given
