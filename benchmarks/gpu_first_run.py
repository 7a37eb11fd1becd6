"""What a machine with a GPU can tell in a quarter of an hour, the most informative first.

    python benchmarks/gpu_first_run.py OUT [--seconds 900] [--no-install] [--rehearse]

Each stage is a process, or several side by side, with a limit of its own; what they print lies in OUT, a
file each, and OUT/summary.txt says after each stage how it ended. --rehearse runs the same stages in
Numba's simulator, on few checks: all but what needs a GPU.
"""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = [
    ROOT / "tests" / p for p in ("support", "support/primitives", "support/generators", "ops")
]
PYTHON = (sys.executable, "-u")
_LEFT_OUT = "needs a GPU"


class Stage(NamedTuple):
    """Commands that run side by side, for so many seconds at most."""

    name: str
    seconds: float
    commands: list[Sequence[str]]
    needs_gpu: bool = False
    settings: tuple[tuple[str, str], ...] = ()


# Groups of figures with limits in seconds, one after another: each alone on the GPU.
FIGURES = {
    "calls": 20, "rounds": 20, "bandwidth": 30, "matmul": 20, "arrays": 80, "lanes": 40, "lorenz": 80,
}  # fmt: skip


def figures(rehearse: bool) -> list[Stage]:
    """What fnx's programs take on the GPU (`gpu_figures.py`), beside JAX's if it is there."""
    beside = importlib.util.find_spec("jax") is not None and not rehearse
    how = "--jax" if beside else "--here"
    command = [*PYTHON, str(ROOT / "benchmarks" / "gpu_figures.py"), how]
    chosen = ["calls"] if rehearse else [*FIGURES]
    return [Stage(f"figures {n}", FIGURES[n], [[*command, n]]) for n in chosen]


