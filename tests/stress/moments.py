"""An interrupt after each instruction at which one may come; then all is as if there had been none.

What fnx does is run once to see the moments, and once more for each of them, chosen at random or, given
time enough, all: no lock stays taken, no setting stays changed, nothing half made is used by later calls.
"""

import gc
import random
import sys
import threading
import time
import types
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.lowering.cpu.jit import code_cache, compile_threads, llvm_options
from tests.support import interrupted
from tests.support.interrupted import Moment

PATIENCE = 20  # seconds for a thread that compiles
X = np.linspace(0.1, 1.0, 5)
Call = Callable[[], Any]  # what is interrupted; its results, when it is called again
Way = Callable[
    [float], tuple[Call, Any]
]  # of a number: a call of new functions, and NumPy's results


def _steps(x: Any, n: Any) -> Any:
    return lax.fori_loop(0, n, lambda i, s: s + jnp.sin(s) / (i + 1.0), x)


def _steps_again(x: Any, n: int) -> Any:
    for i in range(n):
        x = x + np.sin(x) / (i + 1.0)
    return x


def eager(c: float) -> tuple[Call, Any]:
    x = jnp.asarray(X)
    return lambda: [jnp.var(x * c), jnp.sin(x)[1:], x.at[0].set(c)], [
        np.var(X * c),
        np.sin(X)[1:],
        np.array([c, *X[1:]]),
    ]


def traced(c: float) -> tuple[Call, Any]:
    def f(x):
        return jnp.sum(x * jnp.cos(x * c))

    expected = np.cos(X * c) - X * c * np.sin(X * c)
    from_jaxpr = lambda: fnx.extend.core.jaxpr_as_fun(fnx.make_jaxpr(fnx.grad(f))(X))
    return lambda: from_jaxpr()(X), [expected]


def compiled(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda x: jnp.sort(-x * c) + (x[:, None] * x).sum(0))
    return lambda: [f(X)], [np.sort(-X * c) + (X[:, None] * X).sum(0)]


def recalled(c: float) -> tuple[Call, Any]:
    def made() -> Any:
        return fnx.jit(lambda x: jnp.tanh(x) + jnp.cumsum(x))

    made()(X)
    code_cache.forget()
    f = made()
    return lambda: [f(X)], [np.tanh(X) + np.cumsum(X)]


def called(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda x, k: (x + k["c"], k), static_argnums=())
    f(X, {"c": 1.0})
    return lambda: [*map(np.asarray, (f(X, {"c": c})[0], f(X[:3], {"c": c})[0]))], [
        X + c,
        X[:3] + c,
    ]


def slope(c: float) -> tuple[Call, Any]:
    f = fnx.grad(lambda x: jnp.sum(jnp.sin(x * c)))
    g = fnx.jit(fnx.grad(lambda x: _steps(x, 3) * c))
    h = 1e-6
    expected = (_steps_again(0.5 + h, 3) - _steps_again(0.5 - h, 3)) * c / (2 * h)
    return lambda: [f(X), g(0.5)], [np.cos(X * c) * c, expected]


def batched(c: float) -> tuple[Call, Any]:
    f = fnx.jit(fnx.vmap(lambda x, n: _steps(x * c, n), (0, None)))
    return lambda: [f(X, 4)], [_steps_again(X * c, 4)]


def with_callback(c: float) -> tuple[Call, Any]:
    kind = fnx.ShapeDtypeStruct((), "float64")
    half = lambda x: np.asarray(x * 0.5)
    f = fnx.jit(lambda x: lax.fori_loop(0, 3, lambda i, x: fnx.pure_callback(half, kind, x) + c, x))
    return lambda: [f(2.0)], [0.25 + 1.75 * c]


def with_rule(c: float) -> tuple[Call, Any]:
    @fnx.custom_vjp
    def f(x):
        return x * c

    f.defvjp(lambda x: (x * c, None), lambda _, t: (t * 2 * c,))
    g = fnx.jit(fnx.grad(fnx.checkpoint(lambda x: jnp.sin(f(x)))))
    return lambda: [g(0.5)], [np.cos(0.5 * c) * 2 * c]


def with_settings(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda x: jnp.sqrt(x) * c)

    def call():
        plain = fnx.disable_jit(False), fnx.default_matmul_precision("high")
        with fnx.debug_nans(), fnx.debug_infs(), plain[0], plain[1], fnx.ensure_compile_time_eval():
            return [f(X), jnp.sqrt(jnp.asarray(X))]

    return call, [np.sqrt(X) * c, np.sqrt(X)]


def observed(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda x: _steps(x * c, 5))

    def call():
        with fnx.progress():
            return [f(0.5)]

    return call, [_steps_again(0.5 * c, 5)]


def with_refs(c: float) -> tuple[Call, Any]:
    ref = fnx.new_ref(jnp.zeros(5))

    @fnx.jit
    def f(x):
        ref[...] = x * c
        return ref[...] + 1

    return lambda: [f(X), ref[...]], [X * c + 1, X * c]


