"""Libraries that are written for JAX, on fnx by `import fnx.jax`, beside the same on JAX.

Each program runs in two processes, one a system, that take turns.
"""

from __future__ import annotations

import ast
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from measure import Settings
from program import Probe

HERE = Path(__file__).resolve().parent.parent
STEADY = {"run": {"jax": 1.0}}
ENSEMBLE = {"run": {"jax": 0.12}}
FIRST = {"run": {"jax": 1.0}}
STACK = """
import importlib, sys, time
start = time.perf_counter()
if sys.argv[1] == "fnx":
    import fnx.jax
import equinox, diffrax, optax
print(time.perf_counter() - start)
"""


class Served:
    """A process that times one program."""

    def __init__(self, system: str, family: str, name: str, cache: str) -> None:
        env = dict(os.environ, FNX_CACHE_DIR=cache, JAX_PLATFORMS="cpu", JAX_ENABLE_X64="1")
        env.pop("JAX_COMPILATION_CACHE_DIR", None)
        command = [sys.executable, str(HERE / "library_worker.py"), system, family, name]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, env=env, text=True, stdin=pipe, stdout=pipe, stderr=pipe
        )
        self.imported = self.read()

    def ask(self, line: str) -> Any:
        """The answer to a line; RuntimeError with the last line of the error if there is none."""
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            pass
        return self.read()

    def read(self) -> Any:
        """One answer."""
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        said = self.process.stderr.read().strip().splitlines() or ["no word"]
        raise RuntimeError(said[-1][:300])

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.communicate()


def measured(name: str, family: str, subject: str, settings: Settings) -> list[dict]:
    """Records of the first call and of steady ones."""
    samples: dict[str, list[float]] = {}
    first: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    results: dict[str, list] = {}
    served: dict[str, Served] = {}
    tolerance, ensemble = about(family, name)
    with tempfile.TemporaryDirectory() as cache:
        for label, system in (("subject", subject), ("jax", "jax")):
            try:
                served[label] = Served(system, family, name, cache)
                first[label] = [served[label].ask("first")]
                results[label] = served[label].ask("result")
            except RuntimeError as error:
                errors[label] = str(error)
                served.pop(label, None)
        if said := differ(results, tolerance):
            errors["subject"] = f"wrong result: {said}"
        try:
            samples = in_turns(served, settings)
        except RuntimeError as error:
            errors["subject"] = str(error)
        for process in served.values():
            process.end()
    targets = ENSEMBLE if ensemble else STEADY
    steady = {"program": name, "samples": samples, "errors": errors, "targets": targets}
    once = {"group": "first calls", "samples": first, "targets": FIRST}
    return [steady, steady | once]


def in_turns(served: dict[str, Served], settings: Settings) -> dict[str, list[float]]:
    """Seconds of calls, a sample each a round."""
    numbers = {k: max(1, round(settings.sample / s.ask("steady 1"))) for k, s in served.items()}
    samples: dict[str, list[float]] = {k: [] for k in served}
    began = time.perf_counter()
    for done in range(settings.rounds):
        if done >= settings.fewest and time.perf_counter() - began > settings.budget:
            break
        for label, process in served.items():
            samples[label].append(process.ask(f"steady {numbers[label]}"))
    return samples


def differ(results: dict[str, list], tolerance: float) -> str | None:
    """Where two results are not the same, within a tolerance of their largest entries."""
    if len(results) < 2:
        return None
    ours, theirs = results["subject"], results["jax"]
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs, the reference has {len(theirs)}"
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        error = np.abs(np.subtract(a, b)).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-6)
        if not error <= tolerance:
            return (
                f"output {k} differs by {error:.2g} of its largest entry, allowed {tolerance:.2g}"
            )
    return None


@functools.cache
def listed() -> dict[str, tuple[str, float, bool]]:
    """Family, tolerance and kind of each program, read without importing the libraries."""
    found = {}
    for path in sorted((HERE / "libraries").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Case":
                given = {k.arg: ast.literal_eval(k.value) for k in node.keywords}
                name = ast.literal_eval(node.args[0])
                about = given.get("tolerance", 1e-6), given.get("ensemble", False)
                found[name] = (path.stem, *about)
    return found


def about(family: str, name: str) -> tuple[float, bool]:
    """Tolerance of a program, and whether it is an ensemble."""
    return listed()[name][1:]


def imports(subject: str, settings: Settings) -> list[dict]:
    """Seconds to import the whole stack."""
    samples: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    for _ in range(2 if settings.quick else 7):
        for label, system in (("subject", subject), ("jax", "jax")):
            command = [sys.executable, "-c", STACK, system]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                errors[label] = done.stderr.strip().splitlines()[-1]
            else:
                samples.setdefault(label, []).append(float(done.stdout.split()[-1]))
    about = {"samples": samples, "errors": errors, "targets": {"run": {"jax": 1.0}}}
    return [{"program": "import equinox, diffrax, optax", "group": "import", **about}]


def probe(name: str, family: str) -> Probe:
    """The figures of one program."""
    return Probe(
        name, "libraries", lambda subject, settings: measured(name, family, subject, settings)
    )


PROBES = [
    *[probe(name, family) for name, (family, *_) in listed().items()],
    Probe("import equinox, diffrax, optax", "libraries", imports),
]
