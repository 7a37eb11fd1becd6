"""Mutable references as arguments: of vmap, scans, branches and jit, rules of users, jaxprs."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.jaxpr import eval_jaxpr


def test_vmap_reads_and_writes_lanes_of_refs():
    ref, other = fnx.new_ref(jnp.zeros((3, 2))), fnx.new_ref(jnp.arange(4.0))

    def f(r, shared, x, *, more):
        r[0] = x + shared[1]
        r[1] += more[...]
        return r[...].sum()

    more = fnx.new_ref(jnp.arange(3.0) * 10)
    out = fnx.vmap(f, in_axes=(0, None, 0))(ref, other, jnp.arange(3.0), more=more)
    np.testing.assert_array_equal(ref[...], [[1, 0], [2, 10], [3, 20]])
    np.testing.assert_array_equal(out, [1, 12, 23])
    np.testing.assert_array_equal(other[...], np.arange(4.0))


@pytest.mark.parametrize("axis", [1, -1])
def test_vmap_over_other_axes_of_refs(axis):
    def f(r, y):
        r[...] = r[...] * y

    for jit in (lambda g: g, fnx.jit):
        ref = fnx.new_ref(jnp.ones((2, 3)))
        assert jit(fnx.vmap(f, in_axes=(axis, 0)))(ref, jnp.arange(3.0)) is None
        np.testing.assert_array_equal(ref[...], np.ones((2, 3)) * np.arange(3.0))


def test_vmap_of_refs_does_not_write_what_differs_between_lanes_into_one():
    shared = fnx.new_ref(0.0)

    def f(r, x):
        r[...] += x

    with pytest.raises(ValueError, match="differs between batch elements"):
        fnx.vmap(f, in_axes=(None, 0))(shared, jnp.arange(3.0))
    assert float(shared[...]) == 0.0


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("jit", [lambda f: f, fnx.jit])
def test_scans_read_and_write_rows_of_refs(jit, reverse):
    rows, xs = jnp.arange(6.0).reshape(3, 2), jnp.arange(3.0)

    def body(total, x):
        row, y = x
        before = row[...]
        row[...] = before * total
        return total + y, before[1]

    def by_hand(total, x):
        row, y = x
        return total + y, (row * total, row[1])

    ref = fnx.new_ref(rows)
    last, out = jit(lambda r, xs: lax.scan(body, 1.0, (r, xs), reverse=reverse))(ref, xs)
    wanted, (ends, ys) = lax.scan(by_hand, 1.0, (rows, xs), reverse=reverse)
    np.testing.assert_array_equal(ref[...], ends)
    np.testing.assert_array_equal(out, ys)
    assert float(last) == float(wanted)


def test_derivatives_through_scans_of_refs():
    def f(x):
        ref = fnx.new_ref(x)

        def body(total, row):
            row[...] = jnp.sin(row[...]) * total
            return total + row[...], None

        total, _ = lax.scan(body, 1.0, ref)
        return total + jnp.sum(fnx.freeze(ref))

    fnx.test_util.check_grads(f, (jnp.array([0.3, 0.5, 0.7]),), 2)


def test_lengths_of_refs_that_are_scanned_must_agree():
    ref = fnx.new_ref(jnp.zeros(3))
    with pytest.raises(ValueError, match="length"):
        lax.scan(lambda c, x: (c, None), 0.0, (ref, jnp.zeros(2)))
    with pytest.raises(ValueError, match="length"):
        lax.scan(lambda c, x: (c, None), 0.0, ref, length=2)


@pytest.mark.parametrize("jit", [lambda f: f, fnx.jit])
def test_branches_get_refs(jit):
    def f(p, ref, x):
        def double(r, x):
            r[...] *= 2 * x

        lax.cond(p, double, lambda r, x: None, ref, x)
        return lax.switch(p.astype(int), [lambda r: r[0], lambda r: r[1]], ref)

    for p in (True, False):
        ref = fnx.new_ref(jnp.array([1.0, 2.0]))
        out = jit(f)(jnp.asarray(p), ref, 3.0)
        np.testing.assert_array_equal(ref[...], np.array([1.0, 2.0]) * (6 if p else 1))
        assert float(out) == (12.0 if p else 1.0)


CALLS = {
    "jit": lambda f, r: fnx.jit(f)(r, r),
    "vmap": lambda f, r: fnx.vmap(f)(r, r),
    "scan": lambda f, r: lax.scan(lambda c, x: (c, f(*x)), 0.0, (r, r)),
    "cond": lambda f, r: lax.cond(jnp.asarray(True), f, f, r, r),
    "a closure": lambda f, r: fnx.jit(lambda x: f(x, r))(r),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_ref_has_one_name_in_a_function(what):
    """Two would each be read and written by themselves."""

    def f(a, b):
        a[...] += 1.0
        b[...] += 1.0

    ref = fnx.new_ref(jnp.zeros(2))
    with pytest.raises(ValueError, match="twice"):
        CALLS[what](f, ref)


# --- derivatives and jaxprs ----------------------------------------------------------------------


def stashing():
    """A function whose derivative is written to a Ref when it is made."""

    @fnx.custom_vjp
    def stash(ref, x):
        return x

    def backward(ref, ct):
        ref[...] = ct
        return None, ct

    stash.defvjp(lambda ref, x: (x, ref), backward)
    return lambda ref, x: jnp.sin(stash(ref, jnp.sin(x)))


@pytest.mark.parametrize("jit", [lambda f: f, fnx.jit])
def test_rules_of_users_get_refs(jit):
    ref, f = fnx.new_ref(0.0), stashing()
    slope = jit(fnx.grad(f, 1))(ref, 1.0)
    np.testing.assert_allclose(ref[...], np.cos(np.sin(1.0)))
    np.testing.assert_allclose(slope, np.cos(np.sin(1.0)) * np.cos(1.0))
    with pytest.raises(ValueError, match="mutable references"):  # not: as if nothing was written
        fnx.grad(fnx.jit(f), 1)(ref, 1.0)

    @fnx.custom_vjp
    def read(ref):
        return ref[...]

    read.defvjp(lambda ref: (read(ref), None), lambda _, ct: (ct,))
    assert float(read(fnx.new_ref(3.0))) == 3.0
    assert float(fnx.vjp(lambda x: read(fnx.new_ref(x)), 3.0)[1](1.0)[0]) == 1.0
    with pytest.raises(ValueError, match="mutable references"):
        fnx.jit(read)(fnx.new_ref(3.0))
    two = fnx.custom_vjp(lambda a, b: a[...] + b[...])
    two.defvjp(lambda a, b: (two(a, b), None), lambda _, ct: (ct, ct))
    with pytest.raises(ValueError, match="twice"):
        two(ref, ref)


@pytest.mark.parametrize("jit", [lambda f: f, fnx.jit])
def test_checkpointed_functions_get_and_use_refs(jit):
    ref = fnx.new_ref(1.0)

    @fnx.checkpoint
    def from_outside(y):
        out = y * ref[...]
        ref[...] += 1
        return out

    assert [float(fnx.grad(jit(from_outside))(2.0)) for _ in range(2)] == [1.0, 2.0]
    assert (float(jit(from_outside)(2.0)), float(ref[...])) == (6.0, 4.0)

    @fnx.checkpoint
    def given(y, ref):
        ref[...] += y * y
        return y * y

    with pytest.raises(ValueError, match="a value of grad"):
        fnx.grad(jit(given))(2.0, fnx.new_ref(1.0))
    ref = fnx.new_ref(1.0, kind="no_grad_no_remat")
    assert (float(fnx.grad(jit(given))(2.0, ref)), float(ref[...])) == (4.0, 5.0)
    constant = jit(lambda y, ref: (given(y, ref), ref[...])[1])
    assert (float(fnx.grad(constant)(2.0, ref)), float(ref[...])) == (0.0, 9.0)
    with pytest.raises(ValueError, match="of kind 'other'"):
        fnx.new_ref(1.0, kind="other")


def test_jaxprs_have_arrays_for_refs():
    ref = fnx.new_ref(jnp.zeros(3))

    def f(r, x):
        r[0] += x
        return r[0]

    jaxpr, shape = fnx.make_jaxpr(f, return_shape=True)(ref, 2.0)
    assert (shape.shape, len(jaxpr.jaxpr.invars), len(jaxpr.jaxpr.outvars)) == ((), 2, 2)
    out, end = eval_jaxpr(jaxpr.jaxpr, [jnp.ones(3), jnp.asarray(2.0)])
    assert (float(out), end.tolist()) == (3.0, [3.0, 1.0, 1.0])
    for call in (f, fnx.jit(f)):
        closed = fnx.make_jaxpr(lambda x, call=call: call(ref, x))(2.0)
        assert [c.tolist() for c in closed.consts] == [[0.0, 0.0, 0.0]]
        assert fnx.eval_shape(lambda x, call=call: call(ref, x), 2.0).shape == ()
    assert ref[...].tolist() == [0.0, 0.0, 0.0]


def test_cotangents_are_added_to_refs():
    total, last = fnx.new_ref(jnp.zeros(3)), fnx.new_ref(0.0)
    _, pull = fnx.vjp(
        lambda x, d: jnp.sum(x * x) * d["a"] * d["b"], jnp.arange(3.0), {"a": 2.0, "b": 3.0}
    )
    found = pull.with_refs(total, {"a": last, "b": None})
    for _ in range(2):
        assert found(1.0)[0] == fnx.ad.GradRef()
    assert total[...].tolist() == [0.0, 24.0, 48.0]
    again = fnx.jit(lambda: pull.with_refs(total, {"a": last, "b": fnx.ad.GradValue()})(1.0))()
    assert (float(last[...]), again[1]["a"], float(again[1]["b"])) == (45.0, fnx.ad.GradRef(), 10.0)
    assert pull.with_refs(fnx.ad.DontWant(), fnx.ad.DontWant())(1.0) == (fnx.ad.DidntWant(),) * 2

    def sum_of_slopes(x):
        total = fnx.new_ref(jnp.zeros(3))

        def one(_, k):
            fnx.vjp(lambda x: jnp.sum(k * x**2), x)[1].with_refs(total)(1.0)
            return _, None

        lax.scan(one, None, jnp.arange(3.0))
        return fnx.freeze(total)

    np.testing.assert_allclose(fnx.jit(sum_of_slopes)(jnp.ones(3)), 6 * np.ones(3))


def test_methods_of_refs_take_places():
    ref = fnx.new_ref(jnp.zeros(3))
    ref.addupdate(1.0)
    ref.addupdate(2.0, 1)
    ref.set(7.0, slice(2, None))
    assert (float(ref.swap(5.0, 0)), float(ref.get(1)), ref.get().tolist()) == (
        1.0,
        3.0,
        [5.0, 3.0, 7.0],
    )
    total = fnx.new_ref(jnp.zeros((2, 2)))
    fnx.vmap(lambda r, x: r.addupdate(x))(total, jnp.arange(2.0))
    assert total[...].tolist() == [[0.0, 0.0], [1.0, 1.0]]


def _tenfold(part):
    part[1:3] = part[1:3] * 10
    return part[...].sum()


GIVEN_TO = {
    "jit": fnx.jit,
    "checkpoint": fnx.checkpoint,
    "cond": lambda f: lambda part: lax.cond(jnp.array(True), f, f, part),
    "jit of switch": lambda f: fnx.jit(lambda part: lax.switch(1, [f, f], part)),
}


@pytest.mark.parametrize("name", GIVEN_TO)
def test_parts_of_references_are_arguments(name):
    ref = fnx.new_ref(jnp.arange(12.0).reshape(3, 4))
    assert float(GIVEN_TO[name](_tenfold)(ref.at[1:].at[0])) == 4 + 50 + 60 + 7
    assert ref[...].tolist() == [[0, 1, 2, 3], [4, 50, 60, 7], [8, 9, 10, 11]]


def test_parts_that_arrays_name_are_arguments():
    ref = fnx.new_ref(jnp.zeros((3, 4)))
    traced = []

    @fnx.jit
    def add(part):
        traced.append(part.shape)
        part[...] += 1.0

    add(ref.at[jnp.array([0, 2])])
    add(ref.at[np.array([1, 2])])
    add(ref.at[1, ::2])
    add(ref.at[1, ::2])
    assert ref[...].tolist() == [[1, 1, 1, 1], [2 + 1, 1, 2 + 1, 1], [2, 2, 2, 2]]
    assert traced == [(2, 4), (2,)]


@pytest.mark.parametrize(
    "over", [fnx.vmap, lambda f: lambda p: lax.scan(lambda c, p: f(p), 0.0, p)]
)
def test_what_goes_along_axes_takes_no_part_of_a_reference(over):
    ref = fnx.new_ref(jnp.zeros((3, 4)))
    with pytest.raises(TypeError, match="a part of a mutable reference"):
        over(lambda part: (part[0], part[0]))(ref.at[1:])
