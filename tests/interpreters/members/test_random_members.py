"""Random programs of devices: those of whole arrays."""

import os

import numpy as np
import pytest
from agreement import close
from generators.member_programs import DTYPES, random_array, random_member
from teams import WAITING, ring

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.sharding import PartitionSpec as P

pytestmark = WAITING


ELEMENTWISE = (jnp.sin, jnp.tanh, lambda v: v * v, lambda v: jnp.where(v > 0, v, 0.5 * v))


def random_program(rng):
    """A function of a whole (8, 6), and the same of one of four devices' rows."""
    whole, member = [], []
    for kind in rng.integers(0, 6, size=rng.integers(2, 7)):
        if kind == 0:
            fn = ELEMENTWISE[rng.integers(len(ELEMENTWISE))]
            whole.append(fn)
            member.append(fn)
        elif kind == 1:
            whole.append(lambda v: v - jnp.mean(v, 0, keepdims=True))
            member.append(lambda v: v - lax.pmean(jnp.mean(v, 0, keepdims=True), "d"))
        elif kind == 2:
            whole.append(lambda v: v / (1 + jnp.max(jnp.abs(v))))
            member.append(lambda v: v / (1 + lax.pmax(jnp.max(jnp.abs(v)), "d")))
        elif kind == 3:
            whole.append(lambda v: v + jnp.roll(v, 1, 0))

            def halo(v):
                left = lax.ppermute(v[-1:], "d", ring(4))
                return v + jnp.concatenate([left, v[:-1]])

            member.append(halo)
        elif kind == 4:
            whole.append(lambda v: jnp.tanh(v @ (v.T @ v) / 8))
            member.append(lambda v: jnp.tanh(v @ lax.psum(v.T @ v, "d") / 8))
        else:
            whole.append(
                lambda v: lax.scan(lambda c, _: (c + 0.1 * (c - c.mean()), None), v, None, 3)[0]
            )
            member.append(
                lambda v: lax.scan(
                    lambda c, _: (c + 0.1 * (c - lax.pmean(c.mean(), "d")), None), v, None, 3
                )[0]
            )

    def chained(steps):
        def f(v):
            for step in steps:
                v = step(v)
            return v

        return f

    return chained(whole), chained(member)


@pytest.mark.parametrize("seed", range(int(os.environ.get("FNX_FUZZ", "8"))))
def test_random_programs_are_those_of_whole_arrays(seed, runs):
    rng = np.random.default_rng(seed)
    whole, member = random_program(rng)
    devices = fnx.make_mesh((4,), ("d",))
    f = fnx.shard_map(member, mesh=devices, in_specs=P("d"), out_specs=P("d"))
    x = rng.normal(size=(8, 6))
    close(fnx.jit(f)(x), whole(jnp.asarray(x)), 1e-10, 1e-10)
    found = fnx.jit(fnx.grad(lambda x: jnp.sum(jnp.sin(f(x)))))(x)
    close(found, fnx.grad(lambda x: jnp.sum(jnp.sin(whole(x))))(jnp.asarray(x)), 1e-9, 1e-9)
    assert runs


def test_the_largest_of_all_is_the_largest_in_the_derivative_too(runs):
    """Forwards a square is a result, and rounded; backwards the same sum may round it with itself."""

    def member(v):
        v = v * v
        v = v - lax.pmean(jnp.mean(v, 0, keepdims=True), "d")
        return jnp.tanh(v / (1 + lax.pmax(jnp.max(jnp.abs(v)), "d")))

    def whole(v):
        v = v * v - jnp.mean(v * v, 0, keepdims=True)
        return jnp.tanh(v / (1 + jnp.max(jnp.abs(v))))

    devices = fnx.make_mesh((4,), ("d",))
    f = fnx.shard_map(member, mesh=devices, in_specs=P("d"), out_specs=P("d"))
    for seed in range(4):
        x = np.random.default_rng(seed).normal(size=(8, 6))
        found = fnx.jit(fnx.grad(lambda x: jnp.sum(jnp.sin(f(x)))))(x)
        close(found, fnx.grad(lambda x: jnp.sum(jnp.sin(whole(x))))(jnp.asarray(x)), 1e-9, 1e-9)
    assert runs


TOLERANCES = {"float16": 1e-2, "bfloat16": 0.1, "float32": 1e-4, "complex64": 1e-4}


@pytest.mark.filterwarnings("ignore:Some donated buffers")
@pytest.mark.parametrize("seed", range(int(os.environ.get("FNX_FUZZ", "6"))))
def test_random_programs_are_the_same_at_once_and_in_turn(seed, runs):
    """Of any dtype, some empty, on one or two axes; also where results take over the arguments."""
    rng = np.random.default_rng(seed)
    sizes = {"a": int(rng.choice([2, 4])), **({"b": 2} if rng.random() < 0.5 else {})}
    member, chosen = random_member(rng, sizes)
    names, n = tuple(sizes), int(np.prod([*sizes.values()]))
    devices = fnx.make_mesh(tuple(sizes.values()), names)
    f = fnx.shard_map(
        member, mesh=devices, in_specs=(P(names), P(None, "a")), out_specs=P(names), check_vma=False
    )
    rows, columns = int(rng.choice([1, 3])), int(rng.choice([0, 1, 4, 65, 600]))
    shapes = (n * rows, columns), (rows, columns * sizes["a"])
    args = [random_array(rng, str(rng.choice(DTYPES)), shape) for shape in shapes]
    with config.backend("reference"):
        expected = fnx.jit(f)(*args)
    for options in ({}, {"donate_argnums": (0, 1)}):
        found = fnx.jit(f, **options)(*map(jnp.array, args))
        for a, b in zip(found, expected, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape), chosen
            tolerance = TOLERANCES.get(a.dtype.name, 1e-10 if a.dtype.kind in "fc" else 0)
            close(a.astype(complex), b.astype(complex), tolerance, tolerance)
    # Where members of another axis may branch otherwise, all compute in turn.
    assert runs or {"branch", "loop"} & {kind for kind, _ in chosen}
