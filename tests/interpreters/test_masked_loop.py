"""Batched loops with one condition for all, in which members that ended are masked: members apart."""

import re

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.extend import core as jex
from fnx.interpreters import batching, mlir
from fnx.interpreters.primitives.write_out import written_out

MEMBERS = [1, 2, 7, 8, 33, 1000]
rng = np.random.default_rng(3)
TABLE = rng.normal(size=9)


def make_any():
    """Whether any bool of the whole batch is true."""
    p = jex.Primitive("any_of_all")
    p.def_impl(jnp.any)
    p.def_abstract_eval(lambda x: fnx.core.ShapedArray((), np.dtype(bool)))
    batching.primitive_batchers[p] = lambda xs, axes: (p.bind(*xs), None)
    mlir.register_lowering(p, mlir.lower_fun(jnp.any, multiple_results=False))
    return p.bind


any_of_all = make_any()


def masked_loop(cond, body, start, most=10_000):
    """`while_loop` with one condition for the whole batch; the iterations of the slowest, and the end."""

    def step(v):
        k, on, _, state = v
        new = body(state)
        kept = [jnp.where(on, y, x) for x, y in zip(state, new, strict=True)]
        return k + 1, on & cond(new), on, tuple(kept)

    goes = lambda v: any_of_all(cond(v[3])) & (v[0] < most)
    first = (jnp.array(0), jnp.array(True), jnp.array(True), tuple(map(jnp.asarray, start)))
    return lax.while_loop(goes, step, first)


def collatz(n):
    body = lambda s: (jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1)
    return masked_loop(lambda s: s[0] != 1, body, (n, 0))


def bounded(n):
    """Ends for members, or for all after nine iterations."""
    return masked_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] * 1.1), (n, 1.0), most=9)


def dormand_prince(x, stages=True):
    """Adaptive steps whose first stage is the last one of before, unless any member has none."""
    table = np.array([[0, 0, 0, 0], [0.5, 0, 0, 0], [0, 0.75, 0, 0], [2 / 9, 1 / 3, 4 / 9, 0]])
    wrong = np.array([-5 / 72, 1 / 12, 1 / 9, -1 / 8])
    field = lambda y: jnp.stack([y[1], -y[0] * x - 0.1 * y[1], jnp.sin(y[0])])

    def body(s):
        t, h, y, f, fresh = s
        anew = any_of_all(fresh | False)
        f0 = jnp.where(anew, field(y), f)
        ks = jnp.zeros((4, 3)).at[0].set(f0)

        def stage(v):
            i, ks, _ = v
            inner = y + h * (jnp.asarray(table)[i] @ ks)
            return i + 1, ks.at[i].set(field(inner)), inner

        _, ks, new = lax.while_loop(lambda v: v[0] < 4, stage, (jnp.array(1), ks, y))
        error = jnp.sqrt(jnp.mean((h * (jnp.asarray(wrong) @ ks) / (1e-6 + 1e-4 * abs(y))) ** 2))
        ok = error < 1
        factor = jnp.clip(0.9 * error ** (-1 / 3), 0.2, 5.0)
        t2 = jnp.where(ok, jnp.minimum(t + h, 2.0), t)
        return (t2, jnp.minimum(h * factor, 2.0 - t2 + 1e-9), jnp.where(ok, new, y),
                jnp.where(ok, ks[3], f0), jnp.where(ok, False, fresh))  # fmt: skip

    start = (jnp.where(x > 90, 2.0, 0.0), 0.3, jnp.array([1.0, 0.0, 0.5]), jnp.zeros(3), True)
    return masked_loop(lambda s: s[0] < 2.0, body, start)


def hears_others(n):
    """What is asked of all members stays with them: it is not a flag that goes down for ever."""
    body = lambda s: (s[0] - 1, s[1] + any_of_all(s[0] % 5 == 3))
    return masked_loop(lambda s: s[0] > 0, body, (n, 0))


def rises_again(n):
    body = lambda s: (s[0] - 1, (s[0] % 3 == 0), s[2] + any_of_all(s[1]))
    return masked_loop(lambda s: s[0] > 0, body, (n, True, 0))


