"""What ranks of MPI do in test_mpi.py: each check says its name when it holds on all ranks."""

import os
import pathlib
import sys
import time

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.transport import use
from fnx.interpreters.spmd import spmd
from fnx.lowering.transport.mpi import Mpi
from fnx.process.devices import ranks

ME, N = fnx.process_index(), fnx.process_count()
LOCAL = fnx.local_device_count()


def equal(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), (found, expected)
    np.testing.assert_array_equal(found, expected)


def check_methods():
    for dtype in "float64 float32 float16 int8 uint64 complex64 bool".split():
        for shape in ((), (3,), (0,), (2, 3)):
            everything = np.random.default_rng(1).integers(0, 5, (N, N, *shape)).astype(dtype)
            t, x = ranks[0], everything[ME]
            total = everything[0]
            for row in everything[1:]:
                total = total + row
            equal(t.all_reduce(x, "sum"), total)
            equal(t.all_gather(x), everything)
            equal(t.reduce_scatter(x, "sum"), total[ME])
            equal(t.all_to_all(x), everything[:, ME])
            equal(t.broadcast(x, N - 1), everything[N - 1])
            if dtype != "complex64":
                equal(t.all_reduce(x, "max"), np.maximum.reduce(everything))
                equal(t.all_reduce(x, "min"), np.minimum.reduce(everything))
            source = (ME - 1) % N
            equal(t.permute(x, tuple((k, (k + 1) % N) for k in range(N))), everything[source])
            equal(t.permute(x, ((0, N - 1),)), everything[0] if ME == N - 1 else np.zeros_like(x))
    half = [*range(0, N, 2)], [*range(1, N, 2)]
    mine = ranks[0].split((tuple(half[0]), tuple(half[1])))
    equal(mine.all_gather(np.asarray(ME)), half[ME % 2])


def check_nan():
    x = np.array([1.0, np.nan if ME == 1 else 2.0])
    equal(ranks[0].all_reduce(x, "max"), [1.0, np.nan])


def members(f, rows):
    """`f` of this rank's row, with all ranks on the axis "i"."""
    with use({"i": ranks[0]}):
        return fnx.jit(spmd(f, {"i": N}))(jnp.asarray(rows[ME]))


def check_programs():
    rows = np.random.default_rng(2).normal(size=(N, N, 4))
    ring = [(k, (k + 1) % N) for k in range(N)]
    for f in (
        lambda x: lax.psum(jnp.sin(x), "i"),
        lambda x: lax.all_gather(x, "i", tiled=True),
        lambda x: lax.all_to_all(x, "i", 0, 1),
        lambda x: lax.psum_scatter(x, "i"),
        lambda x: lax.ppermute(x, "i", ring) + lax.axis_index("i"),
        lambda x: lax.scan(lambda c, _: (jnp.sin(lax.psum(c, "i")), c[0]), x, None, length=3),
        fnx.grad(lambda x: jnp.sum(jnp.sin(lax.pmean(x * x, "i")))),
        fnx.grad(lambda x: jnp.sum(lax.ppermute(jnp.sin(x), "i", ring) ** 2)),
    ):
        expected = fnx.vmap(f, axis_name="i")(rows)
        found = members(f, rows)
        for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b)[ME], 1e-12, 1e-12)


def check_devices():
    assert fnx.device_count() == N * LOCAL
    assert [d.process_index for d in fnx.local_devices()] == [ME] * LOCAL
    assert fnx.local_devices(0)[0].id == 0


def check_pmap():
    rows = np.random.default_rng(3).normal(size=(N * LOCAL, 3))
    mine = rows[ME * LOCAL : (ME + 1) * LOCAL]

    def f(w, x):
        ring = [(k, (k + 1) % (N * LOCAL)) for k in range(N * LOCAL)]
        return w * x + lax.psum(x, "i") + lax.axis_index("i"), lax.ppermute(x, "i", ring)

    a, b = fnx.pmap(f, axis_name="i", in_axes=(None, 0))(2.0, mine)
    expected = 2 * rows + rows.sum(0) + np.arange(N * LOCAL)[:, None]
    np.testing.assert_allclose(np.asarray(a), expected[ME * LOCAL : (ME + 1) * LOCAL], 1e-12)
    np.testing.assert_array_equal(np.asarray(b), np.roll(rows, 1, 0)[ME * LOCAL : (ME + 1) * LOCAL])

    def gradient(w, x):
        return lax.pmean(fnx.grad(lambda w: jnp.sum(jnp.sin(w * x)))(w), "i")

    found = fnx.pmap(gradient, "i", in_axes=(None, 0), out_axes=None)(jnp.ones(3), mine)
    np.testing.assert_allclose(np.asarray(found), (rows * np.cos(rows)).mean(0), 1e-12)


