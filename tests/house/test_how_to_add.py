"""What docs/design.md says of adding things, done: each test follows the text of one point and runs it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import scalar
from fnx.core.array import ConcreteArray
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Literal
from fnx.core.recipe import Library, Point
from fnx.core.transport import use
from fnx.interpreters.passes import simplify
from fnx.interpreters.spmd import spmd
from fnx.lowering import portable
from fnx.lowering.cpu.routines import table
from fnx.lowering.cpu.target import CpuTarget
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop, LoopKind, Store
from fnx.lowering.routines.batched_matrices import finish, place
from fnx.ops.base.linear import Linear
from fnx.ops.elementwise import arithmetic

X = np.linspace(-2.0, 2.0, 41)


@pytest.fixture(autouse=True)
def own_programs():
    """Programs that such a pass or routine makes are not kept for others, nor taken from them."""
    with fnx.core.config.cache(False):
        fnx.clear_caches()
        yield
    fnx.clear_caches()


def agree(function, want, x=X):
    """A function of numbers, by each backend, its derivatives, and batches."""
    for backend in ("reference", "numba", "cpu"):
        np.testing.assert_allclose(fnx.jit(function, backend=backend)(x), want(x), rtol=1e-13)
    assert "host" not in fnx.compile_report(function, x)
    for ad in (fnx.jacfwd, fnx.jacrev):
        slopes = np.diagonal(ad(fnx.jit(function))(x))
        np.testing.assert_allclose(slopes, (want(x + 1e-6) - want(x - 1e-6)) / 2e-6, atol=1e-8)
    np.testing.assert_allclose(
        fnx.vmap(function)(np.stack([x, -x])), [want(x), want(-x)], rtol=1e-13
    )


def test_an_elementwise_primitive():
    bump = arithmetic.unary(
        "bump",
        lambda x: 1.0 / (1.0 + x * x),
        arithmetic.FLOAT,
        lambda t, out, x: arithmetic.mul(t, arithmetic.times(-2.0, x * out * out)),
        expr=lambda a: scalar.apply(
            "div",
            scalar.const(1.0, a.dtype),
            scalar.add(scalar.const(1.0, a.dtype), scalar.mul(a, a)),
        ),
    )
    agree(bump, lambda x: 1.0 / (1.0 + x * x))


@dataclass(frozen=True)
class Doubled(Linear):
    """Twice an array, read from its other end."""

    name = "doubled"

    def abstract(self, x):
        return (x,)

    def impl(self, x):
        return 2.0 * x[::-1]

    def transpose(self, cts, x):
        return (self(cts[0]),)

    def batch(self, size, args, axes):
        return (fnx.lax.map(self, jnp.moveaxis(args[0], axes[0], 0)),), (0,)

    def lower(self, x):
        two = scalar.const(2.0, x.dtype)
        return Point(lambda i: scalar.mul(two, x(scalar.sub(scalar.size(x.shape[0] - 1), i))))


def test_a_structural_primitive():
    agree(lambda x: jnp.flip(Doubled()(jnp.sin(x))), lambda x: 2 * np.sin(x))


def test_a_pass_over_jaxprs(monkeypatch):
    def doubles_are_sums(jaxpr):
        def new(e):
            two = e.prim is arithmetic.mul and type(e.inputs[1]) is Literal
            if two and float(e.inputs[1].value) == 2.0:
                return Eqn(arithmetic.add, [e.inputs[0], e.inputs[0]], e.outs, e.source)
            return e

        return jaxpr.with_eqns([new(e) for e in jaxpr.eqns])

    f = lambda x: jnp.sin(x) * 2.0
    text = lambda: fnx.jit(f).lower(X).as_text("kernel")
    want, before = fnx.jit(f)(X), text()
    monkeypatch.setattr(simplify, "OPTIMIZATIONS", (*simplify.OPTIMIZATIONS, doubles_are_sums))
    fnx.clear_caches()
    after = text()
    assert "2.0" in before
    assert "2.0" not in after
    np.testing.assert_array_equal(fnx.jit(f)(X), want)


def test_a_pass_over_kernel_ir(monkeypatch):
    def serial(builder):
        for s in traversal.statements(builder.block):
            if isinstance(s, Loop) and s.kind.parallel:
                s.kind = LoopKind.SERIAL

    x = np.ones(1 << 20)
    text = lambda: fnx.jit(lambda x: jnp.sin(x) + x).lower(x).as_text("kernel")
    assert "parallel" in text()
    monkeypatch.setattr(CpuTarget, "passes", (*CpuTarget.passes, serial))
    fnx.clear_caches()
    assert "parallel" not in text()


@dataclass(frozen=True)
class Steps(Linear):
    """Differences of neighbours, from 0 on, by a routine."""

    name = "steps"

    def abstract(self, x):
        return (x,)

    def impl(self, x):
        return np.diff(x, prepend=0.0)

    def lower(self, x):
        return Library("steps", (x,))


def _steps(builder, r, outs):
    """The routine: a loop of Kernel IR from the second element on."""
    (x,), (out,) = r.operands, outs
    source, made = builder.store(x), place(builder, out)
    i = scalar.var("int64", "i")

    def at(stored, k):
        return scalar.load(stored.buffer, scalar.add(stored.base, k), x.dtype)

    first = scalar.size(0)
    builder.put(made.buffer, made.base, at(source, first))
    later = scalar.add(i, scalar.size(1))
    value = scalar.sub(at(source, later), at(source, i))
    step = Store(made.buffer, scalar.add(made.base, later), value)
    builder.emit_nest(["steps"], [Loop(i, scalar.size(x.shape[0] - 1), [step])], [], note="steps")
    finish(builder, out)


def test_a_routine(monkeypatch):
    x = np.cumsum(X)
    host = fnx.compile_report(Steps(), x)
    module = SimpleNamespace(ROUTINES={"steps": _steps})
    monkeypatch.setitem(table._ANY_DTYPE, "steps", lambda: module)
    monkeypatch.setitem(portable._ROUTINES, "steps", _steps)
    fnx.clear_caches()
    assert "host" in host
    assert "host" not in fnx.compile_report(Steps(), x)
    for backend in ("reference", "numba", "cpu"):
        np.testing.assert_allclose(fnx.jit(Steps(), backend=backend)(x), np.diff(x, prepend=0.0))


@pytest.mark.parametrize("line", [32, 64])
def test_a_machine(monkeypatch, line):
    """A target's sizes are fields of its `Machine`."""
    from fnx.lowering.cpu.processor import thresholds

    monkeypatch.setattr(thresholds, "CPU", replace(thresholds.CPU, line=line))
    x = np.random.default_rng(0).normal(size=(40, 30))
    np.testing.assert_allclose(fnx.jit(lambda x: x.T * 2)(x), 2 * x.T)