def stages(rehearse: bool, install: bool) -> list[Stage]:
    """All of them, in order."""
    crew = 2 if rehearse else min(os.cpu_count() or 1, 8)
    share = 60 * crew if rehearse else crew  # of the checks: a few for a rehearsal
    checks = lambda group, tool=(), n=crew, of=share: [
        [*tool, *PYTHON, "-m", "simulated", group, f"{k}/{of}"] for k in range(n)
    ]
    every = (("FNX_FUZZ", "1"),)  # samples of all primitives
    tool = [shutil.which("compute-sanitizer") or "compute-sanitizer", "--error-exitcode", "9"]
    pytest = [*PYTHON, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cuda"]
    some = ["transforms/test_grad.py", "lax/test_control_flow.py", "ops/test_primitives.py"]
    some = some[:1] if rehearse else some
    table = [*PYTHON, str(ROOT / "benchmarks" / "run.py"), "--device", "cuda", "--quick"]
    found = [
        Stage("packages", 30, [[*PYTHON, "-m", "pip", "list"]]),
        Stage("machine", 30, [["nvidia-smi", "-q"]], True),
        Stage("steps", 90, [[*PYTHON, __file__, "--step", name] for name in STEPS]),
        *figures(rehearse),
        Stage("calls", 60, checks("calls", n=1, of=1)),
        Stage("samples", 200, checks("samples"), settings=() if rehearse else every),
        Stage("programs", 120, checks("programs")),
        Stage("tests", 120, [[*pytest, "-m", "not slow", f"tests/{name}"] for name in some]),
        Stage("memory errors", 90, checks("samples", [*tool, "--tool", "memcheck"], 4, 40), True),
        Stage("races", 60, checks("programs", [*tool, "--tool", "racecheck"], 4, 20), True),
    ]
    chosen = ["Jacobi 1-D"] if rehearse else ["stencils", "kernels", "networks"]
    for name in chosen:  # one after another: they are timed
        found.append(
            Stage(f"benchmarks {name}", 90, [[*table, "--only", name, "--metrics", "warm"]])
        )
    if install:
        extra = [*PYTHON, "-m", "pip", "install", "--quiet", "-e", f"{ROOT}[test,cuda]"]
        found.insert(1, Stage("install", 180, [extra]))
    return found


# --- first steps: what goes wrong first, alone --------------------------------------------------------


def _driver() -> None:
    from fnx.lowering.cuda.backend import driver

    found = driver()
    print(found.place.device_kind, getattr(found, "architecture", "simulated"))


def _memory() -> None:
    import numpy as np

    from fnx.lowering.cuda.backend import driver

    x = np.arange(1000.0)
    memory, other = (driver().allocate(x.nbytes) for _ in range(2))
    driver().upload(memory, 0, x)
    driver().copy(other, 0, memory, 0, x.nbytes)
    np.testing.assert_array_equal(driver().download(other, 800, (900,), "float64"), x[100:])
    print(driver().memory_stats())


def _compare(f, *args) -> None:
    import numpy as np

    import fnx

    found = fnx.tree.leaves(fnx.jit(f, backend="cuda")(*args))
    for a, b in zip(found, fnx.tree.leaves(f(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


def _numbers():
    import numpy as np

    simulated = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
    return np.random.default_rng(0).normal(size=60 if simulated else 100_000)


def _elementwise() -> None:
    import fnx.numpy as jnp

    _compare(lambda x: jnp.sin(x) * jnp.exp(x) + x, _numbers())


def _reductions() -> None:
    _compare(lambda x: (x.sum(), x.max(), x.reshape(10, -1).sum(0)), _numbers())


def _atomics() -> None:
    import fnx.numpy as jnp

    _compare(lambda x: jnp.zeros(50, "int64").at[(x * 9).astype(int)].add(1), _numbers())


def _scatter() -> None:
    import fnx.numpy as jnp

    at = lambda x: (abs(x) * 300).astype(int)
    _compare(
        lambda x: (jnp.zeros(900).at[at(x)].add(x), jnp.zeros(900).at[at(x)].set(x)), _numbers()
    )


def _sorting() -> None:
    import fnx.numpy as jnp

    _compare(lambda x: (jnp.sort(x), jnp.argsort(x)), _numbers())


def _graphs() -> None:
    from fnx import lax

    f = lambda x: lax.fori_loop(0, 20, lambda i, v: v + 0.1 * v.mean() / v.max(), x)
    _compare(f, _numbers())


def _rounds() -> None:
    from fnx import lax

    f = lambda x: lax.while_loop(lambda v: v.max() > 0.1, lambda v: v / 2 + 0 * v.sum(), x)
    _compare(f, _numbers())


def _threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: _graphs() if k % 2 else _elementwise(), range(4)))


def _libraries() -> None:
    import numpy as np

    import fnx.numpy as jnp

    n = 6 if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1" else 300
    a = np.random.default_rng(0).normal(size=(n, n))
    _compare(lambda a: (a @ a, jnp.linalg.cholesky(a @ a.T), jnp.linalg.inv(a), jnp.fft.fft(a)), a)


STEPS = {
    f.__name__[1:]: f
    for f in (
        _driver, _memory, _elementwise, _reductions, _atomics, _scatter, _sorting, _graphs, _rounds,
        _threads, _libraries,
    )
}  # fmt: skip


# --- running ----------------------------------------------------------------------------------------


def run(stage: Stage, out: Path, seconds: float, environment: dict[str, str]) -> dict:
    """How the commands of a stage ended; what they print goes to files."""
    start, codes = time.monotonic(), []
    limit = min(stage.seconds, seconds)
    started = []
    for k, command in enumerate(stage.commands):
        path = out / f"{stage.name.replace(' ', '_')}_{k}.txt"
        with path.open("w") as file:
            file.write(" ".join(map(str, command)) + "\n\n")
            file.flush()
            try:
                process = subprocess.Popen(
                    command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
                    env=environment | dict(stage.settings), start_new_session=True,
                )  # fmt: skip
                started.append(process)
            except OSError as error:
                file.write(str(error))
                codes.append(type(error).__name__)
    for process in started:
        try:
            process.wait(max(limit - (time.monotonic() - start), 0.1))
            codes.append(process.returncode)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            codes.append("time was over")
    return {"stage": stage.name, "codes": codes, "seconds": round(time.monotonic() - start, 1)}


def environment(rehearse: bool, out: Path) -> dict[str, str]:
    """Of all stages: where they find checks, and keep code."""
    path = os.pathsep.join([str(ROOT), *map(str, SUPPORT), os.environ.get("PYTHONPATH", "")])
    found = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    found["FNX_CACHE_DIR"] = str(out / "cache")
    found["PYTHONFAULTHANDLER"] = "1"
    return found | ({"NUMBA_ENABLE_CUDASIM": "1"} if rehearse else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, nargs="?", help="a folder for all that is written")
    parser.add_argument("--seconds", type=float, default=900.0, help="for all stages together")
    parser.add_argument("--no-install", action="store_true", help="what is installed suffices")
    parser.add_argument("--rehearse", action="store_true", help="in the simulator, few checks")
    parser.add_argument("--step", choices=STEPS, help="make one first step, in this process")
    options = parser.parse_args()
    if options.step:
        STEPS[options.step]()
        print("ok")
        return 0
    if options.out is None:
        parser.error("expected a folder to write to")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end, ended = time.monotonic() + options.seconds, []
    install = not (options.no_install or options.rehearse)
    for stage in stages(options.rehearse, install):
        left = end - time.monotonic()
        if stage.needs_gpu and options.rehearse:
            found = {"stage": stage.name, "codes": [_LEFT_OUT], "seconds": 0.0}
        elif left < 5:
            found = {"stage": stage.name, "codes": ["no time was left"], "seconds": 0.0}
        else:
            found = run(stage, out, left, environment(options.rehearse, out))
        ended.append(found)
        (out / "summary.json").write_text(json.dumps(ended, indent=1))
        lines = [f"{e['stage']:16}{e['seconds']:7.1f} s  {e['codes']}" for e in ended]
        (out / "summary.txt").write_text("\n".join(lines) + "\n")
        print(lines[-1], flush=True)
    return int(any(code not in (0, _LEFT_OUT) for e in ended for code in e["codes"]))


if __name__ == "__main__":
    sys.exit(main())