def check_gather():
    from fnx.experimental.multihost_utils import broadcast_one_to_all, process_allgather

    np.testing.assert_array_equal(process_allgather(np.full(2, ME)), [[k] * 2 for k in range(N)])
    assert process_allgather(np.full(2, ME), tiled=True).shape == (2 * N,)
    assert broadcast_one_to_all({"a": np.asarray(ME)})["a"] == 0


def on_all(shape=None, names=("x",)):
    """A mesh over all devices, an array, and how it lies on them."""
    mesh = fnx.make_mesh(shape or (N * LOCAL,), names)
    return mesh, np.random.default_rng(4).normal(size=(16, 8))


def whole(x):
    from fnx.experimental.multihost_utils import process_allgather

    return process_allgather(x, tiled=True) if not x.is_fully_addressable else np.asarray(x)


def check_arrays():
    mesh, rows = on_all()
    s, n = fnx.NamedSharding(mesh, fnx.P("x")), 16 // (N * LOCAL)
    mine = rows[ME * LOCAL * n : (ME + 1) * LOCAL * n]
    made = {
        "put": fnx.device_put(rows, s),
        "callback": fnx.make_array_from_callback(rows.shape, s, lambda index: rows[index]),
        "local": fnx.make_array_from_process_local_data(s, mine),
        "local of all": fnx.make_array_from_process_local_data(s, rows, rows.shape),
        "single": fnx.make_array_from_single_device_arrays(
            rows.shape, s, [jnp.asarray(p) for p in np.split(mine, LOCAL)]
        ),
    }
    for name, x in made.items():
        assert (x.shape, x.sharding) == (rows.shape, s), name
        assert (x.is_fully_addressable, s.is_fully_addressable) == (False, False)
        assert [p.device.id for p in x.addressable_shards] == [ME * LOCAL + k for k in range(LOCAL)]
        equal(np.concatenate([p.data for p in x.addressable_shards]), mine)
        assert len(x.global_shards) == N * LOCAL
        equal(whole(x), rows)
        assert f"parts in process {ME}" in repr(x)
        assert f"[{ME * LOCAL * n}:" in repr(x)
        assert str(x) == f"{x}" == f"{x:.3f}" == repr(x)
    for read in (np.asarray, fnx.device_get, float):
        with pytest.raises(ValueError, match="process_allgather"):
            read(x)
    later = x + 1  # where the parts lie
    assert later.sharding == s
    equal(whole(later), rows + 1)
    with pytest.raises(ValueError, match=rf"expected \({len(mine)}, 8\)"):
        fnx.make_array_from_process_local_data(s, mine[1:], rows.shape)
    copies = fnx.device_put(rows, fnx.NamedSharding(mesh, fnx.P()))
    equal(np.asarray(copies), rows)


