"""Collectives in every combination of names, groups, tiles and axes, under transformations: what a
library makes of them. `python collective_cases.py FILE`, with JAX and the environment variable
XLA_FLAGS=--xla_force_host_platform_device_count=4, keeps what JAX makes of them, in minutes.
"""

import itertools
import json
import sys

import numpy as np

GROUPS = [[0, 2], [3, 1]]
NAMES = ("y", ("y", "x"))


def collectives(lax, names, size, groups=None):
    """Name and function of each collective over `names`, whose axes have `size` members (of a group)."""
    more = {} if groups is None else {"axis_index_groups": groups}
    yield "psum", lambda a: lax.psum(a, names, **more)
    yield "pmean", lambda a: lax.pmean(a, names, **more)
    yield "psum of a tree", lambda a: lax.psum({"a": a, "b": (a[0], 2.0)}, names, **more)["b"][0]
    if groups is None:
        yield "pmax", lambda a: lax.pmax(a, names)
        yield "pmin", lambda a: lax.pmin(a, names)
        yield "axis_index", lambda a: a * lax.axis_index(names)
        ring = [(k, (k + 1) % size) for k in range(size)]
        yield "ppermute", lambda a: lax.ppermute(a, names, ring)
        yield "ppermute of some", lambda a: lax.ppermute(a, names, ring[:1])
        if isinstance(names, str):
            yield "pshuffle", lambda a: lax.pshuffle(a, names, list(range(size))[::-1])
    for k, tiled in itertools.product((0, 1, 2), (False, True)):
        if not (tiled and k == 2):
            yield (
                f"all_gather {k} {tiled}",
                lambda a, k=k, t=tiled: lax.all_gather(a, names, axis=k, tiled=t, **more),
            )
        if k < 2:
            cut = (lambda a: a) if tiled else (lambda a: a[:size, :size])
            yield (
                f"psum_scatter {k} {tiled}",
                lambda a, k=k, t=tiled, c=cut: lax.psum_scatter(
                    c(a), names, scatter_dimension=k, tiled=t, **more
                ),
            )
    for split, concat, tiled in itertools.product((0, 1), (0, 1), (False, True)):
        cut = (lambda a: a) if tiled else (lambda a: a[:size, :size])
        yield (
            f"all_to_all {split} {concat} {tiled}",
            lambda a, s=split, c=concat, t=tiled, f=cut: lax.all_to_all(
                f(a), names, s, c, tiled=t, **more
            ),
        )


def transformed(jax, f):
    """The function, its derivatives, its batch, and a loop with it: all of one array."""
    jnp, lax = jax.numpy, jax.lax

    def loss(a):
        out = f(a)
        weight = jnp.cos(jnp.arange(out.size, dtype=out.dtype)).reshape(out.shape)
        return jnp.sum(jnp.sin(out) * weight)

    def looped(a):
        def step(c, _):
            out = f(c)
            return jnp.sin(c + jnp.sum(out)), jnp.sum(out * 2)

        return lax.scan(step, a, None, length=2)[0]

    yield "plain", f
    yield "grad", jax.grad(loss)
    yield "jvp", lambda a: jax.jvp(f, (a,), (jnp.cos(a),))[1]
    yield "vmap", lambda a: jax.vmap(f, 1, 1)(jnp.stack([a, 2 * a, a - 1], 1))
    yield "scan", looped


def cases(jax):
    """A name, and a function that gives what each device has, of every case."""
    lax, P = jax.lax, jax.sharding.PartitionSpec
    grid = np.array(jax.devices()[:4], dtype=object).reshape(2, 2)
    mesh = jax.sharding.Mesh(grid, ("x", "y"))
    whole = np.random.default_rng(0).normal(size=(16, 4))
    for names in NAMES:
        for name, f in collectives(lax, names, 2 if isinstance(names, str) else 4):
            for how, g in transformed(jax, f):
                spec = P(("x", "y"))
                one = lambda a, g=g: g(a)[None]
                run = jax.shard_map(one, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
                yield f"{name} over {names}, {how}", lambda r=run: r(whole)
    parts = whole.reshape(4, 4, 4)
    for name, f in collectives(lax, "i", 2, GROUPS):
        for how, g in transformed(jax, f):
            run = jax.pmap(g, axis_name="i")
            yield f"{name} in groups, {how}", lambda r=run: r(parts)


def summary(x):
    """The shape of an array, and two numbers that tell it from others."""
    x = np.asarray(x)
    at = np.arange(x.size)
    flat = x.reshape(-1)
    return [list(x.shape), float(flat @ np.cos(at)), float(flat @ np.sin(0.7 * at))]


def outcome(run):
    """What a case gives, or that it is refused."""
    try:
        return summary(run())
    except Exception as error:
        return f"refused: {type(error).__name__}"


if __name__ == "__main__":
    import jax

    jax.config.update("jax_enable_x64", True)
    with open(sys.argv[1], "w") as file:
        json.dump({name: outcome(run) for name, run in cases(jax)}, file, indent=0)
