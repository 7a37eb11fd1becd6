"""fnx.debug.explore: functions of values, iterations and members that people choose, and pdb itself."""

import functools
import os
import subprocess
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.errors import InvalidValue, TracerArrayConversionError, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.observe.lockstep import Disagreement
from fnx.sharding import PartitionSpec as P


class Seen(list):
    """Notes what a function sees, but for what is seen while it is traced."""

    def __call__(self, *values):
        known = [v for v in values if not isinstance(v, Tracer)]
        if len(known) == len(values):
            self.append(tuple(np.asarray(v).tolist() for v in values))


@pytest.fixture
def seen():
    return Seen()


def same(f, *args, **choice):
    """What exploring gives, which is what calling gives."""
    got, want = fnx.debug.explore(f, *args, **choice), f(*args)
    pairs = zip(fnx.tree.leaves(got), fnx.tree.leaves(want), strict=True)
    for a, b in pairs:
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-14)
    assert fnx.tree.structure(got) == fnx.tree.structure(want)
    return got


def adding(seen):
    def step(total, x):
        seen(total, x)
        return total + x, total

    return step


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chosen", [None, 0, -1, [1, 2], range(2, 9), {4}, [], [0, 2, 4]])
def test_iterations_of_a_scan(seen, reverse, chosen):
    step = adding(seen)
    f = fnx.jit(lambda xs: lax.scan(step, 0, xs, reverse=reverse))
    same(f, np.arange(1.0, 6.0), iterations=chosen)
    wanted = range(5) if chosen is None else [chosen] if isinstance(chosen, int) else chosen
    wanted = [k % 5 for k in wanted if k < 5]
    rows = [x - 1 for _, x in seen]
    assert rows == sorted(wanted, reverse=reverse)


def test_iterations_of_loops_of_unknown_length(seen):
    def f(x):
        def body(v):
            seen(*v)
            return v[0] * 2, v[1] + 1

        return lax.while_loop(lambda v: v[0] < 1000, body, (x, 0))

    for chosen in (None, [3, 4], 0, range(8, 100), [], [500]):
        seen.clear()
        same(fnx.jit(f), 1, iterations=chosen)
        wanted = range(10) if chosen is None else [chosen] if chosen == 0 else chosen
        assert [k for _, k in seen] == [k for k in wanted if k < 10]
        assert all(v == 2**k for v, k in seen)


def test_iterations_are_counted_from_0_whatever_the_bounds(seen):
    f = fnx.jit(lambda n: lax.fori_loop(5, n, lambda i, v: (seen(i, v), v + i)[1], 0.0))
    same(f, 15, iterations=[0, 9])
    assert [i for i, _ in seen] == [5, 14]
    g = fnx.jit(lambda v: lax.fori_loop(5, 15, lambda i, v: (seen(i, v), v + i)[1], v))
    seen.clear()
    same(g, 0.0, iterations=[0, 9])
    assert [i for i, _ in seen] == [5, 14]


def test_choices_are_of_outermost_loops_or_of_names(seen):
    def inner(i, c):
        seen(i, c)
        return c + 1.0

    def outer(c, x):
        return lax.fori_loop(0, 3, inner, c), c

    f = fnx.jit(lambda xs: lax.scan(outer, 0.0, xs))
    same(f, np.zeros(4), iterations=2)
    assert seen == [(0, 6.0), (1, 7.0), (2, 8.0)]
    seen.clear()
    same(f, np.zeros(4), iterations={"outer": 2, "inner": [1]})
    assert seen == [(1, 7.0)]
    with pytest.warns(RuntimeWarning, match="iterations of outr: met were inner, outer"):
        fnx.debug.explore(f, np.zeros(4), iterations={"outr": 2})


@pytest.mark.parametrize("chosen", [None, 1, [-1, 0], range(4), []])
def test_members_of_vmap(seen, chosen):
    def one(x, y):
        seen(x, y)
        return x + y, y, jnp.ones(2)

    f = fnx.jit(fnx.vmap(one, in_axes=(1, None), out_axes=(-1, None, 0)))
    same(f, np.arange(8.0).reshape(2, 4), 3.0, members=chosen)
    wanted = range(4) if chosen is None else [chosen] if chosen == 1 else chosen
    assert [x for x, _ in seen] == [[k, k + 4] for k in sorted({k % 4 for k in wanted})]


