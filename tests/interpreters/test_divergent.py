"""Lanes that take their own courses under vmap: each gets what it gets alone, natively and eagerly."""

import signal

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

NUMBERS = [1, 2, 3, 5, 40, 300]
rng = np.random.default_rng(7)
TABLE = rng.normal(size=50)


def collatz(n):
    """Iterations until 1."""
    step = lambda v: (jnp.where(v[0] % 2 == 0, v[0] // 2, 3 * v[0] + 1), v[1] + 1)
    return lax.while_loop(lambda v: v[0] != 1, step, (n, 0))[1]


def branches(n):
    """As collatz, by a branch in the loop."""
    even, odd = (lambda k: k // 2), (lambda k: 3 * k + 1)
    step = lambda v: (lax.cond(v[0] % 2 == 0, even, odd, v[0]), v[1] + 1)
    return lax.while_loop(lambda v: v[0] != 1, step, (n, 0))


def oscillator(x):
    """Adaptive steps of a small vector, with the lane's own and a shared constant."""
    matrix = jnp.array([[0.0, 1.0], [-1.0, -0.1]])

    def step(s):
        t, y, h = s
        k1 = matrix @ y * x
        k2 = matrix @ (y + h * k1) * x
        wrong = jnp.max(jnp.abs(k2 - k1)) * h
        ok = wrong < 1e-2
        h2 = h * jnp.clip(0.9 * jnp.sqrt(1e-2 / (wrong + 1e-12)), 0.2, 3.0)
        return jnp.where(ok, t + h, t), jnp.where(ok, y + h / 2 * (k1 + k2), y), h2

    return lax.while_loop(lambda s: s[0] < 2.0, step, (0.0, jnp.array([1.0, 0.0]), 0.1))


def none_or_some(x):
    """Some lanes take no iteration at all."""
    return lax.while_loop(lambda v: v < 1.0, lambda v: v + 0.3, x) * 2 + x


def bound_per_lane(n):
    return lax.fori_loop(0, n % 17, lambda i, v: v + jnp.sin(i * v), 0.5)


def from_a_table(n):
    """Reads an array that all lanes share, at places of their own."""
    return lax.while_loop(
        lambda v: v[1] < 3.0,
        lambda v: (v[0] + 1, v[1] + jnp.asarray(TABLE)[v[0] % 50] ** 2),
        (n, 0.0),
    )


def narrow(x):
    """Several types: float32, bool, complex, int32."""
    start = (x.astype("float32"), jnp.array(False), x + 1j, jnp.int32(0))

    def step(v):
        a, b, z, k = v
        return a * jnp.float32(0.7), ~b, z * (0.9 + 0.1j) + x, k + jnp.int32(1)

    return lax.while_loop(lambda v: v[0] > 0.1, step, start)


def loop_in_loop(x):
    inner = lambda y: lax.while_loop(lambda v: v * v > 2 * x, lambda v: 0.5 * (v + x / v), y)
    return lax.while_loop(lambda v: v < 10.0 + x, lambda v: v + 0.1 + inner(v) ** 2 / 10, x)


def scan_in_loop(x):
    inner = lambda v: lax.fori_loop(0, 5, lambda i, y: y + 0.1 + 0.05 * jnp.cos(y * i), v)
    return lax.while_loop(lambda v: v < 4 + x, inner, x)


def large_carry(x):
    start = jnp.linspace(0.0, 1.0, 40) + x
    return lax.while_loop(lambda v: v[3] < 3.0, lambda v: jnp.roll(v, 1) * 1.1 + 0.1, start)


def saved_inside(x):
    """Steps of several lengths; a loop inside writes what is wanted in between, and reads what it wrote."""
    times = jnp.linspace(0.0, 3.0, 30)

    def step(v):
        t, h, i, out = v
        h = jnp.where(h > 0.9, 0.02, h)
        wanted = lambda s: (s[0] < 30) & (times[jnp.minimum(s[0], 29)] <= t + h)
        row = lambda i, out: jnp.stack([jnp.sin(times[i] * x), out[i - 1, 0] + t, h])
        i, out = lax.while_loop(wanted, lambda s: (s[0] + 1, s[1].at[s[0]].set(row(*s))), (i, out))
        return t + h, h * (1 + x), i, out

    start = jnp.zeros((30, 3)).at[0].set(x)
    return lax.while_loop(lambda v: v[0] < 2.5, step, (0.0, 0.02, 1, start))[2:]


def history(x):
    """Writes behind the end, which are dropped or moved, under a condition, of what was there before."""

    def step(v):
        n, a, b = v
        old = a[jnp.maximum(n - 3, 0)]
        a = jnp.where(old + x > 0.5, a.at[n].set(0.5 * old + x), a)
        b = lax.dynamic_update_slice(b, jnp.stack([old, b[n - 50, 1]])[None], (n - 50, 1))
        return n + 1, a, b

    start = (65, jnp.ones(80) * x, jnp.linspace(0.0, x, 90).reshape(30, 3))
    return lax.while_loop(lambda v: v[0] < 76 + 10 * x, step, start)


def last_of_a_loop(x):
    """The loop around reads, and writes after, what a loop inside changes."""

    def step(v):
        n, a = v
        before = a[n]
        k, a = lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1].at[n + s[0]].set(x + before)), (0, a)
        )
        return n + k, a.at[0].add(before)

    return lax.while_loop(lambda v: v[0] < 15 * x, step, (1, jnp.linspace(0.0, 1.0, 40)))


