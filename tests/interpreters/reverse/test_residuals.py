"""What derivatives of loops store: the least bytes that let the rest be computed again."""

import itertools
import time

import numpy as np
import pytest
from agreement import close
from loop_checks import total

import fnx
import fnx.numpy
from fnx import control_flow as lax
from fnx.core.aval import ShapedArray
from fnx.core.jaxpr import check_jaxpr
from fnx.interpreters.analysis.cost_model import recompute_cost
from fnx.interpreters.analysis.min_cut import Graph
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.scan import Scan
from fnx.interpreters.reverse.split_call import split_call
from fnx.interpreters.trace import trace
from fnx.ops.elementwise.arithmetic import cos, exp, sin, tanh
from fnx.ops.linalg.contraction import DotGeneral

# --- minimum cuts -------------------------------------------------------------------------------


def brute_force(nodes, edges):
    best = float("inf")
    for bits in range(2 ** (nodes - 2)):
        side = {0} | {k + 2 for k in range(nodes - 2) if bits >> k & 1}
        best = min(best, sum(c for a, b, c in edges if a in side and b not in side))
    return best


@pytest.mark.parametrize("seed", range(20))
def test_minimum_cut_against_all_cuts(seed):
    rng = np.random.default_rng(seed)
    nodes = int(rng.integers(3, 8))
    graph, edges = Graph(nodes), []
    for _ in range(int(rng.integers(3, 20))):
        a, b = (int(k) for k in rng.integers(0, nodes, 2))
        if a != b:
            edges.append((a, b, float(rng.integers(0, 9))))
            graph.edge(*edges[-1])
    flow, late = graph.cut(0, 1)
    assert flow == brute_force(nodes, edges)
    assert 1 in late
    assert 0 not in late
    assert sum(c for a, b, c in edges if a not in late and b in late) == flow


def test_long_chains_need_no_recursion():
    graph = Graph(5002)
    order = [0, *range(2, 5002), 1]
    for a, b in itertools.pairwise(order):
        graph.edge(a, b, 2.0 if a != 3000 else 1.0)
    flow, late = graph.cut(0, 1)
    assert flow == 1.0
    assert 3001 in late
    assert 3000 not in late


# --- loops -------------------------------------------------------------------------------------


def loops(f, *args, argnums=None):
    """The scans of a gradient, in order: first the forward one, then the one from the other end."""
    argnums = tuple(range(len(args))) if argnums is None else argnums
    jaxpr = fnx.make_jaxpr(fnx.value_and_grad(f, argnums))(*args).jaxpr
    check_jaxpr(jaxpr)
    small = simplify(jaxpr)
    check_jaxpr(small)
    return [e for e in small.eqns if isinstance(e.prim, Scan)]


def stacked(eqn):
    """The types of what a scan stacks, per iteration."""
    return [a.str_short() for a in eqn.prim.jaxpr.out_avals[eqn.prim.carry :]]


def rk4(deriv, dt):
    def step(state, _):
        def moved(k, h):
            return tuple(s + h * d for s, d in zip(state, k))

        k1 = deriv(state)
        k2 = deriv(moved(k1, dt / 2))
        k3 = deriv(moved(k2, dt / 2))
        k4 = deriv(moved(k3, dt))
        new = zip(state, k1, k2, k3, k4)
        return tuple(s + dt / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in new), None

    return step


def lorenz(s):
    x, y, z = s
    return 10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z


def ring(s):
    n = len(s)
    return tuple((s[(k + 1) % n] - s[k - 2]) * s[k - 1] - s[k] + 8.0 for k in range(n))


@pytest.mark.parametrize(("deriv", "n"), [(lorenz, 3), (ring, 10), (ring, 60)])
def test_an_ode_stores_its_state_alone(deriv, n):
    def loss(*s):
        return sum(lax.scan(rk4(deriv, 0.01), s, None, length=50)[0])

    start = time.perf_counter()
    forward, back = loops(loss, *np.linspace(0.5, 1.5, n))
    assert time.perf_counter() - start < 20
    assert stacked(forward) == ["f64[]"] * n
    assert back.prim.reverse
    assert stacked(back) == []
    assert back.prim.carry == n
    assert len(back.inputs) == 2 * n


