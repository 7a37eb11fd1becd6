"""Stages of random programs that iterate: events, fixed points, adaptive steps, Newton, matrices."""

from typing import Any

import numpy as np

RNG = np.random.Generator


def events(rng: RNG, n: int) -> Any:
    """Balls that bounce: steps until an event, in a scan with a mask, since that has both derivatives."""
    most, nested = int(rng.integers(4, 12)), bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax

        def fall(s: Any) -> Any:
            h, v, bounces, done = s
            v = v - 0.2
            h = h + 0.1 * v
            hit = (h < 0) & ~done
            h = jnp.where(hit, -h, h)
            v = jnp.where(hit, -0.8 * v, v)
            return h, v, bounces + hit, done | (bounces >= 2)

        def ball(h: Any) -> Any:
            start = (jnp.abs(h) + 0.1, jnp.zeros_like(h), jnp.int32(0), jnp.bool_(False))

            def step(s: Any, _: Any) -> Any:
                new = fall(s)
                if nested:
                    new = lax.cond(s[3], lambda: s, lambda: new)
                else:
                    new = lib.api.tree_util.tree_map(lambda a, b: jnp.where(s[3], a, b), s, new)
                return new, new[0]

            (h, v, bounces, done), path = lax.scan(step, start, None, length=most)
            return h + v, (bounces, done, path)

        y, (bounces, done, path) = lib.api.vmap(ball)(x)
        return y, {"bounces": bounces, "done": done, "path": path}

    return stage


def fixed(rng: RNG, n: int) -> Any:
    """A fixed point by a while loop, with the implicit function theorem as its rule."""
    coupling = 0.4 * rng.uniform(-1, 1, (n, n)) / n
    squared = bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax, api = lib.jnp, lib.lax, lib.api
        a = jnp.asarray(coupling, x.dtype)

        def map_(x: Any, y: Any) -> Any:
            return jnp.tanh(a @ y + x) + (0.05 * y * y if squared else 0.0)

        def iterate(f: Any, y: Any) -> Any:
            close = 1e-12 if y.dtype == jnp.float64 else 1e-6
            apart = lambda s: (jnp.max(jnp.abs(s[0] - s[1])) > close) & (s[2] < 200)
            return lax.while_loop(apart, lambda s: (s[1], f(s[1]), s[2] + 1), (y + 1, y, 0))[1]

        @api.custom_vjp
        def solve(x: Any) -> Any:
            return iterate(lambda y: map_(x, y), jnp.zeros_like(x))

        def forward(x: Any) -> Any:
            y = solve(x)
            return y, (x, y)

        def backward(kept: Any, ct: Any) -> Any:
            x, y = kept
            _, by_y = api.vjp(lambda y: map_(x, y), y)
            _, by_x = api.vjp(lambda x: map_(x, y), x)
            return by_x(iterate(lambda u: ct + by_y(u)[0], jnp.zeros_like(ct)))

        solve.defvjp(forward, backward)
        y = solve(x)
        return y, {"norm": jnp.linalg.norm(y)}

    return stage


def adaptive(rng: RNG, n: int) -> Any:
    """An oscillator by Heun's method whose step adapts, a while loop without a derivative, or a scan."""
    most, loop = int(rng.integers(4, 9)), bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        right = lambda y: jnp.stack([y[1], -jnp.sin(y[0])])

        def attempt(s: Any) -> Any:
            t, dt, y, accepted, rejected = s
            k1 = right(y)
            k2 = right(y + dt * k1)
            new = y + 0.5 * dt * (k1 + k2)
            error = jnp.sqrt(jnp.mean((0.5 * dt * (k2 - k1)) ** 2)) / 0.01
            good = error < 1
            factor = jnp.clip(0.9 / jnp.sqrt(error + 1e-10), 0.3, 2.0)
            y, t = jnp.where(good, new, y), jnp.where(good, t + dt, t)
            return t, dt * factor, y, accepted + good, rejected + ~good

        start = (
            jnp.zeros((), x.dtype), jnp.full((), 0.3, x.dtype), jnp.stack([x, jnp.cos(x)]),
            jnp.int32(0), jnp.int32(0),
        )  # fmt: skip
        if loop:
            frozen = lib.api.tree_util.tree_map(lax.stop_gradient, start)
            t, dt, y, accepted, rejected = lax.while_loop(lambda s: s[3] < most, attempt, frozen)
            y = y + 0.1 * x
        else:
            (t, dt, y, accepted, rejected), _ = lax.scan(
                lambda s, _: (attempt(s), s[1]), start, None, length=most
            )
        return y[0], {"t": t, "dt": dt, "v": y[1], "counts": (accepted, rejected)}

    return stage