def check_sharded_jit():
    def diffuse(x):
        step = lambda c, _: (c + 0.1 * (jnp.roll(c, 1, 0) - 2 * c + jnp.roll(c, -1, 0)), jnp.sum(c))
        return lax.scan(step, x, None, length=3)

    programs = [
        lambda x: jnp.sin(x) + 1,
        lambda x: (jnp.sum(x), jnp.max(x, 0), jnp.mean(x, 1)),
        lambda x: x.T @ x,
        lambda x: x[2:] - x[:-2],
        lambda x: jnp.cumsum(x, 0),
        lambda x: jnp.sort(x, 0)[::-2],
        diffuse,
        fnx.grad(lambda x: jnp.sum(diffuse(x)[0] ** 2)),
    ]
    grids = [((N * LOCAL,), ("x",), ("x",)), ((2, N * LOCAL // 2), ("a", "b"), ("a", "b"))]
    for shape, names, spec in grids:
        mesh, rows = on_all(shape, names)
        x = fnx.device_put(rows, fnx.NamedSharding(mesh, fnx.P(*spec)))
        for f in programs:
            found, expected = fnx.jit(f)(x), fnx.jit(f)(rows)
            for a, b in zip(fnx.tree.leaves(found), fnx.tree.leaves(expected), strict=True):
                np.testing.assert_allclose(whole(a), np.asarray(b), 1e-12, 1e-12)
        placed = fnx.jit(jnp.sin, out_shardings=fnx.NamedSharding(mesh, fnx.P(None, names[-1])))(x)
        assert placed.sharding.spec == fnx.P(None, names[-1])
        np.testing.assert_allclose(whole(placed), np.sin(rows), 1e-12)
    mesh, rows = on_all()
    x = fnx.device_put(rows, fnx.NamedSharding(mesh, fnx.P("x")))
    text = fnx.jit(lambda x: jnp.sort(x, 0)).lower(x).compile().report()
    assert f"of {N} processes" in text
    assert "all_to_all of f64[16,8]" in text
    text = fnx.jit(lambda x: jnp.cumsum(x, 0)).lower(x).compile().report()
    assert "all_gather of f64[16,8]" not in text


def check_shard_map():
    mesh, rows = on_all()
    x = fnx.device_put(rows, fnx.NamedSharding(mesh, fnx.P("x")))
    spec = {"mesh": mesh, "in_specs": fnx.P("x"), "out_specs": fnx.P("x")}
    part = fnx.shard_map(lambda a: a - lax.pmean(a, "x"), **spec)
    parts = rows.reshape(N * LOCAL, -1, 8)
    expected = (parts - parts.mean(0)).reshape(16, 8)
    loop = lambda x: lax.scan(lambda c, _: (part(c), None), x, None, length=2)[0]
    for y in (part(x), part(rows), fnx.jit(part)(x), fnx.jit(loop)(x)):
        assert y.sharding.spec == fnx.P("x")
        np.testing.assert_allclose(whole(y), expected, 1e-12, 1e-12)
    total = fnx.shard_map(lambda a: lax.psum(jnp.sum(a), "x"), **spec | {"out_specs": fnx.P()})
    np.testing.assert_allclose(float(total(x)), rows.sum(), 1e-12)
    slope = fnx.jit(fnx.grad(lambda x: jnp.sum(part(x) ** 2)))(x)
    np.testing.assert_allclose(whole(slope), 2 * expected, 1e-12, 1e-12)


def check_map():
    def f(k):
        time.sleep(0.05 if k == 0 else 0.0)
        return k * k, ME

    found = fnx.distributed.map(f, range(30))
    assert [x for x, _ in found] == [k * k for k in range(30)]
    assert len({rank for _, rank in found}) > 1
    with pytest.raises(ZeroDivisionError) as caught:  # in all ranks
        fnx.distributed.map(lambda k: 1 // (k - 3), range(10))
    assert "in item 3 of fnx.distributed.map" in caught.value.__notes__
    assert fnx.distributed.map(f, []) == []


def _state():
    mesh, rows = on_all()
    at = lambda *spec: fnx.device_put(rows, fnx.NamedSharding(mesh, fnx.P(*spec)))
    return {"x": at("x"), "y": at(None, "x"), "copies": at(), "local": jnp.arange(3), "step": 7}


def save_checkpoint():
    state = _state()
    folder = os.environ["FNX_TEST_FOLDER"]
    fnx.checkpoints.save(folder, 7, state)
    if ME == 0:
        files = sorted(p.name for p in (pathlib.Path(folder) / "step_000000000007").iterdir())
        assert files == ["index.json", *[f"process_{k}.bin" for k in range(N)]], files
    with pytest.raises(ValueError):
        fnx.checkpoints.save(folder, 7, state)


def check_checkpoint():
    state = _state()
    found = fnx.checkpoints.restore(os.environ["FNX_TEST_FOLDER"], like=state)
    for name, x in state.items():
        if name != "step":
            assert found[name].sharding == x.sharding
            equal(whole(found[name]), whole(x))
    assert found["step"] == 7
    plain = fnx.checkpoints.restore(os.environ["FNX_TEST_FOLDER"])
    equal(plain["x"], whole(state["x"]))


def fail():
    if ME == 1:
        jnp.ones(2) + jnp.ones(3)
    ranks[0].barrier()


if __name__ == "__main__":
    wanted = sys.argv[1:]
    assert isinstance(ranks[0], Mpi)
    for name in wanted:
        globals()[name]()
        ranks[0].barrier()
        if ME == 0:
            sys.stdout.write(f"{name} holds\n")
            sys.stdout.flush()
