"""Scan, against loops of Python: values, derivatives, lanes, and what it says of mistakes."""

import numpy as np
import pytest
from loop_checks import A, M, V, X, check_grads, check_lanes, step, sum_of, total

import fnx
from fnx import control_flow as lax
from fnx.core import config
from fnx.core.array import as_array
from fnx.ops.elementwise.arithmetic import cos, exp, sin, tanh
from fnx.transforms.jit import jit

pytestmark = pytest.mark.usefixtures("reference")


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_is_a_python_loop(reverse):
    c, ys = 0.7, []
    for x in X[::-1] if reverse else X:
        c, y = np.sin(c) * x + c, (np.sin(c) * x + c) * c
        ys.append(y)
    last, stacked = lax.scan(step, A, X, reverse=reverse)
    np.testing.assert_allclose(float(last), c, rtol=1e-14)
    np.testing.assert_allclose(np.asarray(stacked), ys[::-1] if reverse else ys, rtol=1e-14)
    with config.disable_jit():
        again = lax.scan(step, A, X, reverse=reverse)
    np.testing.assert_allclose(np.asarray(again[1]), np.asarray(stacked))


def carry_only(a, x):
    return lax.scan(step, a, x)[0]


def ys_only(a, x):
    return total(lax.scan(step, a, x, reverse=True)[1])


def both(a, x):
    last, ys = lax.scan(step, a, x)
    return last * total(ys)


def tree(a, x):
    def body(c, r):
        return {"p": c["p"] + r["x"] * c["q"][0], "q": (c["q"][0] * a, c["q"][0])}, {"y": c["p"]}

    c, ys = lax.scan(body, {"p": a, "q": (a * a, a)}, {"x": x})
    return c["p"] * c["q"][1] + total(ys["y"])


def closure(a, x):
    return lax.scan(lambda c, r: (c * a + r, cos(c * r)), a * 2.0, x)[0] * a


def no_xs(a):
    return lax.scan(lambda c, _: (tanh(c * 1.5), None), a, None, length=3)[0]


def unused(a, x):
    """A carry that never reaches the result, one that does not change, one that gets no tangent."""

    def body(c, r):
        p, q, s, n = c
        return (p * q + r, q, s * p, n + 1), n

    p, _, _, n = lax.scan(body, (a, a * 2.0, a, 0), x)[0]
    return p + 0.1 * n


def shifting(a, x):
    """Tangents reach one carry only after some rounds."""

    def body(c, r):
        p, q, s = c
        return (r * a, p * 1.0, q * s + p), None

    return sum_of(lax.scan(body, (1.0, 2.0, 3.0), x)[0])


def zero_tangent_later(a, x):
    """A carry that has a tangent at first and is then overwritten by what has none."""
    c, ys = lax.scan(lambda c, r: (as_array(2.0), c * r), a, x)
    return c * a + total(ys)


def loop_constants(m, v):
    """An expensive value that depends on constants only."""
    return total(
        lax.scan(lambda c, _: (tanh(m * 0.3) * c + exp(m), None), m, None, length=3)[0]
    ) * total(v)


def integers(a, x):
    """Integer and bool carries and ys beside floats."""

    def body(c, r):
        n, s = c
        return (n + 1, s * r + n), (n, s > 0, s)

    (n, s), (_k, _b, ys) = lax.scan(body, (0, a), x)
    return s * 2.0 + total(ys) + 0.0 * n


def nested(a, x):
    def outer(c, r):
        def inner(d, q):
            return sin(d * q) + c * r, d * a

        last, ys = lax.scan(inner, c, x)
        return last + 0.1 * total(ys), last

    last, ys = lax.scan(outer, a, x)
    return last + 0.1 * total(ys * ys)


def jit_inside(a, x):
    f = jit(lambda c, r: sin(c * r) * a)
    return lax.scan(lambda c, r: (f(c, r), f(r, c)), a, x)[0]