def small_system(x):
    """A linear solve in each iteration."""

    def step(v):
        matrix = jnp.array([[2.0, 0.3, 0.1], [0.1, 3.0, 0.2], [0.0, 0.4, 2.5]]) + 0.1 * v
        return jnp.linalg.solve(matrix, v + 0.01 * x)

    return lax.while_loop(lambda v: jnp.sum(v * v) > 0.01, step, jnp.ones(3))


def loop_in_a_branch(x):
    """A loop that would never end in the lanes that do not go there."""
    slow = lambda a: lax.while_loop(lambda v: v < 50.0, lambda v: v * a, a)
    return lax.cond(x > 1.0, slow, lambda a: a * 2, x)


def loops_in_branches(n):
    """A switch out of range, nested in a branch."""
    forever = lambda a: lax.while_loop(lambda v: v % 5 != 2, lambda v: v + 5, a)
    inner = lambda a: lax.switch(
        a % 5 - 1, [lambda a: -a, forever, lambda a: lax.fori_loop(0, a, lambda i, v: v + i, 0)], a
    )
    return lax.cond((n % 5 < 3) & (n % 5 != 1), inner, lambda a: a, n)


def large_branch(x):
    y = jnp.linspace(0.0, 1.0, 2000) + x
    costly = lambda y: jnp.cumsum(jnp.sin(jnp.sort(y)[::-1]))
    return lax.cond(x > 1.0, costly, lambda y: y * 2, y)[::100]


def drawn(n):
    """Rejection sampling."""

    def step(v):
        key, sub = fnx.random.split(v[0])
        return key, fnx.random.uniform(sub)

    return lax.while_loop(lambda v: v[1] > 0.2, step, (fnx.random.PRNGKey(n), 1.0))[1]


LOOPS = {
    f.__name__: (f, kind)
    for kind, fs in {
        "n": [collatz, branches, bound_per_lane, from_a_table, drawn, loops_in_branches],
        "x": [
            oscillator,
            none_or_some,
            narrow,
            loop_in_loop,
            scan_in_loop,
            large_carry,
            saved_inside,
            history,
            last_of_a_loop,
            small_system,
            loop_in_a_branch,
            large_branch,
        ],
    }.items()
    for f in fs
}


def values(kind, size):
    return np.arange(1, size + 1) if kind == "n" else np.linspace(0.2, 1.9, size)


def check(found, expected, rtol=1e-13):
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        a, b = np.asarray(a), np.asarray(b)
        if a.dtype.kind in "fc":
            np.testing.assert_allclose(a, b, rtol=rtol if a.itemsize >= 8 else 1e-5, atol=1e-13)
        else:
            assert (a == b).all()


def alone(f, xs):
    """Lane by lane."""
    one = fnx.jit(f)
    return fnx.tree.map(lambda *ys: jnp.stack(ys), *[one(x) for x in xs])


