"""Every loop that may run for long asks whether to stop, and loops of vectors do not."""

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import Loop, LoopKind, While
from tests.lowering.cpu.test_interrupts import PROGRAMS


def loops(fun, *args) -> list:
    """The loops of a program."""
    lowered = fnx.jit(fun).lower(*args)
    body = lowered.program.compiled().program.body
    return [s for s in traversal.statements(body) if isinstance(s, Loop | While)]


def is_long(s) -> bool:
    """Nobody knows how long it runs, or it is known to be long, and is no loop of vectors."""
    if isinstance(s, While):
        return True
    if not traversal.has_known_extent(s):
        return bool(s.carries or any(map(traversal.blocks, s.body)))
    serial = s.carries and not s.reassociate and s.kind is LoopKind.SERIAL
    return traversal.work([s]) >= thresholds.POLLED_WORK and bool(serial)


@pytest.mark.parametrize("name", PROGRAMS)
def test_long_loops_are_polled(name):
    found = [s for s in loops(PROGRAMS[name], 0.7, 10**10) if is_long(s)]
    assert [s for s in found if not s.polled] == []


def test_long_kernels_are_polled_around_their_vectors():
    i = jnp.arange(300_000.0)
    found = loops(lambda i: jnp.sin(i[:, None] * i[None, :]).sum(), i)
    polled = [s for s in found if s.polled]
    assert polled
    assert not any(s.kind is LoopKind.VECTORIZED for s in polled)


def test_short_kernels_are_not_polled():
    i = jnp.arange(300.0)
    assert not any(s.polled for s in loops(lambda i: jnp.sin(i[:, None] * i[None, :]).sum(), i))


def test_short_loops_in_others_of_known_length_are_not_polled():
    inner = lambda c: lax.scan(lambda c, _: (jnp.sin(c), None), c, None, length=100)[0]
    fun = lambda x: lax.scan(lambda c, _: (inner(c), None), x, None, length=50)[0]
    assert sorted(s.polled for s in loops(fun, 0.7)) == [False, True]