def on_devices(c: float) -> tuple[Call, Any]:
    def f(x):
        return lax.psum(x * c, "i") + x

    both = fnx.pmap(f, axis_name="i")
    x = np.stack([X, 2 * X])
    return lambda: [both(x)], [3 * X * c + x]


def by_numba(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda x: jnp.sin(x) * c, backend="numba")
    g = fnx.jit(lambda x: jnp.cos(x) + 1, backend="numba")
    return lambda: [f(X), g(X)], [np.sin(X) * c, np.cos(X) + 1]


def random_numbers(c: float) -> tuple[Call, Any]:
    f = fnx.jit(lambda key: fnx.random.split(key, 2))
    expected = fnx.random.key_data(f(fnx.random.key(7)))
    return lambda: [fnx.random.key_data(fnx.random.split(fnx.random.key(7), 2))], [expected]


WAYS: dict[str, Way] = {
    f.__name__: f
    for f in (
        *(eager, traced, compiled, recalled, called, slope, batched, with_callback, with_rule),
        *(with_settings, observed, with_refs, on_devices, by_numba, random_numbers),
    )
}


# --- what must be as before ---------------------------------------------------------------------


def state() -> dict[str, Any]:
    """What an interrupt might leave behind, by name."""
    found: dict[str, Any] = {
        "collections": gc.isenabled(),
        "recursion": sys.getrecursionlimit(),
        "floating-point errors": np.geterr(),
        "warnings": len(warnings.filters),
        "crew": compile_threads.current(),
        "makers of code": len(llvm_options._makers),
        "options of LLVM": dict(llvm_options._state),
        "settings that mean nothing": dict(fnx.config._others),
    }
    for name, module in sorted(sys.modules.items()):
        if name.startswith("fnx.") and isinstance(module, types.ModuleType):
            found |= {f"{name}.{key}": kept for key, kept in _kept(module) if kept is not None}
    return found


def _kept(module: types.ModuleType) -> list[tuple[str, Any]]:
    """The values of variables of this context in a module, and whether its locks are taken."""
    found: list[tuple[str, Any]] = []
    for key, x in list(vars(module).items()):
        if type(x) is ContextVar:
            found.append((key, x.get(None)))
        elif type(x) is config.Setting:
            found.append((key, x.value))
        elif type(x) is type(threading.RLock()):
            found.append((key, x._is_owned()))
    return found


def differences(before: dict[str, Any], after: dict[str, Any]) -> str:
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return ", ".join(f"{n} is {after.get(n)!r}, was {before.get(n)!r}" for n in sorted(names))


def same(found: Any, expected: Any) -> bool:
    return all(
        np.allclose(a, b, rtol=1e-6, atol=1e-6) for a, b in zip(found, expected, strict=True)
    )


def elsewhere(c: float) -> str:
    """What is wrong with a thread that compiles something new; "" if nothing is."""
    done: list[bool] = []

    def work() -> None:
        done.append(same(*_results(compiled(c))) and same(*_results(recalled(c))))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    return "" if done == [True] else "another thread " + ("hangs" if thread.is_alive() else "fails")


def _results(made: tuple[Call, Any]) -> tuple[Any, Any]:
    return made[0](), made[1]


def wrong_after(way: Way, c: float, moment: Moment, times: int, with_thread: bool) -> str:
    """What is wrong after an interrupt at a moment; "" if nothing is."""
    call, expected = way(c)
    before = state()
    came = interrupted.interrupted(call, moment, times)
    gc.collect()
    wrong = [differences(before, state())]
    if not came:  # where nobody can catch it, or never
        return wrong[0]
    calls = {"the same": lambda: (call(), expected), "new": lambda: _results(way(c + 1))}
    for what, again in calls.items():
        try:
            found, wanted = again()
            if not same(found, wanted):
                wrong.append(f"the results of {what} functions are {found}, not {wanted}")
        except BaseException as error:
            wrong.append(f"{what} functions raise {error!r}")
    if with_thread:
        wrong.append(elsewhere(c + 2))
    return "; ".join(filter(None, wrong))


def run(seconds: float, seed: int) -> list[str]:
    """What went wrong in so many seconds, or after an interrupt at each moment."""
    rng, failures = random.Random(seed), []
    with config.num_devices(2):
        places: list[tuple[Way, Moment, int]] = []
        for way in WAYS.values():
            way(rng.random())[0]()  # which imports what it needs
            moments = interrupted.count(way(rng.random())[0])
            places += [(way, moment, rng.randint(1, n)) for moment, n in moments.items()]
        rng.shuffle(places)
        done, end = 0, time.monotonic() + seconds
        for way, moment, times in places:
            if time.monotonic() > end or len(failures) > 20:
                break
            wrong = wrong_after(way, rng.random() + 0.5, moment, times, rng.random() < 0.2)
            if wrong:
                failures.append(f"{way.__name__}: {interrupted.told(moment)}: {wrong}")
            done += 1
    sys.stdout.write(f"  done: {done} of {len(places)} moments\n")
    return failures