def test_nested_members_and_loops(seen):
    def f(x):
        return lax.while_loop(lambda v: v < 100, lambda v: (seen(v), v * 2)[1], x)

    g = fnx.jit(fnx.vmap(fnx.vmap(f)))
    same(g, np.arange(1.0, 7.0).reshape(2, 3), members=1, iterations=[2])
    assert seen == [(16.0,), (20.0,), (24.0,)]


def test_collectives_see_all_members(seen):
    def one(x):
        total = lax.psum(x, "i")
        seen(lax.axis_index("i"), x, total)
        return x / total, lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 0)])

    f = fnx.jit(fnx.vmap(one, axis_name="i"))
    same(f, np.arange(3.0), members=1)
    assert (1, 1.0, 3.0) in seen
    seen.clear()
    loss = fnx.jit(fnx.grad(lambda x: (fnx.vmap(one, axis_name="i")(x)[0] ** 2).sum()))
    same(loss, np.arange(3.0))


def test_collectives_in_loops(seen):
    def step(c, x):
        seen(c, x)
        return c + lax.pmean(x, "i"), c

    f = fnx.jit(fnx.vmap(lambda xs: lax.scan(step, 0.0, xs), axis_name="i"))
    same(f, np.arange(8.0).reshape(2, 4), iterations=2)
    assert seen == [(5.0, 2.0), (5.0, 6.0)]


def test_members_that_come_to_different_collectives_are_named():
    def one(x):
        return lax.psum(x, "i") if x > 0 else x

    with pytest.raises(Disagreement, match="member 0 ended; member 1 came to psum"):
        fnx.debug.explore(fnx.vmap(one, axis_name="i"), np.arange(3.0))


@pytest.mark.slow
def test_devices(seen):
    def one(x):
        total = lax.psum(x.sum(), ("a", "b"))
        seen(total)
        return x * total * lax.axis_index("b")

    with fnx.core.config.num_devices(4):
        mesh = fnx.make_mesh((2, 2), ("a", "b"))
        f = fnx.shard_map(one, mesh=mesh, in_specs=P("a", "b"), out_specs=P("a", "b"))
        same(fnx.jit(f), np.arange(16.0).reshape(4, 4))
        assert seen == [(120.0,)] * 4
        seen.clear()
        same(
            fnx.pmap(lambda x: (seen(x), x / lax.psum(x, "i"))[1], axis_name="i"),
            np.arange(1.0, 3.0),
        )
        assert seen == [(1.0,), (2.0,)]


def test_derivatives_show_which_number_a_tracer_stands_for():
    def f(x):
        assert float(x) == 3.0
        assert x > 1
        assert "whose value is 3.0" in repr(x)
        return lax.cond(x > 1, lambda x: x * x, lambda x: x, x)

    for g in (fnx.grad(f), fnx.jacfwd(f), fnx.jacrev(f), lambda x: fnx.jvp(f, (x,), (1.0,))[1]):
        assert float(fnx.debug.explore(fnx.jit(g), 3.0)) == 6.0
    assert "whose value" not in repr_under(fnx.grad)


def repr_under(transform):
    found = []
    transform(lambda x: (found.append(repr(x)), x)[1])(1.0)
    return found[0]


def test_rules_of_users_see_values(seen):
    @fnx.custom_vjp
    def f(x):
        return jnp.sin(x)

    def backward(x, ct):
        seen(x, ct)
        return (jnp.cos(x) * ct,)

    f.defvjp(lambda x: (f(x), x), backward)
    same(fnx.jit(fnx.vmap(fnx.grad(f))), np.arange(3.0), members=2)
    assert seen == [(2.0, 1.0)]


@pytest.mark.parametrize(
    "wrap",
    [
        fnx.checkpoint,
        jnp.vectorize,
        lambda f: functools.partial(fnx.vmap(lambda c, x: f(x)), np.zeros(3)),
    ],
)
def test_what_wraps_functions(seen, wrap):
    f = lambda x: (seen(x), x * x)[1]
    same(fnx.jit(wrap(f)), np.arange(3.0))
    assert seen


@pytest.mark.parametrize("make", [np.float32, np.int8, np.complex64, bool])
def test_small_dtypes_and_promotion_of_carries(make):
    xs = np.arange(4).astype(make)
    same(fnx.jit(lambda xs: lax.scan(lambda c, x: (c + x, c), 0, xs)), xs, iterations=[1])
    same(fnx.jit(lambda xs: lax.scan(lambda c, x: (c + x, c), 0, xs)), xs)
    same(
        fnx.jit(
            lambda x: lax.while_loop(lambda c: c[1] < 3, lambda c: (c[0] * x, c[1] + 1), (2, 0))
        ),
        xs[1],
    )


