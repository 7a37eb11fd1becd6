"""Programs are built in time proportional to their size: what is shared is walked once."""

import itertools
import re
import sys

import numpy as np
import pytest
from kernels import count, program

import fnx
import fnx.numpy as jnp
from fnx.lowering import pipeline as lowering_program
from fnx.lowering.cpu.target import CpuTarget
from fnx.lowering.generate import storage
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Buffer, Nest


def chain_of_products(length):
    def f(m):
        for k in range(length):
            m = jnp.tanh(m @ m.T + 0.1 * k)
        return m

    return f, np.linspace(-1.0, 1.0, 16).reshape(4, 4)


def test_products_of_small_matrices_are_unrolled_up_to_a_limit_and_functions_beyond():
    f, m = chain_of_products(3)
    assert count(program(f, m), Nest) == 0
    f, m = chain_of_products(60)
    lowered = fnx.jit(f).lower(m)
    assert 30 < count(lowered.program.compiled().program, Nest) < 60
    text = lowered.as_text("llvm")
    assert text.count("dot_general") == 0
    assert text.count("define internal void @k") < 6  # equal kernels share a function
    with fnx.disable_jit():
        expected = np.asarray(f(jnp.asarray(m)))
    np.testing.assert_allclose(fnx.jit(f)(m), expected, rtol=1e-9, atol=1e-12)


def test_what_expressions_read_is_found_once():
    from fnx.core import scalar
    from fnx.lowering.ir.expressions import buffers_read

    one, two = (Buffer(name, "float64", 4, "global", 0) for name in "ab")
    e = scalar.load(one, scalar.size(1), "float64")
    for _ in range(50):
        e = scalar.add(scalar.apply("mul", e, e), e)
    assert buffers_read([e]) == {one} == e.reads == e.args[0].reads
    other = scalar.add(e, scalar.load(two, scalar.size(0), "float64"))
    assert other.reads is None
    assert buffers_read([other, e]) == {one, two} == other.reads
    assert e.reads == {one}
    assert buffers_read([]) == buffers_read([scalar.size(1)]) == set()


def test_what_is_shared_in_indices_and_choices_is_walked_once():
    """Expressions whose parts are used twice at each of many steps: walked as trees, without end."""

    def doubled(i, x):
        for _ in range(70):
            i = i + i
        return x[i % 11] + x[(i ^ (i >> 3)) % 11]

    def mixed(x):
        for k in range(40):
            x = jnp.where(x > 0.1 * k, x * x, x + x)
        return x * jnp.where(jnp.arange(8) > x, 2.0, x)

    x = np.linspace(0.0, 1.0, 11)
    i = np.arange(300)
    np.testing.assert_array_equal(fnx.jit(doubled)(i, x), doubled(jnp.asarray(i), jnp.asarray(x)))
    rows = np.linspace(0.0, 0.5, 600 * 8).reshape(600, 8)
    np.testing.assert_allclose(fnx.jit(mixed)(rows), mixed(jnp.asarray(rows)), rtol=1e-12)


def test_a_scope_forgets_whom_nobody_reads_any_more():
    """Or each update in place would look at every value there has ever been."""
    scope = storage.Scope()
    values = [Value((100,), "float64") for _ in range(4)]
    for last_use, value in zip((0, 1, 2, 2), values, strict=True):
        value.last_use = last_use
        scope.add(object(), value)
    assert scope.waiting() == values
    scope.position = 1
    assert scope.waiting() == values[1:]
    scope.position = 2
    assert scope.waiting() == values[2:]


def chain(n):
    def f(x):
        for k in range(n):
            x = x * x - 0.1 * k
        return x

    return f


def updates_and_readers(n):
    def f(x):
        total = 0.0
        for k in range(n):
            x = x.at[k].add(0.1 * x[k + 1])
            total = total + x[k]
        return x, total

    return f


@pytest.mark.parametrize(
    ("program", "size", "n", "most"), [(chain, 500, 200, 2.5), (updates_and_readers, 500, 50, 4.5)]
)
def test_building_a_program_twice_as_long_takes_no_more_than_its_share(program, size, n, most):
    """Of calls of functions; who reads what is updated may be looked for at each update."""

    def calls(n):
        jaxpr = fnx.jit(program(n)).lower(np.ones(size)).program.jaxpr
        count = itertools.count()
        sys.setprofile(lambda *_: next(count))
        try:
            lowering_program.build(jaxpr, (), CpuTarget())
        finally:
            sys.setprofile(None)
        return next(count)

    calls(10)
    assert calls(2 * n) < most * calls(n)


def test_few_random_blocks_are_calls_of_one_function_and_loops_contain_its_operations():
    def f(key):
        keys = fnx.random.split(key, 3)
        return [fnx.random.uniform(k) for k in keys], fnx.random.normal(keys[0], (1000,))

    text = fnx.jit(f).lower(fnx.random.key(0)).as_text("llvm")
    assert len(re.findall(r"^define .*@fnx\.threefry", text, re.MULTILINE)) == 1
    assert text.count(" call preserve_allcc i64 @fnx.threefry") == 6
    assert (
        0 < text.count(" xor i32") < 100
    )  # twice: in that function, and in the loop over elements
    found, expected = fnx.jit(f)(fnx.random.key(1)), f(fnx.random.key(1))
    for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)
