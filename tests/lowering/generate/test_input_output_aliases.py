"""Donated arguments: results take over their memory, and nobody else sees that."""

import copy
import warnings

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

equal = np.testing.assert_array_equal


def address(x):
    return x.unsafe_buffer_pointer()


def test_a_result_takes_the_memory_of_a_donated_argument():
    f = fnx.jit(lambda x, y: (y * 3.0, 2.0 * x + y), donate_argnums=0)
    y = jnp.ones(100)
    for _ in range(3):  # the first call compiles
        x = jnp.arange(100.0)
        where = address(x)
        other, out = f(x, y)
        equal(out, 2.0 * np.arange(100.0) + 1.0)
        equal(other, np.full(100, 3.0))
        assert address(out) == where
        assert x.is_deleted()
        assert not y.is_deleted()
    lowered = f.lower(out, y).compile()
    assert lowered.memory_analysis().alias_size_in_bytes == 800
    assert "donated: result 1 is left in argument 0" in lowered.report()
    out, y = f(out, y)[::-1]  # seen by NumPy above: a copy is donated
    assert (x.shape, x.dtype, repr(x)[:15]) == ((100,), np.dtype(float), "Array(<deleted>")
    reads = (np.asarray, lambda x: x + 1.0, lambda x: x[0], lambda x: x.tolist(), len, jnp.sin)
    for read in (*reads, lambda x: f(x, y), lambda x: f(y, x), fnx.jit(jnp.sum), fnx.grad(jnp.sum)):
        with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=\(100,\)"):
            read(x)


def test_donated_memory_that_somebody_else_holds_is_copied():
    f = fnx.jit(lambda x: x + 1.0, donate_argnums=0)
    x = f(jnp.arange(50.0))
    view = np.asarray(x)
    equal(f(x), np.arange(50.0) + 2.0)
    assert not x.is_deleted()
    equal(view, np.arange(50.0) + 1.0)
    x = jnp.arange(50.0) + 1.0
    part = np.asarray(x)[3:5]
    f(x)
    equal(part, [4.0, 5.0])
    other = np.from_dlpack(x := jnp.arange(50.0) + 1.0)
    f(x)
    equal(other, np.arange(50.0) + 1.0)
    mine = np.arange(50.0)
    equal(f(mine), mine + 1.0)
    equal(mine, np.arange(50.0))
    x = jnp.arange(50.0) + 1.0
    twice = fnx.jit(lambda a, b: (a + b, a - b), donate_argnums=(0, 1))
    equal(twice(x, x)[1], np.zeros(50))
    assert not x.is_deleted()
    big = jnp.zeros((1000, 100)) + 1.0
    rows = big.reshape(100, 1000)  # may share its memory
    out = fnx.jit(lambda x: x * 2.0, donate_argnums=0)(big)
    equal(rows, np.ones((100, 1000)))
    equal(out, np.full((1000, 100), 2.0))


def test_donation_through_updates_loops_and_trees():
    def step(state, dt):
        drift = fnx.tree.map(lambda a: a - dt * a, state["p"])
        counts = lax.fori_loop(0, 5, lambda i, c: c.at[i].add(1.0), state["n"])
        return {"p": drift, "n": counts, "k": state["k"] + 1, "same": state["same"]}

    f = fnx.jit(step, donate_argnames="state")
    make = lambda: {
        "p": [jnp.ones((30, 3)), jnp.ones(90)],
        "n": jnp.zeros(40),
        "k": jnp.array(0),
        "same": jnp.arange(60.0),
    }
    expected, state = step(make(), 0.1), make()
    where = fnx.tree.map(address, state)
    found = f(state, 0.1)
    fnx.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), found, expected)
    gone = fnx.tree.map(lambda x: x.is_deleted(), state)
    assert gone == {"p": [True, True], "n": True, "k": True, "same": True}
    same = fnx.tree.map(lambda a, b: a == address(b), where, found)
    assert same == gone
    f(found, 0.1)  # and by the short way


def test_an_argument_that_is_needed_to_the_end_is_not_overwritten():
    f = fnx.jit(lambda x, y: (jnp.flip(x) * y, x - y), donate_argnums=(0, 1))
    x, y = np.arange(64.0), np.arange(64.0) ** 2
    for _ in range(2):
        a, b = f(jnp.asarray(x), jnp.asarray(y))
        equal(a, x[::-1] * y)
        equal(b, x - y)
    g = fnx.jit(lambda x: (x @ x, x.T + x), donate_argnums=0)
    m = np.arange(400.0).reshape(20, 20)
    a, b = g(jnp.asarray(m))
    np.testing.assert_allclose(a, m @ m)
    equal(b, m.T + m)