def test_nothing_to_run():
    same(fnx.jit(lambda xs: lax.scan(lambda c, x: (c + x, c), 0, xs)), np.zeros(0))
    same(fnx.jit(fnx.vmap(jnp.sin)), np.zeros(0))
    same(fnx.jit(fnx.vmap(lambda x: x + 1)), np.zeros((0, 2)))
    same(fnx.jit(lambda: {"a": (), "b": None}))


def test_references_are_written():
    ref = fnx.new_ref(jnp.zeros(2))

    def body(i, c):
        ref[0] += c
        return c + 1

    f = fnx.jit(lambda x: lax.fori_loop(0, 3, body, x))
    assert float(fnx.debug.explore(f, 1.0, iterations=1)) == 4.0
    assert np.asarray(ref[...]).tolist() == [6.0, 0.0]


def test_errors_say_where():
    def bad(c, x):
        return c + x, 1 / int(x - 2)

    f = fnx.vmap(lambda xs: lax.scan(bad, 0.0, xs))
    with pytest.raises(ZeroDivisionError) as info:
        fnx.debug.explore(f, np.array([[1.0, 1.0], [1.0, 2.0]]))
    notes = info.value.__notes__
    assert notes[0].startswith("in iteration 1 of scan at ")
    assert notes[1].startswith("in member 1 of vmap of <lambda> at ")


def test_errors_of_carries_come_after_what_people_see(seen):
    def bad(c, x):
        seen(c)
        return jnp.stack([c, c]), c

    with pytest.raises(TypeMismatch, match=r"carry is f64\[2\]\* but was f64\[\]"):
        fnx.debug.explore(lambda xs: lax.scan(bad, 0.0, xs), np.zeros(2))
    assert len(seen) == 2


def test_nan_checks_name_the_member():
    f = fnx.jit(fnx.vmap(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.log(x), x)))
    with fnx.debug_nans(), pytest.raises(FloatingPointError) as info:
        fnx.debug.explore(f, np.array([1e9, 2.0]))
    assert "in iteration 2 of fori_loop" in str(info.value)
    assert "in member 1 of vmap" in str(info.value)


def test_what_cannot_be_explored():
    loop = fnx.vmap(lambda x: lax.while_loop(lambda v: v < 3, lambda v: v + 1, x))
    for choice, error, text in (
        (
            {"iterations": "abc"},
            TypeMismatch,
            "iterations='abc'; expected an integer, a collection",
        ),
        ({"iterations": True}, TypeMismatch, "iterations=True"),
        ({"members": 1.5}, TypeMismatch, "members=1.5"),
        ({"members": {"f": [0.5]}}, TypeMismatch, "members="),
        ({"members": 7}, InvalidValue, "has 3 members; expected numbers from -3 to 2"),
        ({"iterations": -1}, InvalidValue, "expected numbers from 0"),
    ):
        with pytest.raises(error, match=text):
            fnx.debug.explore(loop, np.zeros(3), **choice)
    with pytest.raises(
        TracerArrayConversionError, match=r"debug\.explore of sin got a traced value"
    ):
        fnx.jit(lambda x: fnx.debug.explore(jnp.sin, x))(1.0)
    with pytest.raises(TypeMismatch, match="needs a function"):
        fnx.debug.explore(3)


# --- pdb itself --------------------------------------------------------------------------------

SCRIPT = """
import numpy as np, fnx, fnx.numpy as jnp
from fnx import lax

def step(carry, x):
    total = carry + jnp.sin(x)
    return total, total      # line 7

def one(x, n):
    return lax.scan(step, x, n)[0]

f = fnx.jit({f})
print("RESULT", fnx.debug.explore(f, {args}{choice}))
"""
SIMPLE = {"f": "lambda xs: lax.scan(step, 0.0, xs)[0]", "args": "np.arange(1000.0)"}


