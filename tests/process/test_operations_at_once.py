"""Operations outside of jit on arrays that lie on several devices: results lie as those of JAX."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.loader import team
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P
from fnx.transforms.traced_program import BACKEND

X = np.random.default_rng(0).normal(size=(16, 8))
INDICES = np.array([3, 0, 11, 3])


@pytest.fixture(autouse=True)
def _devices():
    with config.num_devices(4):
        yield


@pytest.fixture(params=[False, True], ids=["in_turn", "at_once"])
def runs(request, monkeypatch):
    """Operations by one device, and by a team of threads; how often one ran."""
    if request.param and config.backend.value != "cpu":
        pytest.skip("teams of threads are the CPU backend's alone")
    kind, count, run = type(BACKEND), [], team.TeamProgram.run

    def counted(self, *args):
        count.append(self.size)
        return run(self, *args)

    monkeypatch.setattr(kind, "team_pays", lambda self, size, work, exchanges: request.param)
    monkeypatch.setattr(team.TeamProgram, "run", counted)
    for forget in config.hooks:
        forget()
    yield count
    for forget in config.hooks:
        forget()


def on(*spec, x=X):
    return fnx.device_put(x, NamedSharding(fnx.make_mesh((2, 2), ("x", "y")), P(*spec)))


# A function, and the spec of its result as JAX 0.10.2 gives it for an operand on ("x", "y").
PROGRAMS = {
    "number": (lambda x: x + 1, ("x", "y")),
    "number_before": (lambda x: 2.0 / x, ("x", "y")),
    "square": (lambda x: x**2, ("x", "y")),
    "negative": (lambda x: -x, ("x", "y")),
    "compare": (lambda x: x > 0, ("x", "y")),
    "whole_beside": (lambda x: x * jnp.ones(8), ("x", "y")),
    "sin": (jnp.sin, ("x", "y")),
    "where": (lambda x: jnp.where(x > 0, x, 0), ("x", "y")),
    "astype": (lambda x: x.astype(np.float32), ("x", "y")),
    "copy": (lambda x: x.copy(), ("x", "y")),
    "zeros_like": (jnp.zeros_like, ("x", "y")),
    "full_like": (lambda x: jnp.full_like(x, 2), ("x", "y")),
    "sum": (lambda x: x.sum(), ()),
    "sum_0": (lambda x: x.sum(0), ("y",)),
    "mean_1": (lambda x: jnp.mean(x, 1), ("x",)),
    "std": (lambda x: jnp.std(x, 0), ("y",)),
    "max": (lambda x: x.max(1, keepdims=True), ("x",)),
    "argmax": (lambda x: jnp.argmax(x, 0), ("y",)),
    "all": (lambda x: jnp.all(x > 0, 1), ("x",)),
    "transpose": (lambda x: x.T, ("y", "x")),
    "matmul": (lambda x: x @ x.T, ("x",)),
    "einsum": (lambda x: jnp.einsum("ij,ij->i", x, x), ("x",)),
    "reshape": (lambda x: x.reshape(4, 4, 8), ("x", None, "y")),
    "new_axis": (lambda x: x[:, None], ("x", None, "y")),
    "row": (lambda x: x[3], ("y",)),
    "column": (lambda x: x[:, -1], ("x",)),
    "rows": (lambda x: x[INDICES], (None, "y")),
    "take": (lambda x: jnp.take(x, INDICES, axis=1), ("x",)),
    "roll": (lambda x: jnp.roll(x, 3, 0), ("x", "y")),
    "flip": (lambda x: jnp.flip(x, 0), ("x", "y")),
    "cumsum": (lambda x: jnp.cumsum(x, 0), ("x", "y")),
    "stack": (lambda x: jnp.stack([x, x]), (None, "x", "y")),
    "concatenate": (lambda x: jnp.concatenate([x, x], 1), ("x", "y")),
    "set": (lambda x: x.at[3].set(0.0), ("x", "y")),
    "add_at": (lambda x: x.at[INDICES].add(1.0), ("x", "y")),
    "softmax": (lambda x: fnx.nn.softmax(x, 1), ("x", "y")),
    "norm": (lambda x: jnp.linalg.norm(x, axis=1), ("x",)),
    "clip": (lambda x: jnp.clip(x, -1, 1), ("x", "y")),
    "grad": (fnx.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)), ("x", "y")),
    "vmap": (fnx.vmap(lambda v: v * jnp.sum(v)), ("x", "y")),
    "grad_of_jit": (fnx.grad(fnx.jit(lambda x: jnp.sum(jnp.cos(x)))), ("x", "y")),
    "scan": (lambda x: lax.scan(lambda c, _: (2 * c, None), x, None, length=3)[0], ("x", "y")),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_lie_as_those_of_jax(name, runs):
    f, spec = PROGRAMS[name]
    found = f(on("x", "y"))
    close(found, f(jnp.asarray(X)), 1e-12, 1e-12)
    assert found.sharding == NamedSharding(fnx.make_mesh((2, 2), ("x", "y")), P(*spec))


def test_operations_run_where_their_operands_lie(runs):
    x = on("x", "y")
    before = len(runs)
    y = jnp.sin(x) + x
    expected = 2 if BACKEND.team_pays(4, 0, 0) else 0
    assert len(runs) - before == expected
    close(y, np.sin(X) + X, 1e-12, 1e-12)


def test_operands_that_lie_otherwise_and_those_that_lie_nowhere(runs):
    x, y = on("x", "y"), on(("x", "y"))
    for found in (x + y, x + X, X + x, jnp.asarray(X) + x):
        close(found, X + X)
        assert found.sharding.mesh == x.sharding.mesh
    close((x - y).sum(), 0.0)


def test_two_meshes(runs):
    other = NamedSharding(fnx.make_mesh((4,), ("z",)), P("z"))
    found = on("x", "y") + fnx.device_put(X, other)
    close(found, 2 * X)
    assert found.sharding.is_fully_replicated


def test_constraints_and_copies_outside_of_jit(runs):
    x = lax.with_sharding_constraint(jnp.asarray(X), on("y").sharding)
    assert x.sharding.spec == P("y") == (x * 2).sharding.spec == x.copy().sharding.spec
    assert fnx.device_put(x, fnx.devices()[0]).sharding == fnx.sharding.SingleDeviceSharding(
        fnx.devices()[0]
    )


def test_errors_are_those_of_whole_arrays(runs):
    for x in (jnp.asarray(X), on("x", "y")):
        with pytest.raises(TypeError, match=r"\(16, 8\)|16, 8"):
            x + jnp.ones(3)
        with pytest.raises(IndexError):
            x[0, 0, 0]


def test_small_dtypes_and_numbers_in_parts(runs):
    x = on("x", x=X.astype(fnx.dtypes.bfloat16))
    found = x + 1
    assert found.sharding.spec == P("x")
    assert found.dtype == fnx.dtypes.bfloat16
    narrow = on("x", x=jnp.asarray(X).astype(jnp.float8_e4m3fn))
    assert (narrow * narrow).sharding.spec == P("x")


def test_arrays_of_one_device_take_the_short_ways(monkeypatch, runs):
    on("x")
    monkeypatch.setattr("fnx.process.sharded_program._planned", None)
    x = jnp.asarray(X)
    close((x + 1 - x[3]).sum(), (X + 1 - X[3]).sum(), 1e-12, 1e-12)