@pytest.mark.slow
@pytest.mark.parametrize("size", NUMBERS)
@pytest.mark.parametrize("name", LOOPS)
def test_each_lane_gets_what_it_gets_alone(name, size):
    f, kind = LOOPS[name]
    xs = values(kind, size)
    check(fnx.jit(fnx.vmap(f))(xs), alone(f, xs))


@pytest.mark.parametrize("name", LOOPS)
def test_eager_lanes_and_lanes_of_lanes(name):
    f, kind = LOOPS[name]
    xs = values(kind, 6)
    expected = alone(f, xs)
    check(fnx.vmap(f)(xs), expected)
    grid = xs.reshape(2, 3)
    two = fnx.tree.map(lambda y: y.reshape(2, 3, *y.shape[1:]), expected)
    check(fnx.jit(fnx.vmap(fnx.vmap(f)))(grid), two)
    check(fnx.jit(fnx.vmap(fnx.vmap(f), in_axes=1, out_axes=1))(grid), two)


def test_gradients_through_branches_of_lanes():
    f = lambda x: large_branch(x).sum()
    xs = values("x", 7)
    expected = alone(fnx.grad(f), xs)
    check(fnx.jit(fnx.vmap(fnx.grad(f)))(xs), expected, 1e-11)
    check(fnx.jit(fnx.grad(lambda x: fnx.vmap(f)(x).sum()))(xs), expected, 1e-11)


@pytest.mark.parametrize("name", [n for n, (_, kind) in LOOPS.items() if kind == "x"])
def test_tangents_of_lanes(name):
    f = lambda x: fnx.tree.map(lambda y: y if y.dtype == "float64" else 0.0, LOOPS[name][0](x))
    xs = values("x", 37)
    push = lambda x: fnx.jvp(f, (x,), (1.0,))[1]
    expected = alone(push, xs)
    check(fnx.jit(fnx.vmap(push))(xs), expected, 1e-11)
    check(fnx.jit(lambda x: fnx.jvp(fnx.vmap(f), (x,), (jnp.ones(37),))[1])(xs), expected, 1e-11)


def test_no_lanes():
    assert fnx.jit(fnx.vmap(collatz))(np.zeros(0, int)).shape == (0,)
    assert fnx.vmap(oscillator)(np.zeros(0))[1].shape == (0, 2)


def test_constants_with_lanes_and_without():
    def f(a, b, start):
        return lax.while_loop(lambda v: v[0] < b, lambda v: (v[0] + a, v[1] * a), (start, 1.0))

    a, b, start = np.linspace(1, 2, 20), np.linspace(3, 30, 20), 0.5
    for axes in ((0, 0, None), (0, None, None), (None, 0, None)):
        given = [x if k == 0 else np.float64(np.mean(x)) for x, k in zip((a, b, start), axes)]
        columns = [x if axis == 0 else np.full(20, x) for x, axis in zip(given, axes)]
        expected = [fnx.jit(f)(*lane) for lane in zip(*columns)]
        found = fnx.jit(fnx.vmap(f, in_axes=axes))(*given)
        check(found, fnx.tree.map(lambda *ys: jnp.stack(ys), *expected))


def test_lanes_may_hand_on_arrays():
    """A loop over lanes whose result is a large array that it was given, or one of its rows."""
    numbers, table = jnp.arange(17), jnp.arange(17.0 * 51).reshape(17, 51)

    def iterations(_, x):
        n, row = x
        return None, (collatz(n + 1), row, row[n])

    found = fnx.jit(lambda *xs: lax.scan(iterations, None, xs)[1])(numbers, table)
    expected = [[collatz(n + 1), row, row[n]] for n, row in zip(range(17), table)]
    for a, b in zip(found, zip(*expected), strict=True):
        np.testing.assert_array_equal(a, np.stack(b))


def test_lanes_that_speak_to_each_other_stay_together():
    def f(x):
        return lax.while_loop(
            lambda v: v < 10, lambda v: v + 1 + 0 * lax.psum(v, "i"), x
        ), lax.while_loop(lambda v: lax.pmax(v, "i") < 10, lambda v: v + 1, x)

    one, other = fnx.jit(fnx.vmap(f, axis_name="i"))(np.array([1.0, 5.0, 8.5]))
    np.testing.assert_array_equal(one, [10.0, 10.0, 10.5])
    np.testing.assert_array_equal(other, [3.0, 7.0, 10.5])
    grid = fnx.jit(fnx.vmap(fnx.vmap(collatz, axis_name="i"), axis_name="j"))
    assert grid(np.arange(1, 7).reshape(2, 3)).tolist() == [[0, 1, 7], [2, 5, 8]]


