"""jit of arrays that lie on a mesh: results as unsharded, shardings as JAX's, what is gathered."""

import numpy as np
import pytest
from agreement import close

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.errors import InvalidValue
from fnx.interpreters.passes.compiled import compiled
from fnx.sharding import Mesh, NamedSharding
from fnx.sharding import PartitionSpec as P
from fnx.transforms.traced_program import BACKEND

X = np.random.default_rng(0).normal(size=(16, 8))


@pytest.fixture(autouse=True)
def _devices():
    with config.num_devices(4):
        yield


@pytest.fixture(params=[False, True], ids=["in_turn", "at_once"])
def at_once(request, monkeypatch):
    """Programs by one device, and by a team of threads."""
    kind = type(BACKEND)
    monkeypatch.setattr(kind, "team_pays", lambda self, size, work, exchanges: request.param)
    fnx.clear_caches()
    yield request.param
    fnx.clear_caches()


def mesh():
    return fnx.make_mesh((2, 2), ("x", "y"))


def on(*spec):
    return fnx.device_put(X, NamedSharding(mesh(), P(*spec)))


def diffuse(x):
    def step(c, _):
        c = c + 0.1 * (jnp.roll(c, 1, 0) + jnp.roll(c, -1, 0) - 2 * c)
        return c, jnp.sum(c)

    return lax.scan(step, x, None, length=5)


def upwind(x):
    inner = x[1:-1, 1:-1] - 0.1 * (x[1:-1, 1:-1] - x[:-2, 1:-1]) + 0.2 * (x[2:, 1:-1] - x[1:-1, 2:])
    return x.at[1:-1, 1:-1].set(inner)


