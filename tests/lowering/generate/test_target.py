"""Programs made for a target of which nothing is known: they are valid, and compute the same."""

import numpy as np
import pytest
from kernels import native, numba

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering import pipeline
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import CallHost, CallLibrary, Loop
from fnx.lowering.portable import PortableTarget

X = np.random.default_rng(0).normal(size=(40, 48))
IMAGES = np.random.default_rng(1).normal(size=(2, 3, 12, 12))
WEIGHTS = np.random.default_rng(2).normal(size=(4, 3, 3, 3))


def steps(x):
    return lax.fori_loop(0, 5, lambda i, y: jnp.sin(y) + 0.1 * jnp.roll(y, 1), x)


def halvings(x):
    return lax.while_loop(lambda v: jnp.max(v) > 0.1, lambda v: v / 2, x)


def convolved(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "VALID")


PROGRAMS = {
    "elementwise": (lambda x: jnp.exp(x) * x + jnp.tanh(x), [X]),
    "transposed": (lambda x: x.T + jnp.ones((48, 40)), [X]),
    "softmax": (lambda x: fnx.nn.softmax(x, axis=1), [X]),
    "columns": (lambda x: jnp.mean(x, axis=0), [X]),
    "product": (lambda x: x @ x.T, [X]),
    "sorted": (lambda x: jnp.sort(x, axis=1), [X]),
    "loop": (steps, [X]),
    "while": (halvings, [X]),
    "gradient": (fnx.grad(lambda x: jnp.sum(jnp.log1p(x * x))), [X]),
    "convolution": (convolved, [IMAGES, WEIGHTS]),
    "points": (fnx.vmap(lambda x: jnp.sum(x * x) * x), [X[:, :3]]),
}


def built(f, arrays, target):
    jaxpr = fnx.make_jaxpr(f)(*arrays).jaxpr
    return pipeline.build(jaxpr, (), target)[0]


@pytest.mark.parametrize("run", [native, numba])
@pytest.mark.parametrize("name", PROGRAMS)
def test_portable_programs_compute_the_same(name, run):
    f, arrays = PROGRAMS[name]
    program = built(f, arrays, PortableTarget())
    kinds = {type(s) for s in traversal.statements(program.body)}
    assert kinds.isdisjoint((CallHost, CallLibrary)), "loops are enough for these"
    (got,) = run(program, [np.ravel(a) for a in arrays])
    np.testing.assert_allclose(got, np.ravel(f(*arrays)), rtol=1e-12, atol=1e-12)


class Scalars(PortableTarget):
    """Only scalars live in registers."""

    def is_small(self, shape):
        return shape == ()


def test_the_target_says_what_lives_in_registers():
    x = np.arange(12.0)
    f = lambda v: jnp.flip(v) * 2.0
    loops = [
        sum(isinstance(s, Loop) for s in traversal.statements(built(f, [x], t).body))
        for t in (PortableTarget(), Scalars())
    ]
    assert loops == [0, 1]
    np.testing.assert_array_equal(native(built(f, [x], Scalars()), [x])[0], x[::-1] * 2)


class NoSine(PortableTarget):
    """A target without a sine."""

    def math(self, name, dtype):
        return name != "sin"


def test_functions_that_a_target_has_not_are_computed_on_the_host():
    f = lambda v: jnp.sin(v) + jnp.cos(v)
    program = built(f, [X], NoSine())
    assert [s.name for s in traversal.statements(program.body) if isinstance(s, CallHost)] == [
        "sin"
    ]
