"""Stages of random programs that speak of fields: implicit steps, spectra, waves, tables, sweeps."""

from typing import Any

import numpy as np

RNG = np.random.Generator


def implicit(rng: RNG, n: int) -> Any:
    """Implicit steps of the heat equation whose conductivity depends on the field."""
    steps, dt = int(rng.integers(1, 5)), float(rng.uniform(0.05, 0.4))
    way = str(rng.choice(["dense", "thomas", "tridiagonal", "cg"]))

    def thomas(lib: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax

        def forward(carry: Any, row: Any) -> Any:
            cp, dp = carry
            a, b, c, d = row
            m = b - a * cp
            return (c / m, (d - a * dp) / m), (c / m, (d - a * dp) / m)

        zero = jnp.zeros((), d.dtype)
        _, (cp, dp) = lax.scan(forward, (zero, zero), (a, b, c, d))
        back = lambda x, row: (row[1] - row[0] * x,) * 2
        return lax.scan(back, zero, (cp, dp), reverse=True)[1]

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax

        def step(u: Any, k: Any) -> Any:
            cond = 1.0 + 0.5 * jnp.tanh(u)
            face = 0.5 * (cond[1:] + cond[:-1]) * dt
            low = jnp.concatenate([jnp.zeros(1, u.dtype), -face])
            high = jnp.concatenate([-face, jnp.zeros(1, u.dtype)])
            middle = 1.0 - low - high
            if way == "thomas":
                new = thomas(lib, low, middle, high, u)
            elif way == "tridiagonal":
                new = lax.linalg.tridiagonal_solve(low, middle, high, u[:, None])[:, 0]
            else:
                full = jnp.diag(middle) + jnp.diag(low[1:], -1) + jnp.diag(high[:-1], 1)
                if way == "cg":
                    solve = lib.api.scipy.sparse.linalg.cg
                    new = solve(lambda v: full @ v, u, tol=1e-14, maxiter=3 * n)[0]
                else:
                    new = jnp.linalg.solve(full, u)
            return new, jnp.sum(new * k)

        new, sums = lax.scan(step, x, jnp.arange(steps) * 0.5)
        return new, {"sums": sums}

    return stage


def spectral(rng: RNG, n: int) -> Any:
    """Burgers' or Korteweg-de Vries' equation by Fourier transforms and an integrating factor."""
    steps, nu = int(rng.integers(1, 4)), float(rng.uniform(0.01, 0.1))
    real, third = bool(rng.integers(2)), bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        fft, ifft = (jnp.fft.rfft, jnp.fft.irfft) if real else (jnp.fft.fft, jnp.fft.ifft)
        back = (lambda c: ifft(c, n)) if real else (lambda c: jnp.real(ifft(c)))
        k = (jnp.fft.rfftfreq if real else jnp.fft.fftfreq)(n) * n
        decay = jnp.exp((-nu * k**2 + (0.01j * k**3 if third else 0.0)) * 0.1)
        kept = jnp.abs(k) < n / 3

        def step(c: Any, _: Any) -> Any:
            u = back(c)
            push = jnp.where(kept, -0.5j * k * fft(u * u), 0.0)
            c = (c + 0.1 * push) * decay
            return c.astype(fft(x).dtype), jnp.sum(jnp.abs(c) ** 2)

        c, energy = lax.scan(step, fft(x), None, length=steps)
        return back(c).astype(x.dtype), {"energy": energy, "modes": c}

    return stage


def quantum(rng: RNG, n: int) -> Any:
    """Schroedinger's equation: split steps, or Crank and Nicolson's."""
    steps, split = int(rng.integers(1, 4)), bool(rng.integers(2))
    strength = float(rng.uniform(0.2, 1.5))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        psi = x * jnp.exp(1j * 0.3 * jnp.arange(n)).astype(jnp.result_type(x, jnp.complex64))
        potential = strength * jnp.cos(2 * jnp.pi * jnp.arange(n) / n).astype(x.dtype)
        if split:
            k = 2 * jnp.pi * jnp.fft.fftfreq(n).astype(x.dtype)
            turn = jnp.exp(-0.05j * k**2)

            def step(psi: Any, _: Any) -> Any:
                half = jnp.exp(-0.05j * (potential + jnp.abs(psi) ** 2))
                new = half * jnp.fft.ifft(turn * jnp.fft.fft(half * psi))
                return new.astype(psi.dtype), jnp.vdot(psi, new)
        else:
            lap = jnp.eye(n, k=1) + jnp.eye(n, k=-1) - 2 * jnp.eye(n)
            h = (-0.5 * lap + jnp.diag(potential)).astype(psi.dtype)
            one = jnp.eye(n, dtype=psi.dtype)

            def step(psi: Any, _: Any) -> Any:
                new = jnp.linalg.solve(one + 0.05j * h, (one - 0.05j * h) @ psi)
                return new.astype(psi.dtype), jnp.vdot(new, h @ new).real

        psi, found = lax.scan(step, psi, None, length=steps)
        return (psi.real + 0.5 * psi.imag).astype(x.dtype), {"found": found, "psi": psi}

    return stage


def table(rng: RNG, n: int) -> Any:
    """An equation of state from a table: looked up, interpolated, inverted."""
    grid = np.sort(rng.uniform(-2, 2, 9))
    values = np.cumsum(rng.uniform(0.1, 1, 9))
    way, side = (
        str(rng.choice(["interp", "search", "map", "take"])),
        str(rng.choice(["left", "right"])),
    )

    def stage(lib: Any, x: Any) -> Any:
        jnp = lib.jnp
        at, of = jnp.asarray(grid, x.dtype), jnp.asarray(values, x.dtype)
        k = jnp.clip(jnp.searchsorted(at, x, side=side), 1, 8)
        if way == "interp":
            y = jnp.interp(x, at, of)
        elif way == "map":
            y = lib.api.scipy.ndimage.map_coordinates(of, [x + 4.0], order=1, mode="nearest")
        elif way == "take":
            y = jnp.take(of, k, mode="clip") * x + jnp.take_along_axis(of, k - 1, 0)
        else:
            w = (x - at[k - 1]) / (at[k] - at[k - 1])
            y = of[k - 1] * (1 - w) + of[k] * w
        return jnp.tanh(y - 2), {"bins": k, "count": jnp.bincount(k, length=9)}

    return stage


def sweep(rng: RNG, n: int) -> Any:
    """Gauss-Seidel, in place, forwards or both ways, until little changes or for some rounds."""
    rounds, both = int(rng.integers(1, 4)), bool(rng.integers(2))
    colours = bool(rng.integers(2))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax

        def relax(i: Any, u: Any) -> Any:
            mean = 0.5 * (u[(i - 1) % n] + u[(i + 1) % n])
            return u.at[i].set(0.7 * mean + 0.3 * x[i])

        def a_round(_: Any, u: Any) -> Any:
            if colours:
                for first in (0, 1):
                    mean = 0.5 * (jnp.roll(u, 1) + jnp.roll(u, -1))
                    u = u.at[first::2].set((0.7 * mean + 0.3 * x)[first::2])
                return u
            u = lax.fori_loop(0, n, relax, u)
            return lax.fori_loop(0, n, lambda i, u: relax(n - 1 - i, u), u) if both else u

        u = lax.fori_loop(0, rounds, a_round, x)
        return u, {"left": jnp.max(jnp.abs(u - x)), "where": jnp.argmax(u)}

    return stage


def volumes(rng: RNG, n: int) -> Any:
    """A conservation law with limiters: choices by signs, scans in a scan, a branch for each substep."""
    steps, kind = int(rng.integers(1, 5)), str(rng.choice(["minmod", "vanleer", "superbee"]))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax

        def limit(a: Any, b: Any) -> Any:
            if kind == "minmod":
                return jnp.where(a * b > 0, jnp.where(jnp.abs(a) < jnp.abs(b), a, b), 0.0)
            if kind == "vanleer":
                good = a * b > 0
                return jnp.where(good, 2 * a * b / jnp.where(good, a + b, 1.0), 0.0)
            r = jnp.maximum(jnp.minimum(2 * a, b), jnp.minimum(a, 2 * b))
            return jnp.sign(a) * jnp.maximum(0.0, r)

        def advance(q: Any, dt: Any) -> Any:
            slope = limit(q - jnp.roll(q, 1), jnp.roll(q, -1) - q)
            left, right = q + 0.5 * slope, jnp.roll(q - 0.5 * slope, -1)
            fast = jnp.maximum(jnp.abs(left), jnp.abs(right))
            flux = 0.25 * (left**2 + right**2) - 0.5 * fast * (right - left)
            return q - dt * (flux - jnp.roll(flux, 1))

        def step(carry: Any, _: Any) -> Any:
            q, count, fine = carry
            rough = jnp.max(jnp.abs(q - jnp.roll(q, 1))) > 0.8
            two = lambda q: lax.scan(
                lambda q, dt: (advance(q, dt), jnp.sum(q)), q, jnp.full(2, 0.05, q.dtype)
            )
            one = lambda q: (advance(q, 0.1), jnp.stack([jnp.sum(q), jnp.max(q)]))
            q, seen = lax.cond(rough, two, one, q)
            return (q, count + rough.astype(count.dtype) + 1, fine | rough), (seen, rough)

        start = (x, jnp.zeros((), jnp.int32), jnp.zeros((), bool))
        (q, count, fine), rows = lax.scan(step, start, None, length=steps)
        return q, {"count": count, "fine": fine, "rows": rows}

    return stage


def filters(rng: RNG, n: int) -> Any:
    """Signals: convolutions, recurrences, windows, ranks."""
    w = rng.uniform(-1, 1, 3)
    way = str(rng.choice(["convolve", "conv", "recurrence", "window", "ranks", "cumulative"]))

    def stage(lib: Any, x: Any) -> Any:
        jnp, lax = lib.jnp, lib.lax
        k = jnp.asarray(w, x.dtype)
        more = {}
        if way == "convolve":
            y = jnp.convolve(x, k, mode="same")
            more["full"] = jnp.correlate(x, k, mode="full")
        elif way == "conv":
            y = lax.conv_general_dilated(x[None, None], k[None, None], (1,), [(1, 1)])[0, 0]
        elif way == "recurrence":
            join = lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1])
            more["gain"], y = lax.associative_scan(join, (jnp.tanh(x), x))
        elif way == "window":
            y = lax.reduce_window(x, -jnp.inf, lax.max, (3,), (1,), [(1, 1)])
            more["sum"] = lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "VALID")
        elif way == "ranks":
            order = jnp.argsort(x)
            y = jnp.sort(x)[::-1] + 0.1 * x[order]
            top, where = lax.top_k(x, 3)
            more |= {"order": order, "top": top, "where": where, "median": jnp.median(x)}
        else:
            y = jnp.cumsum(x) / n + 0.1 * jnp.cumprod(1 + 0.1 * x)
            more["log"] = lax.cumlogsumexp(x, reverse=True)
        return jnp.tanh(y), more

    return stage


FIELDS = {
    "implicit": implicit,
    "spectral": spectral,
    "quantum": quantum,
    "table": table,
    "sweep": sweep,
    "volumes": volumes,
    "filters": filters,
}