def unmasked(n):
    """A member that ended counts on with the others."""
    step = lambda v: (v[0] - 1, v[1] + 1)
    return lax.while_loop(lambda v: any_of_all(v[0] > 0), step, (n, 0))


def counts_for_all(n):
    """What nobody masks is the same for all."""
    step = lambda v: (v[0] & (v[1] > 1), jnp.where(v[0], v[1] - 1, v[1]), v[2] + 1)
    return lax.while_loop(lambda v: any_of_all(v[0]), step, (n > 0, n, 0))


def partly_masked(n):
    step = lambda v: (v[0] & (v[1] > 1), jnp.where(v[0], v[1] - 1, v[1]), v[2] + 1)
    return lax.while_loop(lambda v: any_of_all(v[0]), step, (n > 0, n, 2 * n))


def mask_is_condition(n):
    def step(v):
        on, k, x = v
        return on & (k > 1), jnp.where(on, k - 1, k), jnp.where(on, x * 1.5, x)

    return lax.while_loop(lambda v: any_of_all(v[0]), step, (n > 0, n, 1.0))


def other_end(n):
    """The condition is not what the mask comes from."""
    step = lambda v: (v[0] & (v[1] > 5), jnp.where(v[0], v[1] - 1, v[1]), v[2] - 1)
    return lax.while_loop(lambda v: any_of_all(v[2] > 0), step, (n > 0, n, n))


def saved(n, guarded=True, asked_first=True, counts=False, hears=False):
    """Rows at times that a step passes, by a masked loop inside; who has ended writes what was there."""
    times = jnp.linspace(0.0, 2.5, 40)

    def step(v):
        k, on, t, i, out, seen = v
        after = t + 0.05 + 0.02 * n
        wanted = lambda i: (i < 40) & (times[jnp.minimum(i, 39)] <= after)

        def write(s):
            m, more, i, out = s
            row = jnp.stack([times[i] * n, t]) + (any_of_all(i % 5 == 3) if hears else 0)
            row = jnp.where(more & on if guarded else more, row, out[i])
            return m + 1, more & wanted(i + 1), jnp.where(more, i + 1, i), out.at[i].set(row)

        start = (jnp.array(0), wanted(i) if asked_first else jnp.array(True), i, out)
        m, _, j, out = lax.while_loop(
            lambda s: any_of_all(wanted(s[2])) & (s[0] < 40), write, start
        )
        t, i = jnp.where(on, after, t), jnp.where(on, j, i)
        seen = jnp.where(on, seen + m, seen) if counts else seen
        return k + 1, on & (after < 1.0), t, i, out, seen

    goes = lambda v: any_of_all(v[2] < 1.0) & (v[0] < 1000)
    start = (0, True, jnp.zeros(()), 1, jnp.zeros((40, 2)).at[0].set(n), 0)
    return lax.while_loop(goes, step, tuple(map(jnp.asarray, start)))


def saved_by_all(n):
    """A member that has ended goes on to write."""
    return saved(n, guarded=False)


def saved_at_once(n):
    """A first iteration that the condition does not ask for."""
    return saved(n, asked_first=False)


def saved_and_counted(n):
    """The iterations of the loop inside are those of the slowest member."""
    return saved(n, counts=True)


def saved_hearing_others(n):
    return saved(n, hears=True)


PROGRAMS = [
    saved, saved_by_all, saved_at_once, saved_and_counted, saved_hearing_others,
    collatz, bounded, hears_others, rises_again, unmasked, counts_for_all, partly_masked,
    mask_is_condition, other_end,
]  # fmt: skip
APART = [saved, collatz, bounded, counts_for_all, mask_is_condition]


def together(f, *xs):
    """By one loop over all members, in NumPy."""
    with fnx.disable_jit():
        return fnx.vmap(f)(*xs)


def same(found, expected, **tolerance):
    for a, b in zip(
        fnx.tree_util.tree_leaves(found), fnx.tree_util.tree_leaves(expected), strict=True
    ):
        np.testing.assert_allclose(a, b, **tolerance)