# A function, and the specs of its result as JAX 0.10.2 gives them for operands on ("x", "y"), ("x",),
# (("x", "y"),) and (None, "y").
ALL = (("x", "y"), ("x",), (("x", "y"),), (None, "y"))
PROGRAMS = {
    "elementwise": (lambda x: jnp.sin(x) + 1, ALL),
    "sum_0": (lambda x: x.sum(0), (("y",), (), (), ("y",))),
    "sum_1": (lambda x: x.sum(1), (("x",), ("x",), (("x", "y"),), ())),
    "sum": (lambda x: x.sum(), ((), (), (), ())),
    "transpose": (
        lambda x: x.T,
        (("y", "x"), (None, "x"), (None, ("x", "y")), ("y",)),
    ),
    "dot": (lambda x: x.T @ x, (("y",), (), (), ("y",))),
    "outer": (lambda x: x @ x.T, (("x",), ("x",), (("x", "y"),), ())),
    "roll": (lambda x: jnp.roll(x, 1, 0), ALL),
    "slice": (lambda x: x[1:], ((None, "y"), (), (), (None, "y"))),
    "reshape": (
        lambda x: x.reshape(4, 4, 8),
        (("x", None, "y"), ("x",), (("x", "y"),), (None, None, "y")),
    ),
    "stack": (
        lambda x: jnp.stack([x, x]),
        ((None, "x", "y"), (None, "x"), (None, ("x", "y")), (None, None, "y")),
    ),
    "concatenate": (lambda x: jnp.concatenate([x, x], 1), ALL),
    "max": (lambda x: jnp.max(x, 1), (("x",), ("x",), (("x", "y"),), ())),
    "cumsum": (lambda x: jnp.cumsum(x, 1), ALL),
    "column": (lambda x: x[:, 2], (("x",), ("x",), (("x", "y"),), ())),
    "grad": (fnx.grad(lambda x: jnp.sum(x**2)), ALL),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_shardings_are_those_of_jax(name, at_once):
    f, specs = PROGRAMS[name]
    expected = fnx.jit(f)(X)
    for spec, wanted in zip(ALL, specs, strict=True):
        found = fnx.jit(f)(on(*spec))
        close(found, expected)
        assert found.sharding == NamedSharding(mesh(), P(*wanted))


@pytest.mark.parametrize(
    "f",
    [
        diffuse,
        upwind,
        lambda x: jnp.pad(x, ((1, 1), (1, 1)), mode="wrap")[2:, :-2] - x,
        lambda x: jnp.gradient(x, axis=0),
        lambda x: lax.while_loop(
            lambda c: jnp.sum(c) < 200.0, lambda c: c + jnp.roll(c, 1, 0) ** 2, x
        ),
        lambda x: lax.cond(x.sum() > 0, lambda c: c[1:].sum(0), lambda c: 2 * c[:-1].sum(0), x),
        lambda x: fnx.nn.softmax(x @ x.T, 0),
        lambda x: jnp.fft.fft(x, axis=0).real,
        lambda x: fnx.random.normal(fnx.random.key(0), x.shape) * x,
    ],
    ids="diffuse upwind wrap gradient while cond softmax fft random".split(),
)
@pytest.mark.parametrize("spec", ALL, ids=str)
def test_programs_of_parts_give_what_whole_ones_give(f, spec, at_once):
    for a, b in zip(
        fnx.tree.leaves(fnx.jit(f)(on(*spec))), fnx.tree.leaves(fnx.jit(f)(X)), strict=True
    ):
        close(a, b)


@pytest.mark.parametrize("f", [diffuse, upwind], ids=["diffuse", "upwind"])
def test_derivatives_and_batches_of_sharded_programs(f, at_once):
    loss = lambda x: sum(jnp.sum(y**2) for y in fnx.tree.leaves(f(x)))
    expected = fnx.grad(loss)(X)
    close(fnx.jit(fnx.grad(loss))(on("x", "y")), expected)
    sharded = fnx.jit(f, in_shardings=NamedSharding(mesh(), P("x", "y")))
    close(fnx.grad(lambda x: sum(jnp.sum(y**2) for y in fnx.tree.leaves(sharded(x))))(X), expected)
    _, tangent = fnx.jvp(fnx.jit(loss), (on("x"),), (jnp.ones_like(X),))
    close(tangent, jnp.sum(expected))
    many = np.stack([X, 2 * X])
    for a, b in zip(
        fnx.tree.leaves(fnx.vmap(sharded)(many)), fnx.tree.leaves(fnx.vmap(f)(many)), strict=True
    ):
        close(a, b)


def test_shardings_of_arguments_results_and_within(at_once):
    s = NamedSharding(mesh(), P("y", None))
    assert fnx.jit(lambda x: x + 1, in_shardings=s)(X).sharding == NamedSharding(mesh(), P("y"))
    assert fnx.jit(lambda x: x + 1, out_shardings=s)(X).sharding == s
    scaled = fnx.jit(lambda n, x: n * x, static_argnums=0, in_shardings=(s,))
    assert scaled(2, X).sharding == NamedSharding(mesh(), P("y"))
    one = NamedSharding(Mesh(fnx.devices()[:1], ("x",)), P("x"))
    assert lax.with_sharding_constraint(X, one).sharding == one
    abstract = NamedSharding(mesh().abstract_mesh, P("y"))
    with fnx.set_mesh(mesh()):
        assert lax.with_sharding_constraint(X, abstract).sharding == NamedSharding(mesh(), P("y"))
    inside = fnx.jit(lambda x: lax.with_sharding_constraint(x, s) + 1)
    assert inside(on("x")).sharding == NamedSharding(mesh(), P("y"))
    two = fnx.jit(lambda t: {"a": t["a"] * 2, "b": t["b"].sum()}, in_shardings={"a": s, "b": None})
    with pytest.raises(ValueError):  # the arguments are a tuple
        two({"a": X, "b": X})
    two = fnx.jit(
        lambda t: {"a": t["a"] * 2, "b": t["b"].sum()}, in_shardings=({"a": s, "b": None},)
    )
    out = two({"a": X, "b": X})
    assert out["a"].sharding == NamedSharding(mesh(), P("y"))
    close(out["b"], X.sum())
    with fnx.set_mesh(mesh()):
        named = fnx.jit(lambda x: lax.with_sharding_constraint(x, P("x")))(X)
    assert named.sharding == NamedSharding(mesh(), P("x"))


def test_axes_with_one_device_cut_nothing(at_once):
    m = fnx.make_mesh((1, 4), ("a", "b"))
    for spec in (P("a", "b"), P(("a", "b")), P(("b", "a"), None), P("a")):
        x = fnx.device_put(X, NamedSharding(m, spec))
        close(fnx.jit(upwind, out_shardings=NamedSharding(m, spec))(x), upwind(jnp.asarray(X)))
    part = fnx.shard_map(
        lambda a: a - lax.pmean(a, ("a", "b")) + lax.axis_index("a"),
        mesh=m,
        in_specs=P("a", "b"),
        out_specs=P("a", "b"),
    )
    found = fnx.jit(lambda x: part(jnp.sin(x)))(fnx.device_put(X, NamedSharding(m, P("a", "b"))))
    close(found, part(jnp.sin(X)))


def test_constraints_that_do_not_fit_say_what_does():
    with pytest.raises(InvalidValue, match=r"cuts axis 0 of f64\[15,8\] into 2 parts"):
        fnx.jit(lambda x: x, in_shardings=NamedSharding(mesh(), P("x")))(X[1:])
    with pytest.raises(InvalidValue, match="names"):
        fnx.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh(), P("z"))))(X)
    with pytest.raises(InvalidValue, match="expected each name once"):
        fnx.device_put(X, NamedSharding(mesh(), P("x", "x")))
    with pytest.raises(TypeError, match="expected a sharding"):
        lax.with_sharding_constraint(jnp.ones(2), "x")


def test_the_report_says_what_is_gathered():
    text = fnx.jit(lambda x: jnp.sort(x[:, 0])).lower(on("x")).compile().report()
    assert "all_gather of f64[16] along x: 128 bytes a device at " in text
    assert "test_sharded_jit.py" in text
    text = fnx.jit(lambda x: jnp.roll(x, 1, 0)).lower(on("x")).compile().report()
    assert "all_gather" not in text