class Alone:
    """A transport: one member, who has everything."""

    rank, size = 0, 1

    def all_reduce(self, x, op):
        return x.copy()

    def all_gather(self, x):
        return x[None].copy()

    def reduce_scatter(self, x, op):
        return x[0].copy()

    def all_to_all(self, x):
        return x.copy()

    def permute(self, x, pairs):
        return x.copy() if (0, 0) in pairs else np.zeros_like(x)

    def broadcast(self, x, root):
        return x.copy()

    def barrier(self):
        pass

    def split(self, groups):
        return self


def test_a_transport():
    def member(x):
        shifted = lax.ppermute(x, "i", [(0, 0)])
        return lax.psum(x, "i") + shifted + lax.all_gather(x, "i")[0] + lax.axis_index("i")

    program = fnx.jit(spmd(member, {"i": 1}))
    with use({"i": Alone()}):
        np.testing.assert_array_equal(program(X), 3 * X)
        np.testing.assert_array_equal(fnx.vmap(program)(np.stack([X, X])), [3 * X, 3 * X])


def test_a_payload():
    """The numbers of an array elsewhere: a `Buffer` that says how they are brought."""
    from fnx.core.buffer import Buffer

    class Lazy(Buffer):
        def fetch(self):
            return np.arange(self.size, dtype=self.dtype).reshape(self.shape)

    x = ConcreteArray(Lazy((2, 3), np.dtype("f8")))
    np.testing.assert_array_equal(fnx.jit(lambda x: x * 2)(x), 2 * np.arange(6.0).reshape(2, 3))