def newton(rng: RNG, n: int) -> Any:
    """Stiff kinetics: a Rosenbrock step with a Jacobian inside a scan, or Newton's method under vmap."""
    steps, rows, ahead = int(rng.integers(1, 4)), bool(rng.integers(2)), bool(rng.integers(2))
    rates = rng.uniform(0.1, 2.0, 3)

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax, api = lib.jnp, lib.lax, lib.api
        k = jnp.asarray(rates, x.dtype)
        jacobian = api.jacfwd if ahead else api.jacrev

        def kinetics(y: Any) -> Any:
            a, b, c = y
            return jnp.stack(
                [-k[0] * a + k[1] * b * c, k[0] * a - k[1] * b * c - k[2] * b**2, k[2] * b**2]
            )

        def reactor(x: Any) -> Any:
            def step(y: Any, _: Any) -> Any:
                j = jacobian(kinetics)(y)
                new = y + jnp.linalg.solve(jnp.eye(3, dtype=y.dtype) - 0.2 * j, 0.2 * kinetics(y))
                return new, jnp.trace(j)

            y, seen = lax.scan(step, jnp.stack([1 + x, 0.3 * x**2, 0.1 + x]), None, length=steps)
            return y[0] - y[2], seen

        y, seen = api.vmap(reactor)(x) if rows else lax.map(reactor, x)
        return jnp.tanh(y), {"seen": seen}

    return stage


def matrices(rng: RNG, n: int) -> Any:
    """What is computed of a small symmetric matrix: likelihoods, powers, spectra, exponentials."""
    way = str(rng.choice(["cholesky", "power", "eigh", "expm", "qr", "svd", "det", "lstsq"]))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax, api = lib.jnp, lib.lax, lib.api
        place = jnp.linspace(0, 1, n).astype(x.dtype)
        gram = jnp.exp(-8 * (place[:, None] - place[None]) ** 2) + 0.3 * jnp.eye(n, dtype=x.dtype)
        m = gram + 0.1 * jnp.outer(x, x) + jnp.diag(0.1 * jnp.arange(n, dtype=x.dtype))
        if way == "cholesky":
            low = jnp.linalg.cholesky(m)
            y = api.scipy.linalg.solve_triangular(low, x, lower=True)
            more: Any = jnp.sum(jnp.log(jnp.diag(low)))
        elif way == "power":
            step = lambda _, v: m @ v / jnp.linalg.norm(m @ v)
            y = lax.fori_loop(0, 5, step, jnp.ones_like(x))
            more = jnp.vdot(y, m @ y)
        elif way == "eigh":
            w, v = jnp.linalg.eigh(m)
            y, more = v**2 @ x, w
        elif way == "expm":
            y = api.scipy.linalg.expm(-0.3 * m) @ x
            more = jnp.linalg.matrix_power(m, 3)[0]
        elif way == "qr":
            q, r = jnp.linalg.qr(m)
            y, more = q @ (q.T @ x) * 0.5 + jnp.abs(jnp.diag(r)) * 0.1, jnp.abs(r[0, 0])
        elif way == "svd":
            y, more = x * 0.9, jnp.linalg.svd(m, compute_uv=False)
        elif way == "det":
            sign, log = jnp.linalg.slogdet(m)
            y, more = jnp.linalg.inv(m) @ x, (sign, log)
        else:
            basis = jnp.stack([jnp.ones_like(place), place, jnp.sin(place + 0.1 * x)], 1)
            c, _, rank, _ = jnp.linalg.lstsq(basis, x)
            y, more = basis @ c, (c, rank)
        return y, {"more": more}

    return stage


def kept(rng: RNG, n: int) -> Any:
    """A loop in a loop under checkpoint, with trees, xs, reversed order and unrolling."""
    outer, inner = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    reverse, unroll = bool(rng.integers(2)), int(rng.integers(1, 3))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax, api = lib.jnp, lib.lax, lib.api

        def small(s: Any, w: Any) -> Any:
            new = {"a": jnp.sin(s["a"] + w * s["b"]), "b": 0.9 * s["b"] + 0.1 * jnp.mean(s["a"])}
            return new, new["a"][0] * w

        @api.checkpoint
        def large(s: Any, row: Any) -> Any:
            s, seen = lax.scan(small, s, row, reverse=reverse, unroll=unroll)
            return s, (seen, jnp.argmax(s["a"]))

        rows = jnp.reshape(jnp.arange(outer * inner) * 0.1, (outer, inner)).astype(x.dtype)
        s, found = lax.scan(large, {"a": x, "b": jnp.mean(x)}, rows, reverse=not reverse)
        return s["a"] + s["b"], {"found": found}

    return stage


ITERATIONS = {
    "events": events,
    "fixed": fixed,
    "adaptive": adaptive,
    "newton": newton,
    "matrices": matrices,
    "kept": kept,
}
