"""Arrays that lie along meshes: what they say of their parts, and arrays made of parts."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.errors import InvalidValue, ShapeError
from fnx.sharding import NamedSharding
from fnx.sharding import PartitionSpec as P

X = np.arange(32.0).reshape(4, 8)


@pytest.fixture(autouse=True)
def _devices():
    with config.num_devices(4):
        yield


def sharding(*spec):
    return NamedSharding(fnx.make_mesh((2, 2), ("x", "y")), P(*spec))


@pytest.mark.parametrize(
    ("spec", "shape", "parts"),
    [
        (("x", "y"), (2, 4), 4),
        (("x",), (2, 8), 2),
        ((None, ("y", "x")), (4, 2), 4),
        ((), (4, 8), 1),
    ],
)
def test_shards_are_the_parts(spec, shape, parts):
    x = fnx.device_put(X, sharding(*spec))
    shards = x.addressable_shards
    assert [s.device.id for s in shards] == [0, 1, 2, 3]
    assert {s.data.shape for s in shards} == {shape} == {x.sharding.shard_shape(x.shape)}
    for s in shards:
        np.testing.assert_array_equal(s.data, X[s.index])
    assert len({str(s.index) for s in shards if s.replica_id == 0}) == parts
    assert sum(s.replica_id == 0 for s in shards) == parts
    assert x.sharding.is_fully_replicated is (parts == 1)
    assert x.devices() == set(fnx.devices())
    assert jnp.ones(2).devices() == {fnx.devices()[0]}


def test_arrays_made_of_parts():
    for spec in (("x", "y"), ("y",), (None, ("y", "x")), ()):
        where, asked = sharding(*spec), []

        def part(index, asked=asked):
            asked.append(index)
            return X[index]

        made = fnx.make_array_from_callback((4, 8), where, part)
        np.testing.assert_array_equal(made, X)
        assert made.sharding == where
        assert len(asked) == len({str(i) for i in asked})
        again = fnx.make_array_from_single_device_arrays(
            (4, 8), where, [s.data for s in made.addressable_shards]
        )
        np.testing.assert_array_equal(again, X)
        assert fnx.make_array_from_process_local_data(where, X).sharding == where


def test_jit_takes_and_gives_what_lies_along_a_mesh():
    where = sharding("x", "y")
    x = fnx.device_put(X, where)
    out = fnx.jit(lambda x: 2 * x, in_shardings=where, out_shardings=where)(x)
    np.testing.assert_array_equal(out, 2 * X)
    assert out.addressable_shards[3].data.shape == (2, 4)
    np.testing.assert_array_equal(out.addressable_shards[3].data, 2 * X[2:, 4:])


def test_what_cannot_be_cut_is_refused():
    with pytest.raises(InvalidValue, match=r"cuts axis 0 of f64\[3,8\] into 2 parts"):
        fnx.device_put(X[:3], sharding("x"))
    with pytest.raises(InvalidValue, match=r"names \{'z'\}"):
        fnx.device_put(X, sharding("z"))
    with pytest.raises(InvalidValue, match="longer than the rank"):
        fnx.device_put(X[0], sharding(None, "x"))
    with pytest.raises(ShapeError, match=r"shape \(1,\); expected \(2, 4\)"):
        fnx.make_array_from_callback((4, 8), sharding("x", "y"), lambda i: np.ones(1))
    with pytest.raises(InvalidValue, match="has 4 parts"):
        fnx.make_array_from_single_device_arrays((4, 8), sharding("x", "y"), [jnp.ones((2, 4))])


def test_shardings_name_axes_of_their_mesh_once():
    with config.num_devices(4):
        mesh = fnx.make_mesh((2, 2), ("x", "y"))
        with pytest.raises(InvalidValue, match=r"names \{'z'\}"):
            NamedSharding(mesh, P("z"))
        with pytest.raises(InvalidValue, match="each name once"):
            NamedSharding(mesh, P("x", "x"))
        f = fnx.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x", "x"))
        with pytest.raises(InvalidValue, match="each name once"):
            f(np.ones((4, 4)))
        with pytest.raises(InvalidValue, match=r"shape \(5, 2\) into 2 parts"):
            NamedSharding(mesh, P("x")).shard_shape((5, 2))
        one, other = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(("x",), None))
        assert one.is_equivalent_to(other, 2)
        assert not one.is_equivalent_to(NamedSharding(mesh, P("y")), 2)


def test_visualize(capsys):
    fnx.debug.visualize_array_sharding(fnx.device_put(X, sharding("x")))
    assert capsys.readouterr().out == "CPU 0,1: (2, 8) at [0:2, :]\nCPU 2,3: (2, 8) at [2:4, :]\n"


def test_arrays_like_others_lie_as_these():
    place = sharding("x", "y")
    x = fnx.device_put(X, place)
    full = lambda x: jnp.full_like(x, jnp.array(2.0))
    for make in (
        jnp.zeros_like,
        jnp.ones_like,
        jnp.empty_like,
        full,
        lambda x: jnp.zeros_like(x, "int32"),
    ):
        like = make(x)
        assert like.sharding.is_equivalent_to(place, 2)
        assert {s.data.shape for s in like.addressable_shards} == {(2, 4)}
        np.testing.assert_array_equal(like, make(X))
    assert len(jnp.zeros_like(x, shape=(4, 2)).sharding.device_set) == 1
    assert not hasattr(jnp.zeros_like(jnp.ones(3)), "placed")


def test_shapes_and_dtypes_of_what_a_process_has():
    data = {"a": np.arange(10).reshape(2, 5)}
    make = fnx.make_array_from_process_local_data
    for shape in (None, (2, 5), {"a": (2, 5)}):
        assert (make(None, data, shape)["a"] == data["a"]).all()
    for shape in ((2, 8), {"a": (2, 6)}, {"a": (2, 5), "b": (2, 5)}):
        with pytest.raises(ValueError):
            make(None, data, shape)
    with pytest.raises(ValueError, match="float32"):
        fnx.make_array_from_single_device_arrays((2,), None, [jnp.ones(2)], dtype="float32")


def test_arrays_say_how_they_lie():
    where = sharding("x", "y")
    x = jnp.asarray(X).to_device(where)
    assert x.device == x.sharding == where
    assert (x.is_fully_replicated, jnp.ones(2).is_fully_replicated) == (False, True)
    np.testing.assert_array_equal(x.addressable_data(3), X[2:, 4:])
    assert jnp.ones(2).to_device(fnx.devices()[3]).device == fnx.devices()[3]
    abstract = NamedSharding(where.mesh.abstract_mesh, P("x"))
    assert abstract.is_equivalent_to(NamedSharding(where.mesh.abstract_mesh, P("x", None)), 2)
    assert not abstract.is_equivalent_to(NamedSharding(where.mesh.abstract_mesh, P("y")), 2)


def test_results_of_shard_map_lie_along_the_mesh_that_was_set():
    with fnx.set_mesh(fnx.make_mesh((2, 2), ("x", "y"))):
        out = fnx.shard_map(lambda x: 2 * x, in_specs=P("x"), out_specs=P("x"))(X)
    assert out.sharding == sharding("x")


def test_specs_are_equal_that_say_the_same():
    assert P(("x",), (), ["x", "y"]) == P("x", None, ("x", "y"))
    assert hash(P(("x",))) == hash(P("x"))
    with pytest.raises(ValueError, match="tuples in one"):
        P("x", ("y", ("z",)))


def test_meshes_with_axes_of_other_orders_and_kinds_are_others():
    kinds = fnx.sharding.AxisType
    mesh = fnx.make_mesh((2, 2), ("x", "y"), (kinds.Explicit, kinds.Auto))
    assert (mesh.explicit_axes, mesh.auto_axes, mesh.manual_axes) == (("x",), ("y",), ())
    assert mesh.local_devices == fnx.devices()
    assert fnx.make_mesh((2, 2), ("x", "y")) not in (mesh, fnx.make_mesh((2, 2), ("y", "x")))
    one = fnx.sharding.AbstractMesh((2,), "rows", kinds.Auto)
    assert (one.axis_names, one == fnx.sharding.AbstractMesh((2,), ("rows",))) == (("rows",), True)
    assert fnx.sharding.get_mesh().size == 0
    for names, types, error in (
        (("x", None), None, ValueError),
        (("x", "y"), kinds.Auto, ValueError),
        (("x", "y"), ("auto", "auto"), TypeError),
    ):
        with pytest.raises(error, match="mesh"):
            fnx.make_mesh((2, 2), names, types)


def test_functions_say_how_arguments_and_results_lie():
    x = jnp.arange(16.0).reshape(4, 4)
    add = fnx.sharding.auto_axes(jnp.add)
    assert add(x, x, out_sharding=P("x")).sum() == 240.0  # no mesh was set
    with pytest.raises(TypeError, match="out_sharding"):
        add(x, x)
    double = fnx.sharding.explicit_axes(axes="x")(lambda y: 2.0 * y)
    with pytest.raises(ValueError, match="set_mesh"):
        double(x, in_sharding=P("x"))
    with fnx.set_mesh(fnx.make_mesh((2, 2), ("x", "y"))):
        for call in (lambda f: f, fnx.jit):
            f = call(lambda a: add(a, double(a, in_sharding=P("x")), out_sharding=P(None, "y")))
            out = f(x)
            assert (out.sharding.spec, out.sum()) == (P(None, "y"), 360.0)
        with pytest.raises(TypeError, match="in_sharding"):
            double(x)


def test_a_mesh_without_devices_is_of_the_first_ones():
    mesh = fnx.sharding.AbstractMesh((2,), ("rows",))

    @fnx.jit
    def f(x):
        with fnx.sharding.use_abstract_mesh(mesh):
            return 2.0 * fnx.reshard(x, P("rows"))

    out = f(jnp.arange(4.0))
    assert out.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert (out.sharding.spec, out.sharding.mesh.abstract_mesh) == (P("rows"), mesh)
