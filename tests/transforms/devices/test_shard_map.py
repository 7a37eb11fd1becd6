"""pmap and shard_map: against functions of whole arrays; devices, meshes, specs, and what is refused."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.errors import InvalidValue, ShapeError
from fnx.sharding import Mesh, NamedSharding, get_abstract_mesh, get_mesh
from fnx.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 6))


@pytest.fixture(autouse=True)
def _devices(reference):
    with config.num_devices(4):
        yield


# --- pmap --------------------------------------------------------------------------------------


def normalize(x):
    return x / lax.psum(x, "i")


def test_pmap_with_collectives():
    f = fnx.pmap(normalize, axis_name="i")
    close(f(X), X / X.sum(0))
    close(f(X[:2]), X[:2] / X[:2].sum(0))
    close(fnx.jit(f)(X), X / X.sum(0))
    with config.backend("cpu"):
        close(f(X), X / X.sum(0))
    with config.disable_jit():
        close(f(X), X / X.sum(0))


def test_pmap_axes():
    f = fnx.pmap(lambda a, b, c: (a + c["k"], b), in_axes=(0, None, {"k": 1}), out_axes=(1, None))
    a, b = f(X, 3.0, {"k": X.T})
    close(a, 2 * X.T)
    assert float(b) == 3.0
    keyword = fnx.pmap(lambda a, *, b: a + b)
    close(keyword(X, b=X), 2 * X)


def test_pmap_of_what_differs_gives_the_first_element_for_out_axes_none():
    close(fnx.pmap(lambda x: x, out_axes=None)(X), X[0])


def test_pmap_static_arguments():
    calls = []

    def power(n, x, m=1):
        calls.append(n)
        assert isinstance(n, int)
        return x**n * m

    f = fnx.pmap(power, static_broadcasted_argnums=0)
    close(f(2, X), X**2)
    close(f(2, X), X**2)
    close(f(3, X), X**3)
    assert calls == [2, 3]
    close(
        fnx.pmap(power, in_axes=(None, 0, None), static_broadcasted_argnums=(0,))(2, X, 4), 4 * X**2
    )
    close(fnx.pmap(power, in_axes=(0, None), static_broadcasted_argnums=(0,))(2, X, 4), 4 * X**2)


def test_pmap_derivatives():
    def loss(x):
        return jnp.sum(jnp.sin(fnx.pmap(normalize, axis_name="i")(x)))

    expected = fnx.grad(lambda x: jnp.sum(jnp.sin(x / x.sum(0))))(jnp.asarray(X))
    close(fnx.grad(loss)(X), expected)
    close(fnx.jit(fnx.grad(loss))(X), expected)
    inside = fnx.pmap(fnx.grad(lambda x: jnp.sum(jnp.sin(normalize(x)))), axis_name="i")
    close(inside(X), expected)


def test_pmap_training_step_of_many_devices_is_that_of_the_whole_batch():
    w, xs, ys = RNG.normal(size=6), RNG.normal(size=(4, 5, 6)), RNG.normal(size=(4, 5))

    def loss(w, x, y):
        return jnp.mean((x @ w - y) ** 2)

    @fnx.pmap
    def alone(w, x, y):
        return w - 0.1 * fnx.grad(loss)(w, x, y)

    def step(w, x, y):
        return w - 0.1 * lax.pmean(fnx.grad(loss)(w, x, y), "batch")

    together = fnx.pmap(step, axis_name="batch", in_axes=(None, 0, 0))(w, xs, ys)
    whole = w - 0.1 * np.asarray(fnx.grad(loss)(w, xs.reshape(20, 6), ys.reshape(20)))
    close(together, np.broadcast_to(whole, (4, 6)))
    each = alone(np.stack([w] * 4), xs, ys)
    close(each[2], w - 0.1 * np.asarray(fnx.grad(loss)(w, xs[2], ys[2])))


def test_pmap_in_pmap():
    f = fnx.pmap(fnx.pmap(lambda x: lax.psum(x, ("i", "j")), axis_name="j"), axis_name="i")
    close(f(X[:, :3]), np.full((4, 3), X[:, :3].sum()))


def test_pmap_refuses():
    with pytest.raises(
        ValueError, match=r"size 6 needs 6 devices, .* only 4.*\n?.*FNX_NUM_DEVICES"
    ):
        fnx.pmap(lambda x: x)(X.T)
    with pytest.raises(ValueError, match="only 2"):
        fnx.pmap(lambda x: x, devices=fnx.devices()[:2])(X)
    with pytest.raises(ValueError, match="inconsistent sizes"):
        fnx.pmap(lambda x, y: x)(X, X[:2])
    with pytest.raises(ValueError, match="at least one mapped"):
        fnx.pmap(lambda x: x, in_axes=None)(X)
    with pytest.raises(TypeError, match="needs a function"):
        fnx.pmap(3)


def test_the_number_of_devices():
    assert fnx.device_count() == fnx.local_device_count() == len(fnx.devices()) == 4
    assert [d.id for d in fnx.devices()] == [0, 1, 2, 3]
    assert fnx.devices()[1] is fnx.local_devices()[1]
    code = (
        "import fnx; n = fnx.device_count(); fnx.config.update('jax_num_cpu_devices', 3);"
        "print(n, fnx.device_count())"
    )
    for given, expected in ((None, "1 3"), ("8", "8 3")):
        env = {k: v for k, v in os.environ.items() if k != "FNX_NUM_DEVICES"}
        env |= {} if given is None else {"FNX_NUM_DEVICES": given}
        out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
        assert out.stdout.strip() == expected, out.stderr


# --- shard_map ---------------------------------------------------------------------------------


def mesh():
    return Mesh(np.array(fnx.devices()).reshape(2, 2), ("x", "y"))


def mapped(f, in_specs, out_specs, **options):
    return fnx.shard_map(f, mesh=mesh(), in_specs=in_specs, out_specs=out_specs, **options)


A = RNG.normal(size=(4, 8))

SPECS = [P(), P("x"), P("y"), P(None, "x"), P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")),
         P(None, ("y", "x"))]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_parts_cut_and_joined_are_the_whole(spec):
    close(mapped(lambda a: 2 * a, spec, spec)(A), 2 * A)
    close(fnx.jit(mapped(lambda a: 2 * a, spec, spec))(A), 2 * A)
    close(fnx.grad(lambda a: jnp.sum(mapped(jnp.sin, spec, spec)(a)))(A), np.cos(A))


def test_which_part_a_device_has():
    def number(a):
        return 0 * a + lax.axis_index("x") * 10 + lax.axis_index("y")

    found = np.asarray(mapped(number, P("x", "y"), P("x", "y"))(np.zeros((2, 4))))
    close(found, [[0, 0, 1, 1], [10, 10, 11, 11]])
    found = mapped(number, P(("y", "x")), P(("y", "x")))(np.zeros(4))
    close(found, [0, 10, 1, 11])


def test_sums_over_mesh_axes():
    close(mapped(lambda a: lax.psum(a, "x"), P("x"), P())(A), A[:2] + A[2:])
    close(mapped(lambda a: lax.psum(a, "x"), P("x", "y"), P(None, "y"))(A), A[:2] + A[2:])
    total = mapped(lambda a: lax.psum(jnp.sum(a), ("x", "y")), P("x", "y"), P())
    close(total(A), A.sum())
    close(fnx.grad(total)(A), np.ones_like(A))


def test_matrix_product_in_blocks():
    a, b = RNG.normal(size=(4, 6)), RNG.normal(size=(6, 8))
    f = mapped(lambda a, b: lax.psum(a @ b, "y"), (P("x", "y"), P("y", None)), P("x", None))
    close(f(a, b), a @ b)
    scattered = mapped(
        lambda a, b: lax.psum_scatter(a @ b, "y", scatter_dimension=1, tiled=True),
        (P("x", "y"), P("y", None)),
        P("x", "y"),
    )
    close(scattered(a, b), a @ b)
    gathered = mapped(
        lambda a, b: a @ lax.all_gather(b, "x", axis=1, tiled=True),
        (P(("x", "y")), P(None, "x")),
        P(("x", "y")),
    )
    close(gathered(a, b), a @ b)


def test_pytrees_and_prefixes():
    f = mapped(lambda d, s: ({"u": d["u"] + s}, d["v"]), (P("x"), P()), ({"u": P("x")}, P("x")))
    out, v = f({"u": A, "v": A[:, 0]}, 1.0)
    close(out["u"], A + 1)
    close(v, A[:, 0])


def test_what_is_not_cut_is_the_same_everywhere():
    close(mapped(lambda a, s: a * s, (P("x"), None), P("x"))(A, 2.0), 2 * A)
    repeated = mapped(lambda a: a, P(), P("x"))(A)
    close(repeated, np.concatenate([A, A]))


def test_results_that_differ_where_they_should_not():
    with pytest.raises(ValueError, match="same along mesh axis 'x'"):
        mapped(lambda a: a, P("x"), P())(A)
    close(mapped(lambda a: a, P("x"), P(), check_vma=False)(A), A[:2])
    close(mapped(lambda a: a, P("x"), P(), check_rep=False)(A), A[:2])


def test_some_axes_of_a_mesh():
    f = mapped(lambda a: lax.psum(a, "x"), P("x"), P(), axis_names={"x"})
    close(f(A), A[:2] + A[2:])
    with pytest.raises(NameError, match="unbound axis name: y"):
        mapped(lambda a: lax.psum(a, "y"), P("x"), P(), axis_names={"x"})(A)


def test_the_mesh_that_was_set():
    f = fnx.shard_map(lambda a: lax.psum(a, "x"), in_specs=P("x"), out_specs=P())
    with pytest.raises(ValueError, match="has no mesh"):
        f(A)
    with fnx.set_mesh(mesh()):
        assert get_mesh() == mesh()
        assert get_abstract_mesh().shape == {"x": 2, "y": 2}
        close(f(A), A[:2] + A[2:])
    with mesh() as m:
        assert m == mesh()
        close(f(A), A[:2] + A[2:])
    assert get_mesh().empty
    assert get_abstract_mesh().empty
    as_decorator = fnx.shard_map(mesh=mesh(), in_specs=P("x"), out_specs=P("x"))
    close(as_decorator(lambda a: 2 * a)(A), 2 * A)


@pytest.mark.parametrize(
    ("in_specs", "x", "error", "text"),
    [
        (P("x"), A[:3], ShapeError, "multiple of 2"),
        (P(("x", "y")), A[:2], ShapeError, "multiple of 4"),
        (P("x", "y"), A[:, 0], ShapeError, "longer than the rank"),
        (P("z"), A, InvalidValue, "'z'"),
        ("x", A, TypeError, "PartitionSpecs"),
        ((P("x"), P("x")), A, ValueError, "prefix"),
    ],
)
def test_shard_map_refuses(in_specs, x, error, text):
    with pytest.raises(error, match=text):
        mapped(lambda a: a, in_specs, P("x"))(x)


# --- meshes and shardings ----------------------------------------------------------------------


def test_meshes():
    m = fnx.make_mesh((2, 2), ("x", "y"))
    assert m == mesh()
    assert hash(m) == hash(mesh())
    assert m.shape == {"x": 2, "y": 2}
    assert m.size == 4
    assert m.axis_names == ("x", "y")
    assert str(m) == "Mesh('x': 2, 'y': 2, axis_types=(Auto, Auto))"
    assert repr(m) == "Mesh(axis_sizes=(2, 2), axis_names=('x', 'y'), axis_types=(Auto, Auto))"
    close(m.device_ids, [[0, 1], [2, 3]])
    with pytest.raises(ValueError, match="needs 6 devices; there are 4"):
        fnx.make_mesh((3, 2), ("x", "y"))
    with pytest.raises(ValueError, match="axis names"):
        Mesh(fnx.devices(), ("x", "y"))
    with pytest.raises(ValueError, match="different"):
        Mesh(np.array(fnx.devices()).reshape(2, 2), ("x", "x"))


def test_shardings_move_nothing():
    sharding = NamedSharding(mesh(), P("x", ("y",)))
    assert sharding == NamedSharding(mesh(), P("x", ("y",)))
    assert sharding != NamedSharding(mesh(), P())
    assert sharding.shard_shape((4, 8)) == (2, 4)
    assert len(sharding.device_set) == 4
    close(fnx.device_put(A, sharding), A)
    close(fnx.reshard(A, sharding), A)
    f = fnx.jit(lambda a: lax.with_sharding_constraint(2 * a, sharding), in_shardings=sharding)
    close(f(A), 2 * A)


def test_arrays_say_where_they_are():
    x = jnp.ones((2, 3))
    assert x.device is fnx.devices()[0]
    assert x.devices() == {fnx.devices()[0]}
    assert x.sharding.device_set == {fnx.devices()[0]}
    assert x.is_fully_addressable
    (shard,) = x.addressable_shards
    assert shard.data.shape == (2, 3)
    assert shard.device.id == 0
    assert x.sharding.shard_shape((2, 3)) == (2, 3)


def test_vmap_takes_spmd_axis_name_and_axis_size():
    f = fnx.vmap(lambda x: x + lax.axis_index("i"), axis_name="i", spmd_axis_name="x", axis_size=4)
    close(f(np.zeros(4)), np.arange(4))
    with pytest.raises(ValueError, match="axis_size"):
        f(np.zeros(3))
    close(fnx.vmap(lambda: jnp.ones(2), axis_size=3)(), np.ones((3, 2)))


def test_axes_that_are_unconstrained_are_not_cut():
    free = P.UNCONSTRAINED
    assert repr(P(free, "x")) == "P(UNCONSTRAINED, 'x')"
    assert pickle.loads(pickle.dumps(P(free)))[0] is free
    assert P(free) != P(None)
    mesh = fnx.make_mesh((1,), ("x",))
    x = jnp.arange(4.0)
    placed = fnx.jit(lambda x: lax.with_sharding_constraint(x, fnx.NamedSharding(mesh, P(free))))(x)
    np.testing.assert_array_equal(placed, x)
    assert fnx.NamedSharding(mesh, P(free, "x")).shard_shape((4, 2)) == (4, 2)


def test_arrays_say_how_they_were_asked_to_lie():
    mesh = fnx.make_mesh((1,), ("x",))
    there = NamedSharding(mesh, P("x"))
    x = jnp.arange(4.0)
    put = fnx.device_put({"a": x, "b": x}, {"a": there, "b": None})
    assert put["a"].sharding == there
    assert put["b"].sharding == x.sharding != there
    f = fnx.jit(lambda x: (x, {"a": x + 1.0, "b": 2.0}), out_shardings=(None, there))
    for _ in range(2):
        same, others = f(x)
        assert [a.sharding == there for a in (same, others["a"], others["b"])] == [
            False,
            True,
            True,
        ]
    np.testing.assert_array_equal(fnx.grad(lambda x: f(x)[1]["a"].sum())(x), np.ones(4))
    mapped = fnx.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    assert mapped(x).sharding == there
    assert x.sharding != there  # the same numbers, in an array of the caller's


@pytest.mark.parametrize(("spec", "expected"), [
    ((), [":,:", ":,:", ":,:", ":,:"]),
    ((None, "y"), [":,0:2", ":,2:4", ":,0:2", ":,2:4"]),
    ((("x", "y"),), ["0:2,:", "2:4,:", "4:6,:", "6:8,:"]),
    (("y", "x"), ["0:4,0:2", "4:8,0:2", "0:4,2:4", "4:8,2:4"]),
])  # fmt: skip
def test_indices_of_the_parts_of_devices(spec, expected):
    mesh = Mesh(np.array(list("abcd")).reshape(2, 2), ("x", "y"))
    text = lambda s: ":" if s == slice(None) else f"{s.start}:{s.stop}"
    found = NamedSharding(mesh, P(*spec)).devices_indices_map((8, 4))
    assert [",".join(map(text, found[d])) for d in "abcd"] == expected


# --- what is said of how arrays lie ---------------------------------------------------------------


def test_texts_are_those_of_jax():
    mesh = fnx.make_mesh((2, 2), ("x", "y"))
    assert [repr(P()), str(P("x")), repr(P(None, ("x", "y")))] == [
        "P()",
        "P('x',)",
        "P(None, ('x', 'y'))",
    ]
    text = "Mesh('x': 2, 'y': 2, axis_types=(Auto, Auto))"
    assert str(mesh) == text
    assert repr(mesh.abstract_mesh) == f"Abstract{text}"
    sharding = NamedSharding(mesh, P("x"))
    assert repr(sharding) == f"NamedSharding(mesh={text}, spec=P('x',), memory_kind=device)"
    one = fnx.sharding.SingleDeviceSharding()
    assert repr(one) == "SingleDeviceSharding(device=CpuDevice(id=0), memory_kind=device)"


def test_results_of_pmap_say_that_each_device_has_its_element():
    f = fnx.pmap(lambda x: (x, lax.psum(x, "i")), "i", out_axes=(0, 1))
    for a, b in [f(X), f(X)]:  # traced, and at once
        assert (a.sharding.spec, b.sharding.spec) == (P("i"), P(None, "i"))
        assert [s.data.shape for s in b.addressable_shards] == [(6, 1)] * 4
    assert a.sharding.mesh.shape == {"i": 4}
    assert f(X[:2])[0].sharding.mesh.devices.tolist() == fnx.devices()[:2]
    close(fnx.jit(lambda a: a + 1)(a) + a, 2 * X + 1)  # which changes nothing of how it is computed


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit])
def test_derivatives_and_batches_of_shard_map_lie_as_its_arguments_and_results(wrap):
    mesh = fnx.make_mesh((2, 2), ("x", "y"))
    f = fnx.shard_map(jnp.sin, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    lie = lambda *spec: NamedSharding(mesh, P(*spec))
    g = wrap(fnx.grad(lambda x: jnp.sum(f(x))))(X)
    close(g, np.cos(X))
    y, t = wrap(lambda x: fnx.jvp(f, (x,), (x,)))(X)
    close(t, X * np.cos(X))
    assert {g.sharding, y.sharding, t.sharding} == {lie("x", "y")}
    many = wrap(fnx.vmap(f, in_axes=1, out_axes=1))(jnp.stack([X, X], 1))
    close(many, np.stack([np.sin(X)] * 2, 1))
    assert many.sharding == lie("x", None, "y")
    weak = wrap(fnx.grad(fnx.shard_map(lambda w: w * w, mesh=mesh, in_specs=P(), out_specs=P())))(
        3.0
    )
    assert weak.weak_type
    assert float(weak) == 6.0


def test_batches_of_what_is_cut_along_the_whole_mesh():
    mesh = fnx.make_mesh((2, 2), ("x", "y"))
    f = fnx.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=P("y"), out_specs=P(("x", "y")))
    close(fnx.jit(fnx.vmap(f))(np.stack([X, X])), np.stack([np.concatenate([2 * X, 2 * X])] * 2))


def test_compiled_programs_say_how_arrays_lie():
    mesh = fnx.make_mesh((2, 2), ("x", "y"))
    lie = lambda *spec: NamedSharding(mesh, P(*spec))
    f = fnx.jit(
        lambda x, *, w: {"a": x * 2, "b": x.sum()}, in_shardings=lie("x"), out_shardings=lie()
    )
    made = f.lower(X, w=X).compile()
    assert made.input_shardings == ((lie("x"),), {"w": lie()})
    assert made.output_shardings == {"a": lie(), "b": lie()}
    one = fnx.sharding.SingleDeviceSharding()
    plain = fnx.jit(lambda x, k: (x, k), static_argnums=1).lower(X, 3).compile()
    assert (plain.input_shardings, plain.output_shardings) == (((one,), {}), (one, one))
