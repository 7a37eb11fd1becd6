"""Simplification: what it removes, what it must keep, and that results keep their bits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import control_flow as lax
from fnx.core.array import ConcreteArray, as_array
from fnx.core.aval import ShapedArray
from fnx.core.interpreter import evaluate, use
from fnx.core.jaxpr import Literal, check_jaxpr, eval_jaxpr
from fnx.interpreters.passes.dce import dce, used_inputs
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.passes.updates_to_concatenate import cut_sums
from fnx.interpreters.primitives.jit import Jit
from fnx.interpreters.trace import trace, trace_closed
from fnx.ops.base.broadcast import Broadcast, Sum
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise.arithmetic import add, cos, div, exp, mul, neg, sin, stop_gradient, sub
from fnx.ops.elementwise.convert import ConvertElementType
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.structure.basic import convert, full, scalar, zeros
from fnx.ops.structure.slice import Slice, SliceAdd
from fnx.transforms.jit import jit

F8 = np.dtype("f8")


def arr(*shape, dtype=F8, weak=False):
    return ShapedArray(shape, np.dtype(dtype), weak)


def names(fn, *avals, final=True):
    """The primitives of the simplified jaxpr, which must be sound."""
    jaxpr = trace(fn, avals)[0]
    small = simplify(jaxpr, final)
    check_jaxpr(small)
    assert small.in_avals == jaxpr.in_avals
    assert all(a.like(b) for a, b in zip(small.out_avals, jaxpr.out_avals, strict=True))
    return [e.prim.name for e in small.eqns]


S, V, M = arr(), arr(3), arr(2, 3)
two = scalar(2.0, F8)


@pytest.mark.parametrize(
    ("fn", "avals", "expected"),
    [
        (lambda x: [sin(x), sin(x)], (V,), ["sin"]),
        (lambda x: [add(sin(x), sin(x))], (V,), ["sin", "add"]),
        (lambda x: (cos(x), [sin(x)])[1], (V,), ["sin"]),
        (lambda x: [mul(x, scalar(1.0, F8))], (V,), []),
        (lambda x: [mul(scalar(1.0, F8), x)], (V,), []),
        (lambda x: [div(x, scalar(1.0, F8))], (V,), []),
        (lambda x: [sub(x, scalar(0.0, F8))], (V,), []),
        (lambda x: [add(x, scalar(-0.0, F8))], (V,), []),
        (lambda x: [add(x, scalar(0, np.dtype("i8")))], (arr(3, dtype="i8"),), []),
        (lambda x: [neg(neg(x))], (V,), []),
        (lambda x: [Sum((0,))(mul(sin(x), two))], (V,), ["sin", "reduce_sum", "mul"]),
        (lambda x: [Sum((0,))(mul(two, sin(x)))], (V,), ["sin", "reduce_sum", "mul"]),
        (lambda x: [Sum((0,))(mul(x, scalar(3.0, F8)))], (V,), ["mul", "reduce_sum"]),
        (lambda x: [Sum((0,))(mul(x, scalar(0.5, F8)))], (V,), ["mul", "reduce_sum"]),
        (
            lambda x, y: [add(x, neg(y)), add(neg(x), y), sub(x, neg(y))],
            (V, V),
            ["sub", "sub", "add"],
        ),
        (lambda x: [convert(x, F8)], (V,), []),
        (lambda x: [ConvertElementType(F8)(x)], (V,), []),
        (lambda x: [Transpose((1, 0))(Transpose((1, 0))(x))], (M,), []),
        (lambda x: [Transpose((0, 1))(x)], (M,), []),
        (lambda x: [Reshape((6,))(Reshape((3, 2))(x))], (M,), ["reshape"]),
        (lambda x: [Reshape((2, 3))(Reshape((3, 2))(x))], (M,), []),
        (
            lambda x: [Broadcast((4, 2, 3), (1, 2))(Broadcast((2, 3), (1,))(x))],
            (V,),
            ["broadcast_in_dim"],
        ),
        (lambda x: [Broadcast((3,), (0,))(x)], (V,), []),
        (lambda x: [mul(x, full((3,), 2.0, F8))], (V,), ["mul"]),
        (lambda x, s: [mul(x, Broadcast((3,), ())(s))], (V, S), ["mul"]),
        (
            lambda x, s: [mul(full((3,), 2.0, F8), full((3,), 3.0, F8))],
            (V, S),
            ["broadcast_in_dim"],
        ),
        (
            lambda x, s: [mul(Broadcast((3,), ())(s), two)],
            (V, S),
            ["mul", "broadcast_in_dim"],
        ),
        (lambda x: [Sum((0,))(Broadcast((1, 3), (1,))(x))], (V,), []),
        (lambda x: [mul(sin(two), x)], (V,), ["mul"]),
        (lambda x: [sin(two)], (V,), []),
        (lambda x: [stop_gradient(x)], (V,), []),
        (lambda x: [jit(lambda v: (sin(v),))(x)[0], sin(x)], (V,), ["sin"]),
    ],
)
def test_what_goes(fn, avals, expected):
    assert names(fn, *avals) == expected


@pytest.mark.parametrize(
    ("fn", "avals", "expected"),
    [
        # x + 0.0 is 0.0 where x is -0.0
        (lambda x: [add(x, scalar(0.0, F8))], (V,), ["add"]),
        (lambda x: [sub(x, scalar(-0.0, F8))], (V,), ["sub"]),
        (lambda x: [sub(scalar(0.0, F8), x)], (V,), ["sub"]),
        (lambda x: [div(scalar(1.0, F8), x)], (V,), ["div"]),
        # nan * 0.0 is nan
        (lambda x: [mul(x, scalar(0.0, F8))], (V,), ["mul"]),
        (lambda x: [Transpose((1, 0))(x)], (M,), ["transpose"]),
        (lambda x: [ConvertElementType(np.dtype("f4"))(x)], (V,), ["convert_element_type"]),
        (lambda x: [mul(x, scalar(-0.0, F8)), mul(x, scalar(0.0, F8))], (V,), ["mul", "mul"]),
    ],
)  # fmt: skip
def test_what_stays(fn, avals, expected):
    args = avals or ()
    found = names(fn if avals else (lambda: fn(None)), *args)
    assert found == expected


@pytest.mark.parametrize(
    ("dims", "x", "y"),
    [
        ((((), ()), ((), ())), (3,), (2,)),
        ((((), ()), ((), ())), (), (2,)),
        ((((), ()), ((0,), (1,))), (4, 3), (2, 4)),
        ((((1,), (0,)), ((), ())), (3, 1), (1, 2)),
        ((((0,), (2,)), ((2,), (1,))), (1, 5, 4), (2, 4, 1)),
    ],
)
def test_products_that_sum_nothing_are_multiplications(dims, x, y):
    fn = lambda a, b: [DotGeneral(dims)(a, b)]
    jaxpr = trace(fn, [arr(*x), arr(*y)])[0]
    small = simplify(jaxpr, final=True)
    check_jaxpr(small)
    assert "dot_general" not in [e.prim.name for e in small.eqns]
    rng = np.random.default_rng(0)
    args = [ConcreteArray(rng.normal(size=s)) for s in (x, y)]
    for a, b in zip(eval_jaxpr(jaxpr, args), eval_jaxpr(small, args)):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    assert names(lambda a, b: [DotGeneral((((0,), (0,)), ((), ())))(a, b)], V, V) == ["dot_general"]


def test_marks_stay_until_the_end():
    from fnx.custom_derivatives import custom_jvp

    f = custom_jvp(lambda x: (sin(x),)[0])
    f.defjvp(lambda p, t: (f(*p), t[0]))
    fn = lambda x: [f(stop_gradient(x))]
    assert names(fn, V, final=False) == ["stop_gradient", "custom_jvp_call"]
    assert names(fn, V, final=True) == ["sin"]


def test_results_keep_weak_types():
    weak = arr(weak=True)
    jaxpr = trace(lambda x: [ConvertElementType(F8)(x)], [weak])[0]
    small = simplify(jaxpr)
    assert not small.out_avals[0].weak_type
    assert isinstance(simplify(trace(lambda x: [sin(two)], [V])[0]).outs[0], Literal)


def test_a_jaxpr_is_simplified_once():
    jaxpr = trace(lambda x: [sin(x)], [V])[0]
    small = simplify(jaxpr)
    assert simplify(jaxpr) is small
    assert simplify(small) is small


def test_calls_within_calls():
    inner = jit(lambda v: (sin(v), cos(v)))
    outer = jit(lambda v: inner(inner(v)[0])[0])
    jaxpr = trace(lambda x: [outer(x), outer(x)], [V])[0]
    assert [type(e.prim) for e in jaxpr.eqns] == [Jit, Jit]
    assert [e.prim.name for e in simplify(jaxpr).eqns] == ["sin", "sin"]


def test_dead_outputs_and_inputs():
    jaxpr = trace(lambda x, y: [sin(x), cos(y)], [V, V])[0]
    small = dce(jaxpr, [True, False])
    assert [e.prim.name for e in small.eqns] == ["sin"]
    assert used_inputs(small) == (True, False)


def scan_of(jaxpr):
    (eqn,) = [e for e in jaxpr.eqns if e.prim.name == "scan"]
    return eqn


def simple(fn, *args, final=True):
    jaxpr = fnx.make_jaxpr(fn)(*args).jaxpr
    small = simplify(jaxpr, final)
    check_jaxpr(small)
    values = [as_array(np.asarray(a)) for a in args]
    for a, b in zip(eval_jaxpr(jaxpr, values), eval_jaxpr(small, values), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    return small


def test_dead_parts_of_loops_go():
    def fn(x):
        def body(c, r):
            a, b, d = c
            return (a * r, b + a, sin(d)), (a, exp(d))

        (a, _, _), (ys, _) = lax.scan(body, (1.0, 2.0, 3.0), x)
        return a, ys

    eqn = scan_of(simple(fn, np.arange(3.0)))
    assert eqn.prim.carry == 1
    assert [e.prim.name for e in eqn.prim.jaxpr.eqns] == ["mul"]
    assert len(eqn.outs) == 2

    def loop(x):
        def body(v):
            i, a, b = v
            return i + 1, a * x, sin(b)

        return lax.while_loop(lambda v: v[0] < 3, body, (0, 1.0, 2.0))[1]

    (eqn,) = simple(loop, np.array(2.0)).eqns
    assert len(eqn.outs) == 2

    branch = lambda k, x: lax.switch(k, [lambda v: (sin(v), v), lambda v: (v, cos(v))], x)[0]
    (eqn,) = [e for e in simple(branch, np.array(1), np.array(2.0)).eqns if e.prim.name == "cond"]
    assert [len(b.outs) for b in eqn.prim.branches] == [1, 1]


def test_constants_leave_loops():
    def fn(a, v):
        def body(c, _):
            inner, fixed = c
            return (inner * exp(a) + fixed, fixed), sin(fixed)

        return lax.scan(body, (v, v * 2.0), None, length=3)

    small = simple(fn, np.array(0.5), np.ones(3))
    eqn = scan_of(small)
    assert sorted(e.prim.name for e in eqn.prim.jaxpr.eqns) == ["add", "mul"]
    assert eqn.prim.carry == 1
    assert {"exp", "sin"} <= {e.prim.name for e in small.eqns}


def test_constants_leave_while_loops():
    def fn(a, v, n):
        def body(c):
            i, x, fixed, limit = c
            return i + 1, x * exp(a) + sin(fixed), fixed, limit

        return lax.while_loop(lambda c: c[0] < c[3], body, (0, v, v * 2.0, n))

    for n in (0, 3):
        small = simple(fn, np.array(0.5), np.ones(3), np.array(n))
        (eqn,) = [e for e in small.eqns if e.prim.name == "while"]
        assert sorted(e.prim.name for e in eqn.prim.body_jaxpr.eqns) == ["add", "add", "mul"]
        assert len(eqn.outs) == 2


def test_broadcasts_stay_in_loops():
    fn = lambda s, v: lax.scan(
        lambda c, _: (sin(c) + Broadcast((3,), ())(s), None), v, None, length=2
    )[0]
    eqn = scan_of(simple(fn, np.array(0.5), np.ones(3)))
    assert [a.shape for a in eqn.prim.jaxpr.in_avals] == [(), (3,)]


def test_loops_of_no_iterations_lose_nothing():
    fn = lambda a: lax.scan(lambda c, _: (c * exp(a), None), a, None, length=0)[0]
    assert float(eval_jaxpr(simple(fn, np.array(0.5)), [as_array(0.5)])[0]) == 0.5


# --- random programs ---------------------------------------------------------------------------

SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, np.inf, -np.inf, np.nan]
UNARY = [neg, sin, exp, lambda x: convert(x, F8), Transpose((1, 0)), Reshape((2, 2)), stop_gradient]


@given(st.data())
def test_random_programs_keep_their_bits(data):
    """Results of random programs, on values that identities get wrong, are the same bit by bit."""
    steps = data.draw(
        st.lists(st.tuples(st.integers(0, 12), st.integers(0, 99), st.integers(0, 99)), max_size=12)
    )

    def fn(x, y):
        values = [x, y]
        for kind, i, j in steps:
            a, b = values[i % len(values)], values[j % len(values)]
            number = scalar(SPECIAL[j % len(SPECIAL)], F8)
            if kind < len(UNARY):
                values.append(UNARY[kind](a))
            elif kind == 7:
                values.append(mul(a, number))
            elif kind == 8:
                values.append(add(number, a))
            elif kind == 9:
                values.append(sub(a, full((2, 2), SPECIAL[j % len(SPECIAL)], F8)))
            elif kind == 10:
                values.append(div(a, number))
            elif kind == 11:
                values.append(jit(lambda p, q: [mul(p, q)])(a, b)[0])
            else:
                values.append(add(a, b))
        return values[-3:]

    jaxpr = trace_closed(fn, [arr(2, 2)] * 2)
    small = simplify(jaxpr, final=True)
    check_jaxpr(small)
    pick = st.lists(st.sampled_from([*SPECIAL, 0.3, -1.7]), min_size=4, max_size=4)
    args = [ConcreteArray(np.reshape(data.draw(pick), (2, 2))) for _ in range(2)]
    with use(evaluate):
        for a, b in zip(eval_jaxpr(jaxpr, args), eval_jaxpr(small, args), strict=True):
            a, b = np.asarray(a), np.asarray(b)
            np.testing.assert_array_equal(a, b)
            known = ~np.isnan(a)
            np.testing.assert_array_equal(np.signbit(a)[known], np.signbit(b)[known])


def test_the_gradient_of_a_diagonal_is_added_where_it_belongs():
    """Without an array of zeros, of which the diagonal would be added to everything."""
    loss = lambda a: jnp.sum(jnp.diag(a) ** 3) + jnp.sum(jnp.sin(a))
    a = jnp.cos(jnp.arange(144.0)).reshape(12, 12)
    small = simplify(fnx.make_jaxpr(fnx.grad(loss))(a).jaxpr, True)
    zeros = [
        e for e in small.eqns if e.prim.name == "broadcast_in_dim" and e.inputs[0].aval.size == 1
    ]
    assert not any(str(e.inputs[0]).startswith("0.0") for e in zeros)
    want = np.cos(np.asarray(a)) + np.diag(3 * np.diag(np.asarray(a)) ** 2)
    np.testing.assert_allclose(fnx.jit(fnx.grad(loss))(a), want, rtol=1e-14)


def test_what_is_needed_as_a_whole_is_the_same_object():
    """And so are loops and branches in it, which keep what was made of them."""

    def loops(x, y):
        count = lambda c: (c[0] + 1, c[1] * x, lax.cond(c[0] > 2, cos, sin, c[2]))
        _, a, b = lax.while_loop(lambda c: c[0] < 5, count, (0, x, y))
        (c, _), d = lax.scan(lambda c, k: ((c[0] + k, c[1]), c[0] * c[1]), (a, b), y * arange)
        return c, d

    arange = as_array(np.arange(3.0))
    small = simplify(trace(loops, (arr(), arr()))[0], True)
    assert dce(small, [True, True]) is small
    less = dce(small, [True, False])
    assert less is not small
    assert dce(less, [True]) is less is dce(small, (True, False))
    check_jaxpr(less)

    def unread(x, y):
        return lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, c[1] * y), (0, x))

    small = simplify(trace(unread, (arr(), arr()))[0], True)
    less = dce(small, [True, False])
    (loop,) = [e for e in less.eqns if e.prim.name == "while"]
    assert len(loop.outs) == 1
    assert used_inputs(less) == (False, False)


def test_sums_made_of_updates_are_numbered_again():
    """What adds the negative of something to such a sum subtracts it."""
    f = lambda w: [(-(2.0 * w)).at[1:].add(w[:-1]).at[:1].add(w[-1:])]
    assert names(f, arr(20)) == ["mul", "slice", "slice", "concatenate", "sub"]


def test_signs_of_factors_wander_into_sums():
    """-x * y is -(x * y), and so are quotients, of floats alone: others wrap around, or have two parts."""
    for f in (lambda x, y: [x - y * -x], lambda x, y: [x + -x * y], lambda x, y: [-(-x * y)]):
        assert "neg" not in names(f, arr(20), arr(20))
    assert names(lambda x, y: [y + -x / y], arr(20), arr(20)) == ["div", "sub"]
    for dtype in ("int8", "uint8", "complex128", "float64"):
        x = np.array([-128, 3, 0, 5]).astype(dtype)
        y = np.array([2, 3, 7, -3]).astype(dtype)
        f = lambda x, y: (-x * y, div(-x, y), div(x, -y))
        for found, wanted in zip(fnx.jit(f)(x, y), f(as_array(x), as_array(y)), strict=True):
            np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))
            assert (np.signbit(np.real(found)) == np.signbit(np.real(wanted))).all()


@pytest.mark.parametrize("seed", range(24))
def test_slices_of_sums_are_sums_of_slices(seed):
    """Whole numbers: however they are added up, sums are the same."""
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))

    def box(shape, least=0):
        sides = [sorted(rng.integers(0, n + 1, 2)) for n in shape]
        return [(int(max(min(a, b - least), 0)), int(max(b, least))) for a, b in sides]

    def cut(prim, sides, *xs):
        return prim(*(tuple(s[k] for s in sides) for k in (0, 1)))(*xs)

    def f(x, y):
        for _ in range(3):
            total = y if rng.uniform() < 0.3 else zeros(arr(*y.shape))
            for _ in range(rng.integers(1, 5)):
                sides = box(x.shape, 1)
                total = cut(SliceAdd, sides, total, cut(Slice, sides, neg(x)))
            halves = [(0, n // 2 + 1) for n in x.shape[:1]], [(n // 2 + 1, n) for n in x.shape[:1]]
            whole = [(0, n) for n in x.shape[1:]]
            low, high = [cut(Slice, [*half, *whole], total) for half in halves]
            if rng.uniform() < 0.5:
                low = add(cut(Slice, [*halves[0], *whole], y), low)
            x, y = (low, cut(SliceAdd, [(0, high.shape[0]), *whole], low, high))
            if rng.uniform() < 0.2:
                x = add(x, cut(Slice, [*halves[0], *whole], total))  # read by somebody else
        return x, y

    shape = tuple(int(n) for n in rng.integers(9, 12, rank))
    jaxpr = trace(f, [arr(*shape)] * 2)[0]
    small = cut_sums(jaxpr)
    check_jaxpr(small)
    xs = [ConcreteArray(rng.integers(-9, 9, shape).astype(F8)) for _ in range(2)]
    with use(evaluate):
        for a, b in zip(eval_jaxpr(small, xs), eval_jaxpr(jaxpr, xs), strict=True):
            np.testing.assert_array_equal(a, b)
    if seed == 0:
        assert small is not jaxpr


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_a_branch_that_is_known_to_be_taken_takes_the_place_of_a_choice(index):
    branches = [jnp.sin, jnp.cos, lambda x: x * 2.0]

    def f(x):  # the number is known only once the function that is called is written out
        known = fnx.jit(lambda k: lax.switch(k * 1, branches, x))
        return known(jnp.int32(index))

    jaxpr = trace_closed(lambda x: [f(x)], [ShapedArray((), np.dtype(float))])
    small = simplify(jaxpr, final=True)
    assert "cond" not in [e.prim.name for e in small.eqns]
    (found,) = eval_jaxpr(small, [as_array(0.3)])
    np.testing.assert_array_equal(found, branches[min(max(index, 0), 2)](0.3))
