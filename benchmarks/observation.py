"""`python benchmarks/observation.py`: what it costs to observe loops, and not to.

Bars and checks of loops: the same compiled loop with `fnx.progress()`, `fnx.debug_nans()`,
`fnx.debug_index()` or `checkify`, and without, in turns within one process; all are compiled before. Calls:
two processes in turns, of which one has profiled, shown progress and looked for nan before, and does none
of it any more.
Beside the median of ratios stands the ratio of the fastest, which other work on the machine disturbs least.
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from measure import Spread, Timed

SIZES = {"a number": (), "1,000 numbers": (1000,), "100,000 numbers": (100_000,)}
ROUNDS, WORKERS = 11, 4


def loops(quick: bool) -> dict[str, tuple[Callable, Any]]:
    """Loops of most of a second, so that bars are drawn, of cheap and of costly iterations."""
    import fnx
    import fnx.numpy as jnp
    from fnx import lax

    fnx.config.update("num_devices", 2)  # which says nothing of threads

    def step(c: Any, _: Any) -> tuple:
        return jnp.sin(c) * 0.999 + 0.001, None

    found = {}
    many = lambda work: max(10, int((1e8 if quick else 5e8) / (work + 10)))
    for size, shape in SIZES.items():
        n = many(max(1, *shape) if shape else 1)
        x = jnp.full(shape, 0.5)
        scan = lambda x, n=n: lax.scan(step, x, None, length=n)[0]
        while_ = lambda x, n=n: lax.while_loop(
            lambda v: v[0] < n, lambda v: (v[0] + 1, step(v[1], None)[0]), (0, x)
        )[1]
        found[f"scan of {size}"] = scan, x
        found[f"while_loop of {size}"] = while_, x
        found[f"gradient of a scan of {size}"] = (
            fnx.grad(lambda x, n=n // 5: lax.scan(step, x, None, length=n)[0].sum()), x,
        )  # fmt: skip
    loop = lambda n: lambda x: lax.scan(step, x, None, length=n)[0]
    found["scan of 100 members (vmap)"] = fnx.vmap(loop(many(100))), jnp.full(100, 0.5)
    found["scan on two devices (pmap)"] = fnx.pmap(loop(many(1))), jnp.full(2, 0.5)
    return found


def cpu_times(functions: list[Callable], x: Any, rounds: int) -> list[list[float]]:
    """Seconds of processors, of all threads, in turns: the drawing counts, other programs do not."""
    found: list[list[float]] = [[] for _ in functions]
    for f in functions:
        f(x)
    for k in range(rounds):
        for j in range(len(functions)):
            which = (j + k) % len(functions)
            start = time.process_time()
            functions[which](x)
            found[which].append(time.process_time() - start)
    return found


Row = tuple[str, Spread, float, float]  # name, ratios, that of the fastest, seconds without


def row(name: str, off: list[float], on: list[float]) -> Row:
    """The figures of samples that were taken in turns."""
    ratios = Spread.of([b / a for a, b in zip(off, on)])
    return name, ratios, min(on) / min(off), Spread.of(off).median


def bars(quick: bool) -> list[Row]:
    """With bars to without."""
    import fnx

    rows = []
    sys.stderr = io.StringIO()  # bars are drawn, and seen by nobody
    for name, (f, x) in loops(quick).items():
        compiled = fnx.jit(f)

        def shown(x: Any, compiled: Callable = compiled) -> Any:
            with fnx.progress():
                return compiled(x)

        off, on = cpu_times([compiled, shown], x, 5 if quick else ROUNDS)
        rows.append(row(name, off, on))
    sys.stderr = sys.__stderr__
    return rows


def simulation(shape: tuple[int, ...], n: int) -> Callable:
    """The last value of a loop with a division, a logarithm and a table that is looked up."""
    import fnx.numpy as jnp
    from fnx import lax

    table = jnp.linspace(0.5, 1.0, 64)

    def step(c: Any, i: Any) -> tuple:
        return jnp.log1p(c * table[i % 64]) / (c + 0.5) + 0.1, None

    return lambda x: lax.scan(step, x, jnp.arange(n))[0].sum()


def checks(quick: bool) -> list[Row]:
    """With checks to without, of functions and of their gradients."""
    import fnx
    import fnx.numpy as jnp
    from fnx.experimental import checkify

    rows = []
    for size, shape in SIZES.items():
        n = max(10, int((2e6 if quick else 1e7) / (max(1, *shape, 1) + 10)))
        loop = simulation(shape, n)
        x = jnp.full(shape, 0.5)
        for kind, f in (("", loop), ("gradient of ", fnx.grad(loop))):
            found = cpu_times([fnx.jit(f), *checked(fnx, checkify, f)], x, 5 if quick else ROUNDS)
            names = ("debug_nans", "debug_index", "checkify, all checks")
            rows += [row(f"{kind}{size}: {k}", found[0], on) for k, on in zip(names, found[1:])]
    return rows


def checked(fnx: Any, checkify: Any, f: Callable) -> list[Callable]:
    """f with each of the ways to check it."""
    compiled = fnx.jit(f)
    everything = fnx.jit(checkify.checkify(f, errors=checkify.all_checks))

    def within(manager: Callable) -> Callable:
        def call(x: Any) -> Any:
            with manager():
                return compiled(x)

        return call

    return [within(fnx.debug_nans), within(fnx.debug_index), lambda x: everything(x)[0].throw()]


def work(observed: bool) -> dict[str, float]:
    """In a process of its own: seconds of calls, of which the fastest counts."""
    import fnx
    import fnx.numpy as jnp
    from fnx import lax

    f = fnx.jit(lambda x: x + 1.0)
    g = fnx.jit(lambda x: lax.fori_loop(0, 1000, lambda i, c: c * 0.5 + 1.0, x))
    x = jnp.ones(8)
    if observed:
        sys.stderr = io.StringIO()
        with fnx.profile(), fnx.progress(), fnx.debug_nans(), fnx.debug_index():
            f(x), g(x), fnx.vmap(jnp.sin)(x)
        fnx.debug.explore(f, x)
        repr(fnx.show(f)(x))
    found = {}
    for name, function in (("a call", f), ("a loop", g), ("an eager operation", lambda x: x + x)):
        timed = Timed(function, (x,), lambda y: None)
        timed.seconds(1000)
        found[name] = min(timed.seconds(2000) for _ in range(20))
    return found


def calls(rounds: int) -> list[Row]:
    """A process that has observed to one that has not."""
    found: dict[str, dict[str, list[float]]] = {"": {}, "yes": {}}
    for _ in range(rounds):
        for observed, samples in found.items():
            command = [sys.executable, __file__, "--worker", observed]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for name, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                samples.setdefault(name, []).append(seconds)
    return [row(name, off, found["yes"][name]) for name, off in found[""].items()]


def show(title: str, rows: list[Row]) -> None:
    """A table of ratios, with quartiles."""
    print(f"\n{title}")
    for name, ratio, fastest, seconds in rows:
        spread = f"{ratio.median:8.4f} ({ratio.low:.4f} to {ratio.high:.4f})"
        print(f"  {name:44} {spread:30} fastest {fastest:8.4f} {seconds * 1e3:10.4g} ms without")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter loops, few rounds")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        print(json.dumps(work(bool(options.worker))))
        return
    show("with bars, to without", bars(options.quick))
    show("with checks, to without", checks(options.quick))
    show("after observation, to without", calls(2 if options.quick else WORKERS))


if __name__ == "__main__":
    main()
