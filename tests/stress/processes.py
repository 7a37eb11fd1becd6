"""Forks and new processes at random moments of threads that compile: children compile and run."""

import multiprocessing
import os
import random
import signal
import threading
import time

import numpy as np

import fnx
import fnx.numpy as jnp

PATIENCE = 60  # seconds for a child


def compile_one(c: float) -> bool:
    """Whether a new program gives NumPy's result."""
    x = np.arange(7.0)
    f = fnx.jit(lambda x: jnp.cos(x * c) + jnp.sort(x)[::-1] + jnp.fft.fft(x).real)
    return np.allclose(f(x), np.cos(x * c) + x[::-1] + np.fft.fft(x).real)


def forked(c: float) -> int:
    """The status of a child that compiles; -14 if it hangs."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(PATIENCE)
        try:
            os._exit(0 if compile_one(c) else 3)
        finally:
            os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def answer(c: float) -> None:
    raise SystemExit(0 if compile_one(c) else 3)


def spawned(c: float) -> int | None:
    """The status of a new process that compiles; None if it hangs."""
    child = multiprocessing.get_context("spawn").Process(target=answer, args=(c,))
    child.start()
    child.join(PATIENCE)
    status = child.exitcode
    child.kill()
    return status


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds."""
    choice, failures, stop = random.Random(seed), [], threading.Event()

    def compile_all(number: int) -> None:
        own = random.Random(seed + number)
        while not stop.is_set():
            if not compile_one(own.random()):
                failures.append("another result in a thread")

    threads = [threading.Thread(target=compile_all, args=(k + 1,), daemon=True) for k in range(2)]
    for thread in threads:
        thread.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and len(failures) < 10:
        time.sleep(choice.random() * 0.2)
        way = spawned if choice.random() < 0.1 else forked
        status = way(choice.random())
        if status != 0:
            failures.append(f"{way.__name__}: status {status}")
    stop.set()
    for thread in threads:
        thread.join(PATIENCE)
    return failures
