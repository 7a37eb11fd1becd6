"""Ctrl-C in programs that would run for hours: each loop, wherever it stands, asks whether to stop."""

import faulthandler
import os
import signal
import subprocess
import sys
import time

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

N = 10**10  # iterations: a minute and more
PATIENCE = 60  # seconds for a program to compile and to stop; it takes less than one


def turned(c):
    return jnp.sin(c) * 0.999


def by_while(x, n, step=turned):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, step(c[1])), (0, x))[1]


def by_fori(x, n, step=turned):
    return lax.fori_loop(0, n, lambda _, c: step(c), x)


def converged(x, n):
    """A condition on floating-point numbers: no count is in sight."""
    body = lambda c: (turned(c[0]), c[1] + 1.0)
    return lax.while_loop(lambda c: (c[1] < n) & (c[0] < 2), body, (x, jnp.zeros(())))[0]


def updated(x, n):
    """An array that each iteration changes at one place."""
    step = lambda i, c: c.at[i % 64].set(jnp.sin(c[(i + 1) % 64]))
    return lax.fori_loop(0, n, step, x * jnp.ones(64)).sum()


def chosen(x, n):
    return by_while(x, n, lambda c: lax.cond(c > 0.5, lambda c: c * 0.9, lambda c: c + 0.3, c))


def with_rule(x, n):
    @fnx.custom_vjp
    def f(x, n):
        return by_while(x, n)

    f.defvjp(lambda x, n: (x, n), lambda n, ct: (by_while(ct, n), None))
    return f(x, n)


def in_scan(x, n):
    return lax.scan(lambda c, _: (by_while(c, n), None), x, None, length=1000)[0]


def in_while(x, n):
    """Each inner loop is short, and far longer than anybody guesses."""
    return by_while(x, n, lambda c: by_fori(c, n // N * 200_000))


def in_map(x, n):
    return lax.map(lambda c: by_while(c, n), x * jnp.arange(3.0)).sum()


def in_long_map(x, n):
    short = lambda c: by_while(c, n // N * 100_000)
    return lax.map(short, x * jnp.arange(10_000_000.0)).sum()


def long_scan(x, n):
    inner = lambda c: lax.scan(lambda c, _: (turned(c), None), c, None, length=N)[0]
    return lax.scan(lambda c, _: (inner(c), None), x, None, length=3)[0]


def long_kernel(x, n):
    i = jnp.arange(300_000.0)
    return jnp.sin(i[:, None] * i[None, :] * x).sum()


def lanes(x, n):
    return fnx.vmap(by_while, (0, None))(x * jnp.arange(8.0), n).sum()


def uneven_lanes(x, n, at=1999):
    """One element of many runs for ever, in one of the threads; the others wait."""
    ends = jnp.where(jnp.arange(2000) == at, n, 3)
    return fnx.vmap(by_while)(x * jnp.ones(2000), ends).sum()


def first_lane(x, n):
    return uneven_lanes(x, n, 0)


def middle_lane(x, n):
    return uneven_lanes(x, n, 1000)


LOOPS = (by_while, by_fori, converged, updated, chosen, with_rule, in_scan, in_while, in_map)
FORWARD = (
    *LOOPS,
    in_long_map,
    long_scan,
    long_kernel,
    lanes,
    uneven_lanes,
    first_lane,
    middle_lane,
)
PROGRAMS = {f.__name__: f for f in FORWARD}
PROGRAMS |= {f"grad {f.__name__}": fnx.grad(f) for f in (*LOOPS, lanes, uneven_lanes)}
PROGRAMS |= {
    f"jvp {f.__name__}": lambda x, n, f=f: fnx.jvp(lambda x: f(x, n), (x,), (1.0,))
    for f in (by_while, in_scan, lanes)
}
PROGRAMS |= {
    f"vmap grad {f.__name__}": lambda x, n, f=f: fnx.vmap(fnx.grad(f), (0, None))(
        x * jnp.arange(5.0), n
    )
    for f in (by_while, by_fori, updated)
}


class Stop(Exception):
    pass


def stop(*_):
    raise Stop


def stopped(name: str) -> float:
    """Seconds after the signal until a program has stopped."""
    compiled = fnx.jit(PROGRAMS[name]).lower(0.7, N).compile()
    signal.signal(signal.SIGALRM, stop)
    start = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        compiled(0.7, N)
    except Stop:
        return time.monotonic() - start - 0.3
    return -1.0


@pytest.mark.parametrize("threads", [1, 3])
def test_programs_stop(threads):
    """In a process of its own, which ends itself where a program goes on."""
    ended = run_all(threads)
    seconds = dict(line.rsplit(":", 1) for line in ended.stdout.splitlines())
    assert list(seconds) == list(PROGRAMS), ended.stderr
    assert all(0 <= float(s) < PATIENCE for s in seconds.values()), seconds


def run_all(threads):
    env = {**os.environ, "FNX_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "tests.lowering.cpu.test_interrupts"]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)


if __name__ == "__main__":
    for name in PROGRAMS:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        sys.stdout.write(f"{name}:{stopped(name):.3f}\n")
        sys.stdout.flush()