def carries_stored(eqn):
    """Which of its carries a scan stacks before each iteration."""
    body, n = eqn.prim.jaxpr, eqn.prim.consts
    own = body.inputs[n : n + eqn.prim.carry]
    return [own.index(v) for v in body.outs[eqn.prim.carry :] if v in own]


def test_of_a_field_and_what_is_made_of_it_the_field_is_stored():
    """It is written in any case; so is a field of which all but the edge is updated."""
    u, c = np.ones((30, 40)), np.full((30, 40), 0.1)
    lap = lambda u: sum(fnx.numpy.roll(u, s, a) for a in (0, 1) for s in (1, -1)) - 4 * u
    inner = lambda u: u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1]
    steps = {
        "anew": lambda u, c: u + c * lap(u),
        "anew, with a source": lambda u, c: (u + c * lap(u)).at[9, 9].add(1.0),
        "inside": lambda u, c: u.at[1:-1, 1:-1].add(c[1:-1, 1:-1] * inner(u)),
    }
    for step in steps.values():
        loss = lambda u, c, step=step: (lax.fori_loop(0, 20, lambda _, u: step(u, c), u) ** 2).sum()
        forward, _ = loops(loss, u, c)
        assert stacked(forward) == ["f64[30,40]"]
        assert carries_stored(forward) == [0]


def test_a_field_of_which_a_row_is_updated_is_not_stored():
    def step(k, u):
        return u.at[k].set(fnx.numpy.sin(u[k - 1]) * u[k])

    forward, _ = loops(lambda u: lax.fori_loop(1, 30, step, u).sum(), np.ones((30, 40)))
    assert "f64[30,40]" not in stacked(forward)


def test_a_state_vector_is_stored_alone():
    def step(s, _):
        x, y, z = s[0], s[1], s[2]
        d = [10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z]
        return s + 0.01 * fnx.numpy.stack(d) if hasattr(fnx.numpy, "stack") else s * x * y * z, None

    forward, _ = loops(lambda s: total(lax.scan(step, s, None, length=50)[0]), np.ones(3))
    assert stacked(forward) == ["f64[3]"]


def test_a_cheap_chain_between_stored_carries_is_computed_again():
    def step(c, x):
        for _ in range(5):
            c = c * x * 1.1 + 0.1
        return c, None

    forward, _ = loops(lambda a, x: lax.scan(step, a, x)[0], np.array(0.5), np.ones(4))
    assert stacked(forward) == ["f64[]"]


def test_linear_loops_store_nothing():
    forward_and_back = loops(
        lambda a, x: lax.scan(lambda c, r: (0.9 * c + r, None), a, x)[0], np.array(1.0), np.ones(4)
    )
    assert [stacked(e) for e in forward_and_back] == [[], ["f64[]"]]


def test_xs_and_constants_are_not_stored_again():
    def loss(p, x):
        return lax.scan(lambda c, r: (p * r + c, None), p, x)[0]

    forward, back = loops(loss, np.array(0.5), np.ones(6))
    assert stacked(forward) == []
    assert back.prim.reverse
    assert [a.str_short() for a in back.prim.jaxpr.in_avals].count("f64[]") > 0


def test_a_product_of_large_matrices_is_stored_and_not_computed_again():
    w = np.ones((64, 64)) / 64
    dot = DotGeneral((((1,), (0,)), ((), ())))

    def loss(w, h):
        return total(
            lax.scan(lambda c, _: (tanh(dot(w, sin(dot(w, c)))), None), h, None, length=5)[0]
        )

    forward, back = loops(loss, w, np.ones((64, 64)))
    names = [e.prim.name for e in forward.prim.jaxpr.eqns]
    assert names.count("dot_general") == 2
    backward = [e.prim.name for e in back.prim.jaxpr.eqns]
    assert backward.count("dot_general") == 4, "two products a derivative, none computed again"
    assert sorted(stacked(forward)) == ["f64[64,64]"] * 3


