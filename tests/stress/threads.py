"""Many threads call many functions while others compile: each result is NumPy's."""

import random
import threading
import time

import numpy as np

import fnx
import fnx.numpy as jnp

FUNCTIONS = 50
CALLERS, COMPILERS = 16, 2


def made(k: int):
    """Function `k`, and the same by NumPy."""
    c = 0.1 + k / 7
    kinds = [
        (lambda x: jnp.sin(x * c) + x, lambda x: np.sin(x * c) + x),
        (lambda x: jnp.sort(x * c), lambda x: np.sort(x * c)),
        (lambda x: jnp.cumsum(x) * c, lambda x: np.cumsum(x) * c),
        (lambda x: (x[:, None] * x).sum(0) * c, lambda x: (x[:, None] * x).sum(0) * c),
        (lambda x: jnp.fft.fft(x * c).real, lambda x: np.fft.fft(x * c).real),
        (fnx.grad(lambda x: (jnp.cos(x) * c).sum()), lambda x: -np.sin(x) * c),
    ]
    return kinds[k % len(kinds)]


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds."""
    functions = [(fnx.jit(f), g) for f, g in map(made, range(FUNCTIONS))]
    end, failures = time.monotonic() + seconds, []

    def check(f, g, n: int, rng) -> None:
        x = rng.normal(size=n)
        if not np.allclose(f(x), g(x), rtol=1e-9, atol=1e-9):
            failures.append(f"another result of {n} elements")

    def work(number: int, compiles: bool) -> None:
        rng, choice = np.random.default_rng(seed + number), random.Random(seed + number)
        while time.monotonic() < end and len(failures) < 10:
            try:
                if compiles:
                    f, g = made(choice.randrange(10**6))
                    check(fnx.jit(f), g, choice.randrange(2, 60), rng)
                else:
                    check(*choice.choice(functions), choice.choice([3, 50, 3000]), rng)
            except Exception as error:
                failures.append(f"thread {number}: {error!r}")

    workers = [
        threading.Thread(target=work, args=(k, k < COMPILERS)) for k in range(CALLERS + COMPILERS)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(seconds + 120)
        if worker.is_alive():
            failures.append("a thread hangs")
    return failures