@pytest.mark.slow
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_members_get_what_they_get_together(f, members):
    n = rng.integers(1, 30, members)
    same(fnx.jit(fnx.vmap(f))(n), together(f, n), rtol=1e-12)


@pytest.mark.parametrize("members", MEMBERS)
def test_steps_with_a_shared_first_stage(members):
    x = np.sort(rng.uniform(0.1, 100.0, members))[::-1].copy()
    found = fnx.jit(fnx.vmap(dormand_prince))(x)
    same(found, together(dormand_prince, x), rtol=1e-7, atol=1e-9)
    assert np.all(np.asarray(found[3][0]) >= 2.0)


@pytest.mark.parametrize("f", [*APART, dormand_prince], ids=lambda f: f.__name__)
def test_members_run_side_by_side(f):
    own = fnx.jit(fnx.vmap(f), backend="cpu")  # whose schedule has lanes
    assert whole_loops_in_lanes(own.lower(np.arange(1.0, 101)).as_text("kernel"))


@pytest.mark.parametrize("f", [f for f in PROGRAMS if f not in APART], ids=lambda f: f.__name__)
def test_members_that_see_each_other_stay_together(f):
    own = fnx.jit(fnx.vmap(f), backend="cpu")
    assert not whole_loops_in_lanes(own.lower(np.arange(1, 101)).as_text("kernel"))


def whole_loops_in_lanes(text):
    """Whether lanes are outside of loops of all members, which may have loops inside that are lanes."""
    return re.search(r"^kernel \w+_lanes", text, re.M) is not None


@pytest.mark.parametrize("f", [saved, saved_by_all], ids=lambda f: f.__name__)
def test_arrays_of_all_members_are_not_copied_in_loops(f):
    text = fnx.jit(fnx.vmap(f), backend="cpu").lower(np.arange(1, 101)).as_text("kernel")
    assert "lanes" in text
    assert not re.search(r"^ +copy 8000 ", text, re.M)


def test_a_member_that_has_ended_before_it_begins():
    f = lambda n: masked_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, s[1] + 2), (n, 0))
    n = np.arange(-10, 10)
    same(fnx.jit(fnx.vmap(f))(n), together(f, n))
    same(fnx.jit(fnx.vmap(f))(-n[11:]), together(f, -n[11:]))


def test_a_bound_that_each_member_has_for_itself():
    f = lambda n, m: masked_loop(lambda s: s[0] < m, lambda s: (s[0] + n,), (0,))
    n, m = rng.integers(1, 5, 40), rng.integers(0, 90, 40)
    same(fnx.jit(fnx.vmap(f))(n, m), together(f, n, m))
    shared = fnx.vmap(f, in_axes=(0, None))
    same(fnx.jit(shared)(n, 77), together(lambda n: f(n, 77), n))


@pytest.mark.slow
def test_vmap_of_vmap():
    n = rng.integers(1, 30, (9, 11))
    for f in APART:
        found = fnx.jit(fnx.vmap(fnx.vmap(f)))(n)
        with fnx.disable_jit():
            same(found, fnx.vmap(fnx.vmap(f))(n), rtol=1e-12)


def test_derivatives_are_those_of_each_member():
    power = lambda x: masked_loop(
        lambda s: s[0] < 50.0, lambda s: (s[0] * x, s[1] * s[0]), (x, 1.0)
    )
    total = lambda x: jnp.sum(fnx.vmap(power)(x)[3][1])
    x = np.linspace(1.1, 3.0, 20)
    alone = lambda t: power(t)[3][1]
    expected = np.array([fnx.jacfwd(alone)(jnp.array(t)) for t in x])
    same(fnx.jit(fnx.grad(total))(x), expected, rtol=1e-10)
    _, tangent = fnx.jit(lambda x: fnx.jvp(total, (x,), (jnp.ones(20),)))(x)
    same(tangent, expected.sum(), rtol=1e-10)
    same(fnx.jit(fnx.vmap(fnx.grad(alone)))(x), expected, rtol=1e-10)