def test_calls_see_how_their_arguments_lie():
    f = fnx.jit(lambda x: 2 * x)
    for _ in range(3):
        assert f(on("x")).sharding.spec == P("x")
        assert f(on(None, "y")).sharding.spec == P(None, "y")
        assert f(X).sharding == fnx.sharding.SingleDeviceSharding(fnx.devices()[0])
    assert f._cache_size() == 3


def test_one_device_pays_for_nothing():
    one = fnx.make_mesh((1,), ("x",))
    s = NamedSharding(one, P("x"))
    f = fnx.jit(lambda x: lax.with_sharding_constraint(2 * x, s), in_shardings=s)
    assert "sharding_constraint" not in str(f.lower(X).as_text())
    plain = fnx.jit(lambda x: 2 * x).lower(X)
    jaxpr = plain.program.jaxpr
    assert type(compiled(jaxpr, BACKEND)) is type(f.lower(X).program.compiled())


def test_shard_map_within_a_sharded_program(at_once):
    m = mesh()

    def local(a):
        return a - lax.pmean(a, ("x", "y"))

    part = fnx.shard_map(local, mesh=m, in_specs=P("x", "y"), out_specs=P("x", "y"))

    def f(x):
        return lax.scan(lambda c, _: (part(jnp.sin(c)), jnp.sum(c)), x, None, length=4)

    for a, b in zip(f(jnp.asarray(X)), fnx.jit(f)(on("x")), strict=True):
        close(a, b)


def test_numbers_that_are_not_there_spoil_nothing(at_once):
    """Behind the last element of uneven parts is anything: nan, too."""
    f = lambda x: (
        (1 / x[1:]).sum(0) + jnp.max(jnp.log(jnp.abs(x[3:])), 0) + (x[1:].T @ x[:-1]).sum(0)
    )
    close(fnx.jit(f)(on("x")), fnx.jit(f)(X))


@pytest.mark.parametrize("rows", [3, 5, 6])
def test_values_within_a_program_may_lie_in_uneven_parts(rows, at_once):
    """As in JAX; what comes of it is whole, and outside of jit no array is cut so."""
    place, x = NamedSharding(mesh(), P(("x", "y"))), X[:rows]
    lie = lambda x: jnp.cumsum(lax.with_sharding_constraint(jnp.sin(x), place), 0)
    y = fnx.jit(lie)(x)
    close(y, np.cumsum(np.sin(x), 0))
    assert y.is_fully_replicated
    assert fnx.jit(lambda x: lax.with_sharding_constraint(x, place))(x).sharding.spec == P()
    slope = fnx.jit(fnx.grad(lambda x: jnp.sum(lie(x) ** 2)))(x)
    close(slope, fnx.grad(lambda x: jnp.sum(jnp.cumsum(jnp.sin(x), 0) ** 2))(x))
    with pytest.raises(InvalidValue, match="multiple of 4"):
        lax.with_sharding_constraint(x, place)


def test_results_of_compiled_programs_lie_somewhere_for_what_follows():
    f = fnx.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh(), P("x"))))
    assert (f(X) + 1).sharding.spec == P("x")


# --- loops around programs of devices ------------------------------------------------------------


def _looped(kind):
    part = fnx.shard_map(
        lambda a: jnp.sin(a) + lax.ppermute(a, "x", [(0, 1), (1, 0)]) + lax.psum(jnp.mean(a), "y"),
        mesh=mesh(),
        in_specs=P("x", "y"),
        out_specs=P("x", "y"),
    )
    if kind == "scan":
        return lambda x: lax.scan(lambda c, _: (part(c), jnp.sum(c)), x, None, length=4)
    if kind == "while":
        return lambda x: lax.while_loop(
            lambda s: s[0] < 4, lambda s: (s[0] + 1, part(s[1])), (0, x)
        )
    inner = lambda c: lax.fori_loop(0, 2, lambda k, c: part(c) * (k + 1), c)
    return lambda x: lax.scan(lambda c, _: (inner(c), None), x, None, length=2)


@pytest.mark.parametrize("kind", ["scan", "while", "nested"])
def test_loops_around_programs_of_devices_run_in_the_team(kind, at_once):
    f = _looped(kind)
    with config.disable_jit(True):
        expected = fnx.tree.leaves(f(jnp.asarray(X)))
    for a, b in zip(fnx.tree.leaves(fnx.jit(f)(X)), expected, strict=True):
        close(a, b)
    program = fnx.jit(f).lower(X).program.compiled()
    assert [e.prim.name for e in program.of.eqns].count("shard_map") == at_once
    loss = lambda x: sum(jnp.sum(y**2.0) for y in fnx.tree.leaves(f(x)))
    if kind != "while":
        with config.disable_jit(True):
            slope = fnx.grad(loss)(jnp.asarray(X))
        close(fnx.jit(fnx.grad(loss))(X), slope)
        close(fnx.jit(fnx.vmap(f))(np.stack([X, X])[:, :, :])[0], np.stack([expected[0]] * 2))