def test_what_only_the_derivative_needs_moves_to_the_backward_loop():
    forward, back = loops(
        lambda a, x: lax.scan(lambda c, r: (sin(c) * c + r, None), a, x)[0],
        np.array(0.5),
        np.ones(4),
    )
    assert [e.prim.name for e in forward.prim.jaxpr.eqns].count("cos") == 0
    assert [e.prim.name for e in back.prim.jaxpr.eqns].count("cos") == 1
    assert stacked(forward) == ["f64[]"]


def test_masks_are_computed_again():
    from fnx.ops.elementwise.select import select

    def step(c, r):
        return select(c > r, c * c, c), None

    forward, _ = loops(lambda a, x: lax.scan(step, a, x)[0], np.array(0.5), np.ones(4))
    assert stacked(forward) == ["f64[]"]


def test_values_of_constants_are_not_stored_per_iteration():
    def loss(p, x):
        return lax.scan(lambda c, r: (c * exp(p) * cos(p) + r, None), 1.0, x)[0]

    forward, _back = loops(loss, np.array(0.5), np.ones(6))
    assert stacked(forward) == ["f64[]"]


def test_cotangents_that_are_zero_cost_nothing():
    """A carry that no result needs has no cotangent; nor has one that integers flow through."""

    def body(c, r):
        p, q, n = c
        return (p * r, q * p, n + 1), q

    forward, back = loops(
        lambda a, x: lax.scan(body, (a, a, 0), x)[0][0], np.array(0.5), np.ones(4)
    )
    assert back.prim.carry == 1
    assert forward.prim.carry == 1


def test_the_tape_of_a_scan_is_one_equation():
    from fnx.core.array import as_array
    from fnx.interpreters.linearize import linearize

    fn = lambda a: [lax.scan(lambda c, _: (sin(c), None), a, None, length=5)[0]]
    _, tape = linearize(fn, [as_array(np.array(0.5))], [True])
    (eqn,) = tape.eqns
    assert isinstance(eqn.prim, Scan)
    assert not eqn.prim.reverse


def test_calls_hand_over_inputs_and_few_residuals():
    jaxpr, _ = trace(lambda x, y: [sin(x * y) * y], [ShapedArray((1000,), np.dtype("f8"))] * 2)
    parts = split_call(jaxpr, (True, True))
    assert parts.stored == 0, "everything is cheaper to compute again than to store"
    assert parts.inputs == (0, 1)
    check_jaxpr(parts.forward)
    check_jaxpr(parts.linear)


def test_costs_are_those_of_the_primitives():
    """A primitive that nobody gave a cost would never be computed again."""
    from fnx.core.cost import UNKNOWN
    from fnx.ops.elementwise import arithmetic, integrals, select, special

    members = [p for m in (arithmetic, select, special, integrals) for p in vars(m).values()]
    pointwise = [p for p in members if isinstance(p, arithmetic.Pointwise)]
    assert len(pointwise) > 80
    assert [p.name for p in pointwise if p.cost is UNKNOWN] == []
    jaxpr, _ = trace(lambda x: [sin(x)], [ShapedArray((100,), np.dtype("f8"))])
    assert recompute_cost(jaxpr.eqns[0]) == 400


def _rounded_twice(x):
    """A product that one program rounds and another does not, and the largest of what comes of it."""

    def step(c, _):
        square = c * c
        inner = square - fnx.numpy.sum(square) / c.size
        larger = fnx.numpy.maximum(inner, 0.3 * c)
        return fnx.numpy.sin(larger) + 0.1 * square / (1 + fnx.numpy.max(larger)), larger

    last, all_ = lax.scan(step, x, None, length=4)
    return fnx.numpy.sum(last) + fnx.numpy.sum(fnx.numpy.cos(all_))


@pytest.mark.parametrize("size", [12, 100, 1000])
@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit, lambda f: fnx.jit(fnx.checkpoint(f))])
def test_what_is_computed_again_equals_the_extremum_that_was_stored(wrap, size):
    x = np.random.default_rng(size).normal(size=size)
    found = fnx.grad(wrap(_rounded_twice))(fnx.numpy.asarray(x))
    with fnx.core.config.backend("reference"):
        expected = fnx.grad(_rounded_twice)(fnx.numpy.asarray(x))
    close(found, expected, 1e-9, 1e-9)