@pytest.mark.slow
def test_in_branches_and_in_loops():
    f = lambda n: lax.cond(n % 2 == 0, lambda n: collatz(n)[3][1], lambda n: 0 * n, n)
    n = np.arange(1, 40)
    same(fnx.jit(fnx.vmap(f))(n), together(f, n))
    g = lambda n: lax.scan(lambda c, k: (c + collatz(n + k)[3][1], c), 0, jnp.arange(4))
    same(fnx.jit(fnx.vmap(g))(n), together(g, n))


def test_a_rule_that_mixes_members_keeps_them_together():
    p = jex.Primitive("mean_of_all")
    p.def_impl(lambda x: x)
    p.def_abstract_eval(lambda x: fnx.core.ShapedArray(x.shape, x.dtype))
    mlir.register_lowering(p, mlir.lower_fun(lambda x: x, multiple_results=False))

    def rule(xs, axes):
        (x,) = xs
        return jnp.broadcast_to(jnp.mean(x, axis=0, keepdims=True), x.shape), 0

    batching.primitive_batchers[p] = rule
    f = lambda n: masked_loop(lambda s: s[0] > 0, lambda s: (s[0] - 1, p.bind(s[1]) + s[0]), (n, n))
    n = np.arange(1.0, 20.0)
    same(fnx.jit(fnx.vmap(f))(n), together(f, n), rtol=1e-12)
    assert "lanes" not in fnx.jit(fnx.vmap(f)).lower(n).as_text("kernel")


@pytest.mark.slow
def test_other_backends():
    n = np.arange(1, 25)
    for backend in ("reference", "numba"):
        if backend == "numba":
            pytest.importorskip("numba")
        same(fnx.jit(fnx.vmap(collatz), backend=backend)(n), together(collatz, n))


# --- loops that are written out ------------------------------------------------------------------


def test_loops_that_numbers_end_are_written_out():
    def f(x):
        body = lambda v: (
            v[0] + 2,
            v[1].at[v[0]].set(v[1][v[0] + 1] * x + jnp.asarray(TABLE)[v[0]]),
        )
        return lax.while_loop(lambda v: v[0] < 6, body, (jnp.array(0), jnp.arange(8.0)))

    jaxpr = written_out(fnx.make_jaxpr(f)(2.0).jaxpr)
    names = [e.prim.name for e in jaxpr.eqns]
    assert names.count("slice_set") == 3
    assert not {"while", "scatter", "dynamic_update_slice", "dynamic_slice", "gather"} & set(names)
    same(fnx.core.jaxpr.eval_jaxpr(jaxpr, [*consts_of(f, 2.0), jnp.array(2.0)]), f(2.0))


def consts_of(f, *args):
    return fnx.make_jaxpr(f)(*args).consts


@pytest.mark.parametrize("bound", [3, None])
def test_loops_that_go_on_stay_loops(bound):
    """Because nobody knows when they end, or because they are long."""

    def f(n):
        end = 10**6 if bound is None else n
        return lax.while_loop(lambda k: k < end, lambda k: k + 1, jnp.array(0))

    jaxpr = written_out(fnx.make_jaxpr(f)(5).jaxpr)
    assert [e.prim.name for e in jaxpr.eqns if e.prim.name == "while"] == ["while"]


def test_stages_are_written_out_for_all_members_once_flags_are_down():
    """Where members keep more than registers hold, so that they stay together."""

    def f(x):
        def body(s):
            t, y, fresh, seen = s
            anew = any_of_all(fresh)
            first = jnp.where(anew, 0, 1)
            _, y = lax.while_loop(
                lambda v: v[0] < 4, lambda v: (v[0] + 1, v[1] + x * jnp.cos(v[1])), (first, y)
            )
            return t + x, y, jnp.where(t > 2 * x, False, fresh), seen + y[0]

        start = (0.0 * x, jnp.array([1.0, 2.0]), True, jnp.zeros(50))
        return masked_loop(lambda s: s[0] < 3.0, body, start)

    x = np.linspace(0.1, 1.0, 64)
    same(fnx.jit(fnx.vmap(f))(x), together(f, x), rtol=1e-10)
    text = fnx.jit(fnx.vmap(f)).lower(x).as_text("kernel")
    assert "lanes" not in text
    assert text.count("\nloop with") == 2
    assert text.count("  loop with") == 1