def of_vmap(v, m):
    def body(c, row):
        return fnx.vmap(lambda p, q: sin(p) * q, (0, 0))(c, row), total(c)

    c, ys = lax.scan(body, v, m)
    return total(c) + total(ys)


def grad_inside(a, x):
    def body(c, r):
        return c + 0.1 * fnx.grad(lambda z: sin(z * r) * a)(c), None

    return lax.scan(body, a, x)[0]


SCANS = [
    (carry_only, (A, X)),
    (ys_only, (A, X)),
    (both, (A, X)),
    (closure, (A, X)),
    (tree, (A, X)),
    (no_xs, (A,)),
    (unused, (A, X)),
    (shifting, (A, X)),
    (zero_tangent_later, (A, X)),
    (loop_constants, (M, V)),
    (integers, (A, X)),
    (nested, (A, X)),
    (jit_inside, (A, X)),
    (of_vmap, (V, M)),
    (grad_inside, (A, X)),
]


@pytest.mark.parametrize(("f", "args"), SCANS, ids=[f.__name__ for f, _ in SCANS])
def test_derivatives_of_scan(f, args):
    check_grads(f, *args)


@pytest.mark.parametrize(("f", "args"), SCANS, ids=[f.__name__ for f, _ in SCANS])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.grad, lambda f: fnx.grad(jit(f))])
def test_lanes_of_scan(f, args, wrap):
    check_lanes(wrap(f), args)


def test_jacobians_of_scan():
    f = lambda a, x: lax.scan(step, a, x)[1]
    for k in (0, 1):
        forward = np.asarray(fnx.jacfwd(f, k)(A, X))
        np.testing.assert_allclose(
            np.asarray(fnx.jacrev(f, k)(A, X)), forward, rtol=1e-10, atol=1e-12
        )
    hessian = np.asarray(fnx.hessian(both, 1)(A, X))
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10)


def test_linearize_pushes_tangents_through_scan():
    _y, push = fnx.linearize(lambda x: lax.scan(step, x, X), A)
    expected = fnx.jvp(lambda x: lax.scan(step, x, X), (A,), (1.0,))[1]
    for t, e in zip(push(1.0), expected):
        np.testing.assert_allclose(np.asarray(t), np.asarray(e), rtol=1e-12)


def test_scan_of_length_zero():
    c, ys = lax.scan(lambda c, x: (c + x, (c, x)), 1.5, np.zeros((0,)))
    assert float(c) == 1.5
    assert ys[0].shape == ys[1].shape == (0,)
    grads = fnx.grad(lambda a, x: lax.scan(step, a, x)[0], (0, 1))(1.5, np.zeros((0,)))
    assert float(grads[0]) == 1.0
    assert grads[1].shape == (0,)


def test_weak_carries_become_what_the_body_returns():
    x = np.arange(3, dtype=np.float32)
    c, _ = lax.scan(lambda c, r: (c + r, None), 0, x)
    assert c.dtype == np.float32
    assert float(c) == 3.0
    c, _ = lax.scan(lambda c, r: (c * 2.0, None), 1, None, length=3)
    assert float(c) == 8.0
    assert (
        lax.while_loop(lambda v: v[0] < 3, lambda v: (v[0] + 1, v[1] + x[1]), (0, 0))[1].dtype
        == "f4"
    )


def test_scan_takes_no_more_rows_than_it_should():
    with pytest.raises(ValueError, match=r"different lengths.*a.*3.*b.*4"):
        lax.scan(lambda c, x: (c, None), 0.0, {"a": np.zeros(3), "b": np.zeros(4)})
    with pytest.raises(ValueError, match="length=5"):
        lax.scan(lambda c, x: (c, None), 0.0, np.zeros(3), length=5)
    with pytest.raises(ValueError, match="pass length"):
        lax.scan(lambda c, x: (c, None), 0.0)
    with pytest.raises(ValueError, match="rank 0"):
        lax.scan(lambda c, x: (c, None), 0.0, 1.0)


