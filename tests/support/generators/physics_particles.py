"""Stages of random programs that speak of particles: deposits, forces, noise, rotations, lattices."""

from typing import Any

import numpy as np

RNG = np.random.Generator


def cloud(rng: RNG, n: int) -> Any:
    """Particles in cells: deposit, field, push, with the cell of each in the carry."""
    steps, cells = int(rng.integers(1, 4)), int(rng.integers(3, 7))
    way, order = str(rng.choice(["segment", "at", "onehot"])), int(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        count = jnp.asarray(np.arange(n) % 3, jnp.int32)

        def deposit(w: Any, cell: Any) -> Any:
            if way == "segment":
                return lib.api.ops.segment_sum(w, cell, num_segments=cells)
            if way == "at":
                return jnp.zeros(cells, w.dtype).at[cell].add(w)
            return lib.api.nn.one_hot(cell, cells, dtype=w.dtype).T @ w

        def step(carry: Any, _: Any) -> Any:
            at, v, crossed = carry
            low = jnp.floor(at).astype(jnp.int32)
            w = at - low if order else jnp.ones_like(at)
            rho = deposit(w, low % cells) + deposit(1 - w, (low + 1) % cells)
            field = 0.5 * (jnp.roll(rho, -1) - jnp.roll(rho, 1))
            force = field[low % cells] * w + field[(low + 1) % cells] * (1 - w)
            v = v - 0.1 * force
            new = at + 0.3 * v
            crossed = crossed + (jnp.floor(new).astype(jnp.int32) != low)
            return (new % cells, v, crossed), rho

        start = ((x + 1.5) % cells, jnp.tanh(x), count)
        (at, v, crossed), rho = lax.scan(step, start, None, length=steps)
        return v, {"at": at, "crossed": crossed, "rho": rho}

    return stage


def bodies(rng: RNG, n: int) -> Any:
    """Bodies that attract each other: a softened distance, forces by grad of the energy or by hand."""
    steps, by_grad = int(rng.integers(1, 4)), bool(rng.integers(2))
    masked = bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        place = jnp.stack([x, jnp.cos(3 * x), jnp.arange(n, dtype=x.dtype) * 0.3], 1)

        def energy(p: Any) -> Any:
            d = p[:, None] - p[None]
            if masked:
                far = jnp.where(jnp.eye(n, dtype=bool)[..., None], 1.0, d)
                r = jnp.linalg.norm(far, axis=-1)
                return -0.5 * jnp.sum(jnp.where(jnp.eye(n, dtype=bool), 0.0, 1 / (r + 0.5)))
            return -0.5 * jnp.sum(1 / jnp.sqrt(jnp.sum(d * d, -1) + 0.3))

        def force(p: Any) -> Any:
            if by_grad:
                return -lib.api.grad(energy)(p)
            d = p[:, None] - p[None]
            return -jnp.einsum("ijk,ij->ik", d, (jnp.sum(d * d, -1) + 0.3) ** -1.5)

        def step(s: Any, _: Any) -> Any:
            p, v = s
            v = v + 0.02 * force(p)
            return (p + 0.1 * v, v), energy(p)

        (p, v), energies = lax.scan(step, (place, jnp.zeros_like(place)), None, length=steps)
        return p[:, 0] + v[:, 1], {"energies": energies, "nearest": jnp.argmin(jnp.abs(p[:, 0]))}

    return stage


def noise(rng: RNG, n: int) -> Any:
    """Keys in the carry of a loop: Langevin's equation, or Metropolis' choice with a count."""
    steps, seed = int(rng.integers(1, 5)), int(rng.integers(1000))
    way = str(rng.choice(["langevin", "metropolis", "folded", "chosen"]))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax, random = lib.jnp, lib.lax, lib.api.random

        def step(carry: Any, i: Any) -> Any:
            key, u, taken = carry
            key, own = random.split(key)
            if way == "langevin":
                new = u - 0.1 * u + 0.3 * random.normal(own, u.shape, u.dtype)
                return (key, new, taken + 1), jnp.sum(new)
            if way == "folded":
                own = random.fold_in(own, i)
                new = u * random.uniform(own, u.shape, u.dtype, 0.5, 1.5)
                return (key, new, taken + random.bernoulli(own)), jnp.max(new)
            if way == "chosen":
                order = random.permutation(own, n)
                k = random.categorical(own, u)
                return (key, u[order] * 0.9, taken + k.astype(taken.dtype)), u[k]
            a, b = random.split(own)
            trial = u + 0.5 * random.normal(a, u.shape, u.dtype)
            rise = jnp.sum(trial**2 - u**2)
            good = jnp.log(random.uniform(b, (), u.dtype)) < -rise
            return (key, jnp.where(good, trial, u), taken + good), rise

        start = (
            random.key(seed) if seed % 2 else random.PRNGKey(seed),
            x,
            jnp.zeros((), jnp.int32),
        )
        (_, u, taken), seen = lax.scan(step, start, jnp.arange(steps))
        return u, {"taken": taken, "seen": seen}

    return stage


def rotation(rng: RNG, n: int) -> Any:
    """Rigid bodies, each by its quaternion: products, cross products, norms, under vmap."""
    steps = int(rng.integers(1, 4))
    axes = rng.normal(size=3)

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        about = jnp.asarray(axes, x.dtype)

        def turned(angle: Any) -> Any:
            def step(q: Any, _: Any) -> Any:
                rate = jnp.concatenate([jnp.zeros(1, q.dtype), about * angle])
                s, v = q[0], q[1:]
                new = jnp.concatenate(
                    [-jnp.dot(v, rate[1:])[None], s * rate[1:] + jnp.cross(v, rate[1:])]
                )
                q = q + 0.1 * new
                return q / jnp.linalg.norm(q), q[0]

            start = jnp.zeros(4, x.dtype).at[0].set(1.0)
            q, seen = lax.scan(step, start, None, length=steps)
            return jnp.arctan2(q[1], q[0]) + q[3], seen

        y, seen = lib.api.vmap(turned)(x)
        return y, {"seen": seen}

    return stage


def lattice(rng: RNG, n: int) -> Any:
    """Spins and cells of integers and truth values that a field turns over."""
    steps, rule = int(rng.integers(1, 5)), int(rng.integers(256))
    kind = str(rng.choice(["int8", "int32", "bool", "uint8"]))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        bits = jnp.asarray(np.array([rule >> k & 1 for k in range(8)]), jnp.int32)
        start = (x > 0).astype(kind)

        def step(carry: Any, i: Any) -> Any:
            s, total = carry
            t = s.astype(jnp.int32)
            code = 4 * jnp.roll(t, 1) + 2 * t + jnp.roll(t, -1)
            new = bits[code].astype(kind)
            new = lax.select(jnp.arange(n) % 2 == i % 2, new, s)
            weight = jnp.sum(jnp.where(new.astype(bool), x, -x))
            flips = jnp.sum(new != s)
            return (new, total + weight), (flips, lax.population_count(code))

        (s, total), rows = lax.scan(step, (start, jnp.zeros((), x.dtype)), jnp.arange(steps))
        y = jnp.where(s.astype(bool), x, 0.5 * x) + 0.01 * total
        return y, {"state": s, "rows": rows, "any": jnp.any(s), "sum": jnp.sum(s)}

    return stage


PARTICLES = {
    "cloud": cloud,
    "bodies": bodies,
    "noise": noise,
    "rotation": rotation,
    "lattice": lattice,
}
