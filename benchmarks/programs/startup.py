"""What `import` costs, and what it brings in."""

from __future__ import annotations

import json
import subprocess
import sys

from measure import Settings
from program import Probe

FORBIDDEN = ("numba", "llvmlite", "scipy")
CODE = """
import json, sys, time
start = time.perf_counter()
import {name}
taken = time.perf_counter() - start
print(json.dumps([taken, [m for m in {forbidden} if m in sys.modules]]))
"""


def imported(name: str) -> tuple[float, list[str]]:
    """Seconds to import `name` in a fresh process, and which forbidden modules came with it."""
    code = CODE.format(name=name, forbidden=FORBIDDEN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise ImportError(done.stderr.strip().splitlines()[-1])
    seconds, found = json.loads(done.stdout.splitlines()[-1])
    return seconds, found


def import_time(subject: str, settings: Settings) -> list[dict]:
    """Import times, interleaved, and the number of forbidden modules."""
    samples: dict[str, list[float]] = {}
    errors: dict[str, str] = {}
    found: list[str] = []
    for _ in range(2 if settings.quick else 7):
        # fnx itself imports nothing before somebody asks for a name; everybody asks for arrays.
        names = {"subject": f"{subject}.numpy", "jax": "jax.numpy", "numpy": "numpy"}
        for label, name in names.items():
            try:
                seconds, modules = imported(name)
            except ImportError as error:
                errors[label] = str(error)
                continue
            samples.setdefault(label, []).append(seconds)
            found = modules if label == "subject" else found
    targets = {"run": {"jax": 0.5, "numpy": None}}
    timing = {"program": "import", "samples": samples, "errors": errors, "targets": targets}
    count = {"second": len(found)} if "subject" in samples else None
    modules = {
        "program": "import: numba, llvmlite, scipy loaded",
        "kernels": count,
        "error": errors.get("subject"),
        "targets": {"kernels": {"count": 0}},
    }
    return [timing, modules]


PROBES = [Probe("import", "import", import_time)]