def test_mismatched_carries():
    with pytest.raises(TypeError, match=r"f32\[\] but was f64\[\]"):
        lax.scan(lambda c, x: (c.astype("float32"), None), as_array(np.float64(1)), np.zeros(2))
    with pytest.raises(TypeError, match=r"carry\['b'\] is f64\[3\] but was f64\[2\].*\.astype"):
        lax.scan(
            lambda c, x: ({"a": c["a"], "b": np.zeros(3)}, None),
            {"a": 1.0, "b": np.zeros(2)},
            np.zeros(2),
        )
    with pytest.raises(TypeError, match=r"got as carry \{.*lacks the leaf \"\['b'\]\""):
        lax.scan(lambda c, x: ({"a": c["a"]}, None), {"a": 1.0, "b": 2.0}, np.zeros(2))
    with pytest.raises(TypeError, match="expected a pair"):
        lax.scan(lambda c, x: c, 1.0, np.zeros(2))
    with pytest.raises(TypeError, match="needs a function"):
        lax.scan(1.0, 1.0, np.zeros(2))
    with pytest.raises(TypeError, match=r"returned a carry of other types"):
        lax.while_loop(lambda v: v.sum() < 3, lambda v: np.zeros(3), np.zeros(2))


def test_bodies_are_traced_once_while_their_surroundings_are_the_same():
    count, factor = [], 2.0

    def body(c, x):
        count.append(1)
        return c * factor + x, None

    run = lambda: float(lax.scan(body, np.ones(()), np.ones(3))[0])
    assert run() == run() == 15.0
    assert len(count) == 1
    factor = 3.0
    assert run() == 40.0
    assert len(count) == 2
    twice = jit(lambda a: lax.scan(body, a, np.ones(3))[0])
    assert float(twice(1.0)) == 40.0
    assert float(fnx.grad(lambda a: lax.scan(body, a, np.ones(3))[0])(1.0)) == 27.0


def test_a_python_branch_in_a_body_is_an_error():
    def body(c, x):
        return (c if x > 0 else -c), None

    with pytest.raises(TypeError, match=r"truth.*body of scan|truth.*body body of scan"):
        lax.scan(body, 1.0, np.zeros(2))


def test_bodies_that_count_their_traces_and_bodies_that_are_objects_are_traced_once():
    traces = 0

    def body(c, x):
        nonlocal traces
        traces += 1
        return c + 1.0, x * 2.0

    class Scaled:
        def __init__(self, factor):
            self.factor, self.body = factor, body

        def __call__(self, c, x):
            c, y = self.body(c, x)
            return c, y * self.factor

    for _ in range(3):
        lax.scan(body, 0.0, X)
    assert traces == 1
    double = Scaled(2.0)
    found = [total(lax.scan(double, 0.0, X)[1]) for _ in range(3)]
    assert traces == 2
    double.factor = 4.0
    assert float(total(lax.scan(double, 0.0, X)[1])) == 2 * float(found[0])
    assert traces == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: lax.map(f, 3.0), r"^map over xs, which has rank 0"),
        (lambda f: lax.map(f, (np.ones(3), np.ones(2))), r"^map over different lengths: xs\[0\]"),
        (lambda f: lax.map(f, "a"), r"^the xs of map must be arrays"),
        (lambda f: lax.map(f, np.ones(3)), r"the body body of map"),
        (lambda f: lax.associative_scan(f, 1.0), "rank 0; it has no axes"),
        (lambda f: fnx.checkpoint(f, policy="dots"), r"^checkpoint with policy='dots'"),
    ],
)
def test_errors_are_in_the_words_of_what_was_called(call, message):
    def body(x):
        return x if x > 0 else -x

    with pytest.raises((TypeError, ValueError), match=message):
        call(body)