def test_a_callback_is_called_for_all_lanes_at_once():
    calls = []

    def host(x):
        calls.append(x.shape)
        return np.asarray(x) + 1.0

    def f(x):
        more = lambda v: fnx.pure_callback(
            host, fnx.ShapeDtypeStruct((), "float64"), v, vmap_method="expand_dims"
        )
        return lax.while_loop(lambda v: v < 5, more, x)

    np.testing.assert_allclose(fnx.jit(fnx.vmap(f))(np.array([1.0, 3.5])), [5.0, 5.5])
    assert set(calls) == {(2,)}


def test_steps_on_registers_run_side_by_side():
    own = lambda f: fnx.jit(fnx.vmap(f), backend="cpu")  # whose schedule that is
    text = own(branches).lower(np.arange(1, 100)).as_text("kernel")
    assert "vector, reassociate" in text
    assert "if " not in text
    text = own(large_carry).lower(np.linspace(0, 1, 100)).as_text("kernel")
    assert "vector, reassociate" not in text
    text = own(last_of_a_loop).lower(np.linspace(0, 1, 100)).as_text("kernel")
    assert "vector, reassociate" not in text
    for loop in (scan_in_loop, loop_in_loop, saved_inside, history):
        text = own(loop).lower(np.linspace(0, 1, 100)).as_text("kernel")
        assert "vector, reassociate" in text


def test_the_other_printer_agrees():
    from fnx.lowering.numba import program_printer

    xs = np.arange(1, 20)
    for f in (branches, bound_per_lane):
        compiled = fnx.jit(fnx.vmap(f)).lower(xs).compile()
        program = compiled.program.compiled().program
        outs = program_printer.run(program, [xs], jit=False)
        for a, b in zip(outs, fnx.tree.leaves(compiled(xs)), strict=True):
            np.testing.assert_allclose(a, np.asarray(b).reshape(-1), rtol=1e-14)


@pytest.mark.parametrize(("lanes", "threads"), [(2, 1), (40, 1), (2000, 3)])
def test_ctrl_c_stops_lanes(lanes, threads):
    forever = lambda x: lax.while_loop(
        lambda v: v[0] >= x, lambda v: (v[0] * 0.5 + x, v[1] + 1), (x, 0)
    )
    f = fnx.jit(fnx.vmap(forever)).lower(np.linspace(0, 1, lanes)).compile()
    handler, count = (
        signal.signal(signal.SIGALRM, signal.default_int_handler),
        fnx.get_num_threads(),
    )
    try:
        fnx.set_num_threads(threads)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            f(np.linspace(0, 1, lanes))
    finally:
        signal.signal(signal.SIGALRM, handler)
        fnx.set_num_threads(count)


def test_threads_share_lanes():
    xs = np.arange(1, 5000)
    before = fnx.get_num_threads()
    try:
        fnx.set_num_threads(1)
        expected = fnx.jit(fnx.vmap(branches))(xs)
        fnx.set_num_threads(3)
        check(fnx.jit(fnx.vmap(branches))(xs), expected)
    finally:
        fnx.set_num_threads(before)


def test_what_is_not_mapped_is_handed_on_as_it_is():
    seen = []

    def f(x, options, scale, table):
        seen.append((type(options["square"]), type(scale)))
        return table @ (x * x if options["square"] else x) * scale

    table = np.arange(6.0).reshape(2, 3)
    lanes = fnx.vmap(f, in_axes=(0, None, None, None))
    for run in (lanes, lambda x, *rest: fnx.jit(lambda x: lanes(x, *rest))(x)):
        out = run(np.ones((4, 3)), {"square": True}, 2, table)
        np.testing.assert_array_equal(out, np.tile(2 * table.sum(1), (4, 1)))
    assert set(seen) == {(bool, int)}
    rows = fnx.vmap(lambda table, i: table[i], in_axes=(None, 0))(table, np.array([1, 0]))
    np.testing.assert_array_equal(rows, table[::-1])  # which NumPy's own arrays cannot
