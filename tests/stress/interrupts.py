"""Interrupts at random moments of traces, compiles, loops, derivatives and callbacks; then all is well."""

import random
import signal
import time

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax

TIMES = 300
AGAIN = (
    6.0  # seconds after which a call that goes on is interrupted once more, and that is a failure
)


class Interrupt(BaseException):
    pass


def host(x):
    return np.asarray(np.float64(x) * 0.5)


def loop(x, n):
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1]


def with_callbacks(x, n):
    kind = fnx.ShapeDtypeStruct((), "float64")
    return lax.fori_loop(0, n, lambda _, c: fnx.pure_callback(host, kind, c), x)


def compiling(c: float) -> None:
    f = lambda x: jnp.sort(x * c) + jnp.cumsum(jnp.sin(x)) + (x[:, None] * x).sum(0)
    fnx.jit(fnx.vmap(f))(np.ones((3, 5)))


def tracing(c: float) -> None:
    fnx.make_jaxpr(fnx.grad(lambda x: sum(jnp.sin(x * k * c) for k in range(300))))(1.0)


WAYS = {
    "trace": tracing,
    "compile": compiling,
    "loop": lambda c: fnx.jit(loop)(c, 10**10),
    "derivative": lambda c: fnx.jit(fnx.grad(loop))(c, 10**10),
    "batch": lambda c: fnx.jit(fnx.vmap(loop, (0, None)))(c * np.ones(9), 10**10),
    "callback": lambda c: fnx.jit(with_callbacks)(c, 10**10),
    "eager": lambda c: [jnp.sin(jnp.ones(50) * c).sum() for _ in range(10**6)],
}


def is_well(c: float) -> bool:
    """Whether programs that are new, and known, give NumPy's results."""
    x = np.arange(5.0)
    new = np.allclose(fnx.jit(lambda x: jnp.cos(x * c) + jnp.sort(x))(x), np.cos(x * c) + x)
    slope = fnx.grad(lambda x: jnp.sin(x) * c)(0.5)
    return new and np.allclose(slope, np.cos(0.5) * c) and np.allclose(fnx.jit(loop)(0.5, 0), 0.5)


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds, or after TIMES interrupts."""
    choice, failures = random.Random(seed), []

    def interrupt(*_):
        raise Interrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    end = time.monotonic() + seconds
    try:
        for _ in range(TIMES):
            if time.monotonic() > end or len(failures) > 10:
                break
            name, c = choice.choice(list(WAYS)), choice.random()
            problem = interrupted(WAYS[name], c, choice.random() * 0.3)
            if problem:
                failures.append(f"{name}: {problem}")
            if not is_well(c):
                failures.append(f"{name}: another result afterwards")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return failures


def interrupted(way, c: float, after: float) -> str:
    """What is wrong with the end of a call that is interrupted; "" if nothing is."""
    began = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, after, AGAIN)
        way(c)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Interrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        return repr(error)
    late = time.monotonic() - began - after
    return f"{late:.1f} s late" if late > AGAIN - 1 else ""