def test_donation_with_static_arguments_and_names():
    def f(n, x, y, *, z):
        return x * n, y + z

    g = fnx.jit(f, static_argnums=0, donate_argnums=(1, 2))
    x, y, z = jnp.ones(40), jnp.ones(40), jnp.ones(40)
    equal(g(2, x, y=y, z=z)[0], np.full(40, 2.0))
    assert [a.is_deleted() for a in (x, y, z)] == [True, True, False]
    with pytest.raises(ValueError, match="donate_argnames"):
        fnx.jit(f, donate_argnames="w")
    x = jnp.ones(40)
    nested = fnx.jit(lambda x: fnx.jit(lambda a: a + 1.0, donate_argnums=0)(x) + x)
    equal(nested(x), np.full(40, 3.0))
    assert not x.is_deleted()


def test_numbers_that_were_made_alike_are_donated_one_by_one():
    """Who saw the one (NumPy holds it) does not keep the other."""
    for make in (lambda: jnp.zeros(()), lambda: jnp.ones(()), lambda: jnp.full((), 2.0)):
        seen, x = make(), make()
        view = np.asarray(seen)
        equal(fnx.jit(lambda x: x + 1.0, donate_argnums=0)(x), view + 1.0)
        assert [x.is_deleted(), seen.is_deleted()] == [True, False]


ZEROS = ((3,), (3,))
DONATIONS = {  # as in JAX: function, shapes of arguments, which are gone, what the warning names
    "unread": (lambda x, y: x + 1, ZEROS, [True, False], None),
    "no result like it": (lambda x, y: x + y[0], ((), (3,)), [True, False], "3"),
    "two for one": (lambda x, y: x + y, ZEROS, [True, False], "3"),
    "handed on": (lambda x, y: (x, y + 1), ZEROS, [True, True], None),
    "another shape": (lambda x: x.reshape(2, 2), ((4,),), [True], None),
    "another dtype": (lambda x: x.astype(jnp.float32), ((3,),), [False], None),
    "weak": (lambda x: x * 2, ((),), [True], None),
}


@pytest.mark.parametrize("case", DONATIONS)
def test_donated_arrays_are_deleted_where_a_result_may_replace_them(case):
    f, shapes, gone, named = DONATIONS[case]
    args = [jnp.zeros(shape) for shape in shapes]  # that nobody saw
    if case == "weak":
        args = [jnp.array(1.0)]
    jitted = fnx.jit(f, donate_argnums=tuple(range(len(args))))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        jitted(*args)
    assert [x.is_deleted() for x in args] == gone
    expected = f"Some donated buffers were not usable: f64[{named}]"
    assert [str(w.message)[: len(expected)] for w in said] == [expected] * (named is not None)
    if True in gone:
        with pytest.raises(RuntimeError, match="deleted"):
            jitted(*args)


def test_delete():
    x = jnp.ones(3)
    assert not x.is_deleted()
    x.delete()
    x.delete()
    assert x.is_deleted()
    with pytest.raises(RuntimeError, match="deleted"):
        x + 1.0


def test_views_of_numpy_outlive_the_deletion_of_an_array():
    x = jnp.arange(50.0)
    view = np.asarray(x)
    x.delete()
    others = [np.ones(50) for _ in range(50)]  # one of which would lie in the memory of x
    equal(view, np.arange(50.0))
    assert len(others) == 50


COPIES = {
    "method": lambda x: x.copy(),
    "array": jnp.array,
    "jnp.copy": jnp.copy,
    "astype": lambda x: x.astype(float, copy=True),
    "copy": copy.copy,
    "deepcopy": lambda x: copy.deepcopy({"x": x})["x"],
    "device_put": fnx.device_put,
}


@pytest.mark.parametrize("how", COPIES)
def test_copies_outlive_what_they_were_made_of(how):
    x = jnp.ones(100)
    kept = COPIES[how](x)
    fnx.jit(lambda a: a + 1.0, donate_argnums=0)(x)
    equal(kept, np.ones(100))
    x.delete()
    equal(kept, np.ones(100))
    with pytest.raises(RuntimeError, match="deleted"):
        COPIES[how](x)


def test_small_results_take_over_the_memory_of_donated_scalars():
    x, y = jnp.array(1.0), jnp.arange(3)
    where = address(x), address(y)
    f = fnx.jit(lambda x, y: (y + 1, x + 1.0, x), donate_argnums=(0, 1))
    a, b, c = f(x, y)
    assert address(a) == where[1]
    assert x.is_deleted()
    assert ([*a], float(b), float(c)) == ([1, 2, 3], 2.0, 1.0)
    kept = jnp.array(5.0)
    shown = np.asarray(kept)  # that memory is not written to
    assert float(fnx.jit(lambda x: x + 1.0, donate_argnums=0)(kept)) == 6.0
    assert float(shown) == 5.0