def pdb(tmp_path, commands, script=SCRIPT, **parts):
    """What `python -m pdb` prints that hears the commands."""
    file = tmp_path / "model.py"
    file.write_text(script.format(**{"choice": "", **parts}))
    done = subprocess.run(
        [sys.executable, "-m", "pdb", str(file)], input="\n".join(commands) + "\nq\n",
        capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_pdb_stops_in_a_chosen_iteration(tmp_path):
    said = pdb(
        tmp_path, ["b 7", "c", "p x, float(total)", "c", "p x", "c"],
        choice=", iterations=[812, 900]", **SIMPLE,
    )  # fmt: skip
    want = np.sin(np.arange(813.0)).sum()
    at = [line for line in said.splitlines() if "Array(812., dtype=float64)" in line]
    assert at, said
    assert float(at[0].split(",")[-1].rstrip(")")) == pytest.approx(want)
    assert "Array(900., dtype=float64)" in said
    assert "RESULT" in said
    assert said.count("model.py(7)step()") == 2


def test_pdb_steps_through_members_and_derivatives(tmp_path):
    said = pdb(
        tmp_path, ["b 7", "c", "p x", "p float(total) > 0", "n", "up", "c"],
        f="fnx.vmap(fnx.grad(one), in_axes=(0, None))", args="np.arange(3.0), np.arange(1.0, 5.0)",
        choice=", members=2, iterations=3",
    )  # fmt: skip
    assert "Array(4., dtype=float64)" in said
    assert "\n(Pdb) True" in said
    assert "RESULT [1. 1. 1.]" in said


@pytest.mark.slow
def test_breakpoint_and_set_trace_stop_only_where_they_should(tmp_path):
    script = SCRIPT.replace("    return total, total", "    {stop}\n    return total, total")
    for stop in ("breakpoint()", "import pdb; pdb.set_trace()"):
        file = tmp_path / "model.py"
        file.write_text(script.format(stop=stop, choice=", iterations=[5, 6]", **SIMPLE))
        done = subprocess.run(
            [sys.executable, str(file)], input="p x\nc\np x\nc\n", capture_output=True, text=True,
            timeout=120, env={**os.environ, "PYTHONPATH": os.getcwd()},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "Array(5., dtype=float64)" in done.stdout
        assert "Array(6., dtype=float64)" in done.stdout
        assert done.stdout.count("(Pdb)") == 4
        assert "RESULT" in done.stdout


def test_pdb_stops_in_members_that_wait_for_each_other(tmp_path):
    script = """
import numpy as np, fnx
from fnx import lax

def one(x):
    total = lax.psum(x, "i")
    return x / total

print("RESULT", fnx.debug.explore(fnx.jit(fnx.vmap(one, axis_name="i")), np.arange(4.0), members=[1, 3]))
"""
    said = pdb(tmp_path, ["b 7", "c", "p x, total", "c", "p x, total", "c"], script=script)
    assert "(Array(1., dtype=float64), Array(6., dtype=float64))" in said
    assert "(Array(3., dtype=float64), Array(6., dtype=float64))" in said
    assert "RESULT [0." in said
    assert said.count("model.py(7)one()") == 2


def test_leaving_pdb_ends_what_is_explored(tmp_path):
    said = pdb(tmp_path, ["b 7", "c"], **SIMPLE)
    assert "RESULT" not in said


# --- functions that ask for numbers ----------------------------------------------------------------


def test_iterations_that_nobody_looks_at_may_ask_for_numbers():
    seen = []

    def step(x, _):
        if x > 0.1:  # a truth of which nothing is known while it is traced
            seen.append(float(x))
        return x / 2, None

    f = fnx.jit(lambda x: lax.scan(step, x, None, length=8)[0])
    assert fnx.debug.explore(f, 8.0, iterations=[2, 3]) == 8.0 / 256
    assert seen == [8.0, 4.0, 2.0, 1.0, 0.5, 0.25, 0.125]
    g = fnx.jit(lambda x: lax.while_loop(lambda x: x > 0.1, lambda x: step(x, 0)[0], x))
    assert fnx.debug.explore(g, 8.0, iterations=2) == 0.0625


def test_members_that_nobody_looks_at_may_ask_for_numbers():
    def halved(x):
        return x / 2 if x > 1 else x

    f = fnx.jit(fnx.vmap(halved))
    for members in (None, 1, [0, 2], []):
        found = fnx.debug.explore(f, np.array([4.0, 1.0, 3.0]), members=members)
        np.testing.assert_array_equal(found, [2.0, 1.0, 1.5])


def test_debuggers_stop_where_people_look_though_all_asks_for_numbers(monkeypatch):
    stops = []
    monkeypatch.setattr("sys.breakpointhook", lambda: stops.append(at[-1]))
    at = []

    def step(x, k):
        at.append(int(k))
        breakpoint()
        return x + k, None

    f = fnx.jit(lambda x: lax.scan(step, x, np.arange(6))[0])
    assert fnx.debug.explore(f, 0, iterations=[1, 4]) == 15
    assert stops == [1, 4]
