"""Meshes that were set, programs within programs of devices, and how what comes of them lies."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.errors import InvalidValue
from fnx.sharding import NamedSharding, SingleDeviceSharding
from fnx.sharding import PartitionSpec as P

X = np.random.default_rng(1).normal(size=(8, 4))


@pytest.fixture(autouse=True)
def _devices(reference):
    with config.num_devices(4):
        yield


def line(count=4):
    return fnx.make_mesh((count,), ("x",))


def square():
    return fnx.make_mesh((2, 2), ("x", "y"))


# --- the mesh that was set -----------------------------------------------------------------------


def test_a_compiled_function_is_of_the_mesh_that_is_set_when_it_is_called():
    f = fnx.jit(lambda x: lax.with_sharding_constraint(2 * x, P("x")))
    index = lambda x: x + lax.axis_index("x")
    g = fnx.jit(fnx.shard_map(index, in_specs=P("x"), out_specs=P("x")))
    around = fnx.jit(lambda x: f(x) + g(x))
    for mesh in (line(4), line(2), line(4)):
        with fnx.set_mesh(mesh):
            for _ in range(2):
                assert f(X).sharding == NamedSharding(mesh, P("x"))
                expected = X + np.repeat(np.arange(mesh.size), 8 // mesh.size)[:, None]
                close(g(X), expected)
                close(around(X), 2 * X + expected)
    with pytest.raises(InvalidValue, match="no mesh was set"):
        f(X)


def test_specs_are_of_the_mesh_that_was_set():
    with fnx.set_mesh(square()) as mesh:
        assert fnx.device_put(X, P("x", "y")).sharding == NamedSharding(mesh, P("x", "y"))
        assert fnx.sharding.reshard(X, P(None, "y")).sharding == NamedSharding(mesh, P(None, "y"))
        put = fnx.jit(lambda x: fnx.device_put(x + 1, P("y")))
        assert put(X).sharding == NamedSharding(mesh, P("y"))
        found = jnp.matmul(X, X.T, out_sharding=P("y"))
        assert found.sharding.spec == P("y")


@pytest.mark.parametrize("name", ["device", "out_sharding"])
def test_new_arrays_lie_where_they_are_wanted(name):
    place = NamedSharding(line(), P("x"))
    made = [
        jnp.zeros((8, 2), **{name: place}),
        jnp.full((8,), 3.0, **{name: place}),
        jnp.arange(8, **{name: place}),
        jnp.asarray(X, **{name: place}),
        fnx.jit(lambda: jnp.ones(8, **{name: place}))(),
    ]
    assert [x.sharding for x in made] == [place] * 5
    assert jnp.zeros(2, device=fnx.devices()[2]).devices() == {fnx.devices()[2]}
    there = SingleDeviceSharding(fnx.devices()[1])
    assert fnx.device_put(X, there).devices() == {fnx.devices()[1]}


def test_arrays_tell_whether_all_devices_have_the_whole():
    x = fnx.device_put(X, NamedSharding(square(), P("x", "y")))
    assert not x.is_fully_replicated
    assert fnx.device_put(X, NamedSharding(square(), P())).is_fully_replicated
    assert jnp.ones(2).is_fully_replicated
    close(x.addressable_data(3), X[4:, 2:])


def test_specs_are_written_in_one_way():
    assert P(("x",), ()) == P("x", None)
    assert type(P("x") + P("y")) is P


# --- programs within programs --------------------------------------------------------------------


def _nested(inner_specs, outer_out, outside):
    def inner(a):
        return jnp.sin(a) * (1.0 + lax.axis_index("y")) + lax.psum(a, "y")

    def outer(a):
        found = fnx.shard_map(inner, **inner_specs)(a)
        return lax.psum(found, "x") if outside else found

    options = {"in_specs": P("x"), "out_specs": outer_out, "axis_names": {"x"}}
    return fnx.shard_map(outer, mesh=square(), **options)


@pytest.mark.parametrize("names", [{"axis_names": {"y"}}, {}])
def test_a_program_of_devices_within_another_has_its_mesh(names):
    """Without names the inner one is over all axes that the outer one has left."""
    specs = {"in_specs": P(None, "y"), "out_specs": P(None, "y"), **names}
    sums = X[:, :2] + X[:, 2:]
    expected = np.sin(X) * [1, 1, 2, 2] + np.concatenate([sums, sums], 1)
    for f in (_nested(specs, P("x"), False), fnx.jit(_nested(specs, P("x"), False))):
        close(f(X), expected)
    f = _nested(specs, P(), True)
    close(f(X), expected[:4] + expected[4:])
    slope = fnx.grad(lambda x: jnp.sum(f(x)))
    close(fnx.jit(slope)(X), np.cos(X) * [1, 1, 2, 2] + 2)


# --- how results lie -----------------------------------------------------------------------------


def test_results_of_compiled_programs_lie_as_out_specs_say():
    mesh = square()
    f = fnx.shard_map(
        lambda a, w: (a * w, lax.psum(jnp.sum(a * w), ("x", "y"))),
        mesh=mesh,
        in_specs=(P("x", "y"), P()),
        out_specs=(P("x", "y"), P()),
    )
    with_spec = lambda *spec: NamedSharding(mesh, P(*spec))
    part, whole = fnx.jit(f)(X, 2.0)
    assert (part.sharding, whole.sharding) == (with_spec("x", "y"), with_spec())
    _, (dx, dw) = fnx.jit(fnx.value_and_grad(lambda *xs: f(*xs)[1], (0, 1)))(X, 2.0)
    assert (dx.sharding, dw.sharding) == (with_spec("x", "y"), with_spec())
    close(dx, np.full_like(X, 2.0))
    with fnx.set_mesh(mesh):
        g = fnx.shard_map(lambda a: 2 * a, in_specs=P("y"), out_specs=P("y"))
        assert g(X).sharding == with_spec("y")
        assert fnx.jit(lambda x: g(x) + 1)(X).sharding == with_spec("y")


# --- rules of users ------------------------------------------------------------------------------


@fnx.custom_vjp
def total(x):
    return lax.psum(jnp.sin(x), "x")


total.defvjp(lambda x: (lax.psum(jnp.sin(x), "x"), x), lambda x, ct: (ct * jnp.cos(x),))


@fnx.custom_jvp
def twice_as_steep(x):
    return lax.psum(x, "x")


@twice_as_steep.defjvp
def _(primals, tangents):
    return twice_as_steep(*primals), 2 * lax.psum(tangents[0], "x")


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("rule", "slope"), [(total, np.cos), (twice_as_steep, lambda x: 2 + 0 * x)]
)
def test_rules_of_users_speak_of_the_axes(rule, slope, compiled):
    f = fnx.shard_map(rule, mesh=line(), in_specs=P("x"), out_specs=P())
    loss = lambda x: jnp.sum(f(x))
    wrap = fnx.jit if compiled else lambda g: g
    close(wrap(fnx.grad(loss))(X[:, 0]), slope(X[:, 0]))
    close(wrap(fnx.vmap(fnx.grad(loss)))(X.T), slope(X.T))
    inside = lambda x: lax.scan(
        lambda c, _: (c - fnx.grad(lambda c: rule(c)[0])(c), None), x, None, 2
    )
    f = fnx.shard_map(lambda x: inside(x)[0], mesh=line(), in_specs=P("x"), out_specs=P("x"))
    assert wrap(f)(X[:, 0]).shape == (8,)


# --- specs that are not given --------------------------------------------------------------------


def test_shard_map_cuts_arguments_as_they_lie():
    double = fnx.shard_map(lambda x, y: (2 * x, y), out_specs=(P("x"), P()))
    with fnx.set_mesh(line(2)) as mesh:
        x = jnp.arange(4.0, out_sharding=P("x"))
        for f in (double, fnx.jit(double), lambda *a: fnx.jvp(double, a, a)[0]):
            found, whole = f(x, fnx.device_put(jnp.ones(3), P()))
            close(found, 2 * np.arange(4.0))
            close(whole, np.ones(3))
        close(double(x, jnp.ones(3))[1], np.ones(3))
        told = fnx.jit(lambda x, y: double(lax.with_sharding_constraint(x + 1, P("x")), y)[0])
        close(told(x[:2], fnx.device_put(jnp.ones(3), P())), [2.0, 4.0])
        with pytest.raises(InvalidValue, match="expected in_specs"):
            fnx.jit(lambda x: double(x + 1, x))(x)
    assert found.sharding == NamedSharding(mesh, P("x"))


def test_python_values_without_a_spec_are_the_functions_own():
    f = fnx.shard_map(
        lambda x, n: x + jnp.ones(n), mesh=line(2), in_specs=(P("x"), None), out_specs=P("x")
    )
    close(f(np.zeros(4), 2), np.ones(4))
    close(fnx.jit(f, static_argnums=1)(np.zeros(4), 2), np.ones(4))


def test_smap_speaks_of_axes_by_number():
    with fnx.set_mesh(square()) as mesh:
        f = fnx.smap(
            lambda x, y: (lax.psum(x, "y"), x + y),
            in_axes=(1, None), out_axes=(None, 1), axis_name="y",
        )  # fmt: skip
        total, both = fnx.jit(f)(X, 1.0)
        close(total, X[:, :2] + X[:, 2:])
        close(both, X + 1)
        twice = fnx.smap(lambda x: 2 * x, out_axes=0, axis_name="x")
        close(twice(fnx.device_put(X, P("x"))), 2 * X)
        for wrong in ({"in_axes": "x"}, {"in_axes": (1.5,)}, {"in_axes": 0, "axis_name": ("x",)}):
            with pytest.raises(TypeError):
                fnx.smap(lambda x: x, **{"out_axes": 0, "axis_name": "x"} | wrong)
        with pytest.raises(TypeError, match="from 0"):
            fnx.smap(lambda x: x, in_axes=-1, out_axes=0, axis_name="x")
        for full in (
            lax.full((4,), 1.0, sharding=NamedSharding(mesh, P("x"))),
            lax.full_like(X, 1.0, sharding=NamedSharding(mesh, P("x"))),
            jnp.ones((2, 4)).reshape(4, 2, out_sharding=P("x")),
        ):
            assert full.sharding == NamedSharding(mesh, P("x"))
