"""Mutable references: eagerly, in jit, in loops and branches, under derivatives and lanes."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

RUN = pytest.mark.parametrize("run", [lambda f: f, fnx.jit], ids=["eager", "jit"])


@RUN
def test_a_reference_is_read_and_written_by_index(run):
    def f(x):
        ref = fnx.new_ref(jnp.zeros(3))
        ref[...] += x
        ref[0] = 5.0
        ref[1:] = ref[1:] * 10.0
        last = fnx.ref.swap(ref, 2, -1.0)
        fnx.ref.addupdate(ref, 0, 0.5)
        return ref[...], last, fnx.freeze(ref)

    whole, last, frozen = run(f)(2.0)
    np.testing.assert_array_equal(whole, [5.5, 20.0, -1.0])
    np.testing.assert_array_equal(frozen, whole)
    assert float(last) == 20.0


def test_jit_writes_to_references_that_it_gets_or_uses():
    total = fnx.new_ref(0.0)
    calls = []

    @fnx.jit
    def add(ref, x):
        calls.append(1)
        ref[...] += x
        total[...] += ref[...].sum()
        return ref[0]

    a, b = fnx.new_ref(jnp.zeros(2)), fnx.new_ref(jnp.ones(2))
    assert float(add(a, 1.0)) == 1.0
    traced = len(calls)
    assert [float(add(a, 2.0)), float(add(b, 1.0))] == [3.0, 2.0]
    assert len(calls) == traced  # another reference of the same type is no new program
    np.testing.assert_array_equal(a[...], [3.0, 3.0])
    np.testing.assert_array_equal(b[...], [2.0, 2.0])
    assert float(total[...]) == 2.0 + 6.0 + 4.0
    total[...] = 100.0
    add(b, 0.0)
    assert float(total[...]) == 104.0


@RUN
def test_loops_and_branches_carry_references(run):
    def f(n):
        rows, total = fnx.new_ref(jnp.zeros(5)), fnx.new_ref(0.0)

        @fnx.jit
        def note(i, x):
            rows[i] = x
            total[...] += x

        def body(c, i):
            note(i, c)
            lax.cond(i > 2, lambda: rows.__setitem__(i, -c), lambda: None)
            return c + 1.0, rows[i]

        last, ys = lax.scan(body, 10.0, jnp.arange(5))
        after_scan = rows[...]
        lax.fori_loop(0, n, lambda i, _: rows.__setitem__(i, 2.0 * i), None)
        after_fori = rows[...]

        def step(c):
            total[...] += 1.5
            return c + 1

        count = lax.while_loop(lambda c: total[...] < 65.0, step, 0)
        lax.switch(n - 2, [lambda: None, lambda: total.__setitem__(..., 0.0)])
        return last, ys, after_scan, after_fori, count, total[...]

    last, ys, after_scan, after_fori, count, total = run(f)(3)
    assert float(last) == 15.0
    np.testing.assert_array_equal(after_scan, [10.0, 11.0, 12.0, -13.0, -14.0])
    np.testing.assert_array_equal(ys, after_scan)
    np.testing.assert_array_equal(after_fori, [0.0, 2.0, 4.0, -13.0, -14.0])
    assert int(count) == 4  # from 60
    assert float(total) == 0.0


@RUN
def test_functions_that_use_references_inside_are_differentiated_and_mapped(run):
    def f(x):
        ref = fnx.new_ref(jnp.zeros(3))

        def body(c, i):
            ref[i] = x * i
            return c + ref[i] ** 2, None

        return lax.scan(body, 0.0, jnp.arange(3.0).astype(int))[0] + ref[...].sum()

    assert float(run(f)(2.0)) == 26.0  # 5 x**2 + 3 x
    assert float(run(fnx.grad(f))(2.0)) == 23.0
    assert float(run(fnx.grad(fnx.checkpoint(f)))(2.0)) == 23.0
    assert float(run(lambda x: fnx.jvp(f, (x,), (1.0,))[1])(2.0)) == 23.0
    np.testing.assert_array_equal(run(fnx.vmap(f))(jnp.arange(3.0)), [0.0, 8.0, 26.0])


def test_mistakes_with_references_are_named():
    ref = fnx.new_ref(jnp.zeros(2, "float32"))
    with pytest.raises(ValueError, match="float64"):
        ref[0] = np.float64(1.0)
    for kind in (TypeError, ValueError):  # JAX raises this one or that one
        with pytest.raises(kind, match="a Ref is no array"):
            jnp.sin(ref)
    with pytest.raises(ValueError, match="made outside it"):
        fnx.linear_transpose(lambda x: ref[0] * x, 1.0)
    np.testing.assert_array_equal(fnx.freeze(ref), [0.0, 0.0])
    with pytest.raises(ValueError, match="frozen"):
        ref[0]
    assert fnx.empty_ref(fnx.ShapeDtypeStruct((2,), "int32"))[...].dtype == np.int32


@pytest.mark.parametrize("how", ["jit", "scan", "cond", "while_loop"])
def test_a_reference_that_something_within_cannot_hand_on(how):
    ref = fnx.new_ref(jnp.zeros(()))

    def add(x):
        ref[...] = ref[...] + x
        return jnp.sin(x)

    calls = {
        "jit": fnx.jit,
        "scan": lambda f: lambda x: lax.scan(lambda c, y: (f(c), y), x, jnp.ones(2)),
        "cond": lambda f: fnx.jit(lambda x: lax.cond(x > 0, f, jnp.cos, x)),
        "while_loop": lambda f: lambda x: lax.while_loop(lambda c: c > 0.9, f, x),
    }
    with_rule = fnx.custom_jvp(add)
    with_rule.defjvp(lambda xs, ts: (add(*xs), ts[0]))
    with pytest.raises(ValueError, match="the custom_jvp function uses 1 mutable references"):
        calls[how](with_rule)(2.0)
    calls[how](fnx.checkpoint(add))(2.0)  # which does hand it on
    np.testing.assert_allclose(ref[...], 2.0 + np.sin(2.0) * (how in ("scan", "while_loop")))


def test_values_of_a_transformation_do_not_leave_it_by_a_reference():
    ref = fnx.new_ref(0.0)

    def keep(x):
        ref[...] = x
        return x * x

    for call in (
        lambda: fnx.grad(keep)(1.0),
        lambda: fnx.jvp(keep, (1.0,), (1.0,)),
        lambda: fnx.vmap(keep)(jnp.ones(3)),
        lambda: fnx.jit(fnx.grad(keep))(1.0),
        lambda: fnx.vmap(fnx.grad(keep))(jnp.ones(3)),
    ):
        with pytest.raises(ValueError, match="made outside of it"):
            call()
        assert float(ref[...]) == 0.0

    def log(x):
        ref[...] = fnx.lax.stop_gradient(x)
        return x * x

    assert float(fnx.grad(log)(3.0)) == 6.0
    assert float(ref[...]) == 3.0
    assert float(fnx.jit(fnx.grad(log))(4.0)) == 8.0
    assert float(ref[...]) == 4.0


def test_references_made_inside_have_derivatives():
    def f(x):
        ref = fnx.new_ref(jnp.zeros(()))
        ref[...] = x * x

        def add(i, carry):
            ref[...] = ref[...] + x
            return carry

        fnx.lax.fori_loop(0, 3, add, 0)
        return ref[...]

    for wrap in (lambda g: g, fnx.jit):
        assert float(wrap(fnx.grad(f))(2.0)) == 7.0
        assert float(wrap(fnx.hessian(f))(2.0)) == 2.0
        np.testing.assert_array_equal(wrap(fnx.vmap(fnx.grad(f)))(jnp.arange(3.0)), [3, 5, 7])


def test_parts_of_references():
    ref = fnx.new_ref(jnp.zeros(5))
    part = ref.at[1:4]
    part[0] = 3.0
    part.at[1:][1] += 2.0
    np.testing.assert_array_equal(ref[...], [0, 3, 0, 2, 0])
    assert (part.shape, part.dtype, part.ndim) == ((3,), np.float64, 1)

    @fnx.jit
    def add(x):
        part.set(part.get() + x)
        return part[0]

    assert float(add(1.0)) == 4.0
    np.testing.assert_array_equal(ref[...], [0, 4, 1, 3, 0])
    fnx.free_ref(ref)
    with pytest.raises(ValueError, match="frozen"):
        part[0]


def test_the_type_of_a_ref_is_that_of_its_array():
    ref = fnx.new_ref(jnp.zeros((2, 3), "float32"))
    kind = fnx.typeof(ref)
    assert isinstance(kind, fnx.ref.AbstractRef)
    assert not isinstance(ref, fnx.ref.AbstractRef)
    assert (kind.shape, kind.dtype, kind.ndim, kind.size) == ((2, 3), np.float32, 2, 6)
    assert kind.inner_aval == fnx.typeof(ref[...])
    assert (repr(kind), kind.str_short()) == ("Ref{float32[2,3]}", "Ref{f32[2,3]}")
    assert kind == fnx.typeof(fnx.new_ref(jnp.ones((2, 3), "float32")))


def test_the_type_of_keys():
    keys = fnx.random.split(fnx.random.key(0), 3)
    kind = fnx.typeof(keys)
    assert (kind.shape, kind.dtype, kind.ndim, kind.size) == ((3,), keys.dtype, 1, 3)
    assert str(kind) == "key<fry>[3]"
