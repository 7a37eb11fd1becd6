"""The local transport, along a batch axis, gives what members exchange that run by themselves."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import in_force
from fnx.interpreters.batch_transport import BatchTransport
from fnx.lowering.transport.local import Local

METHODS = {
    "sum": lambda t, x: t.all_reduce(x, "sum"),
    "max": lambda t, x: t.all_reduce(x, "max"),
    "min": lambda t, x: t.all_reduce(x, "min"),
    "gather": lambda t, x: t.all_gather(x),
    "scatter": lambda t, x: t.reduce_scatter(x, "sum"),
    "all to all": lambda t, x: t.all_to_all(x),
    "shift": lambda t, x: t.permute(x, [(k, (k + 1) % t.size) for k in range(t.size)]),
    "some": lambda t, x: t.permute(x, [(t.size - 1, 0)]),
    "broadcast": lambda t, x: t.broadcast(x, t.size - 1),
}


def rows(result, n):
    """What each member has."""
    out, axis = result
    return [np.asarray(out if axis is None else jnp.take(out, k, axis)) for k in range(n)]


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("shape", [(), (2, 3), (0,)])
@pytest.mark.parametrize("name", METHODS)
def test_methods_are_those_of_the_protocol(name, shape, n):
    x = np.random.default_rng(0).integers(-9, 9, (n, n, *shape)).astype(float)
    method = METHODS[name]
    want = Local(n).run("i", lambda k: method(in_force("i", "test"), x[k]), range(n))
    found = rows(method(BatchTransport(n), jnp.asarray(x)), n)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_array_equal(a, b)


def test_groups_exchange_by_themselves():
    x = jnp.arange(8.0).reshape(4, 2)
    groups = ((0, 2), (3, 1))
    out, axis = BatchTransport(4).within(groups, x, lambda v, t: t.all_reduce(v, "sum"))
    assert axis == 0
    np.testing.assert_array_equal(out, np.asarray(x)[[0, 1, 0, 1]] + np.asarray(x)[[2, 3, 2, 3]])


def test_collectives_of_vmap_go_through_it(monkeypatch):
    """No rule of a collective is beside the protocol: one that fails fails in all of them."""
    calls = []
    for name in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"):
        original = getattr(BatchTransport, name)

        def seen(self, *args, name=name, original=original):
            calls.append(name)
            return original(self, *args)

        monkeypatch.setattr(BatchTransport, name, seen)

    def member(x):
        a = lax.psum(x, "i") + lax.all_gather(x, "i").sum(0)
        b = lax.psum_scatter(x, "i") + lax.all_to_all(x, "i", 0, 0).sum()
        return a, b, lax.ppermute(x, "i", [(0, 1)])

    fnx.vmap(member, axis_name="i")(jnp.ones((3, 3)))
    assert {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "permute"} <= set(calls)
