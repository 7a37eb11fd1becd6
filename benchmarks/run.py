"""`python benchmarks/run.py`: fnx beside JAX, Numba and NumPy; prints, writes and draws the figures."""

from __future__ import annotations

import argparse
import fnmatch
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import against
import report
from programs import GROUPS, PROBES, PROGRAMS
from session import CORES, METRICS, Session

HERE = Path(__file__).parent
PACKAGES = ("numpy", "scipy", "numba", "llvmlite", "jax", "jaxlib", "autograd", "fnx")


def main() -> None:
    """Measure what the command line selects."""
    options = parse()
    chosen = select(options.only, options.skip)
    if options.list:
        for name in chosen:
            print(f"{(PROGRAMS.get(name) or PROBES[name]).group:14} {name}")
        return
    if options.against:
        options.only, options.full = chosen, not options.quick
        against.compare(HERE.parent, Path(options.against).resolve(), options)
        return
    session = Session(options)
    rows = session.measure(chosen)
    titles = {name: group.title for name, group in GROUPS.items()}
    text = report.table(rows, titles, options.subject) + report.stages_table(session.stages)
    print(text)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    about = {"machine": machine(), "options": vars(options)}
    details = {"stages": session.stages, "raw": session.raw}
    report.write_json(out / "benchmarks.json", rows, about | details)
    (out / "benchmarks.txt").write_text(text + "\n")
    written = [out / "benchmarks.json", out / "benchmarks.txt"]
    if report.picture(out / "benchmarks.png", rows, titles, options.subject):
        written.append(out / "benchmarks.png")
    print("\nwritten:", *written)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("--only", nargs="*", default=[], help="groups, names, parts of names, patterns with *")
    add("--skip", nargs="*", default=[], help="the same, left out")
    add("--metrics", nargs="*", choices=METRICS, default=METRICS, help="kinds of figures")
    add("--rounds", type=int, default=15, help="samples of each contender at most")
    add("--budget", type=float, default=8.0, help="seconds for the samples of a program")
    add("--processes", type=int, default=3, help="repeats of compile figures")
    add("--threads", type=int, nargs="*", help="counts to measure at, for every group")
    add("--timeout", type=float, default=300.0, help="seconds without an answer from a worker")
    add("--quick", action="store_true", help="small sizes, few rounds: does everything run?")
    add("--subject", default="fnx", help="the library under test (jax: shows the noise)")
    add("--out", default=str(HERE / "out"), help="folder for JSON, text and picture")
    add("--against", metavar="CHECKOUT", help="beside another checkout, which has its .venv")
    add("--list", action="store_true", help="only name what would be measured")
    add("--backend", default="", help="what fnx compiles for: cpu, numba")
    add("--device", choices=("cpu", "cuda"), default="cpu", help="where fnx and JAX run")
    options = parser.parse_args()
    if options.device == "cuda":
        options.backend = "cuda"
        find_gpu()
    if options.backend:  # of the workers, which inherit it
        os.environ["FNX_BACKEND"] = options.backend
    if options.quick:
        options.rounds, options.processes = min(options.rounds, 3), 1
        options.budget = min(options.budget, 1.0)
    return options


def find_gpu() -> None:
    """End with what is missing, where nothing can run on a GPU; JAX then runs on one, too."""
    from fnx.core.errors import FnxError
    from fnx.lowering.cuda.backend import driver

    try:
        print(f"GPU: {driver().place.device_kind}")
    except FnxError as error:
        sys.exit(
            f"--device cuda: {error}\nNUMBA_ENABLE_CUDASIM=1 simulates a GPU: it shows that programs run, "
            "at small sizes, and no times."
        )
    os.environ["FNX_BENCH_PLATFORM"] = "cuda"


def select(only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """Names of programs and probes in the order of the groups."""
    items = {**PROGRAMS, **PROBES}

    def matches(words: Sequence[str], name: str) -> bool:
        group = items[name].group
        return any(
            w == group if w in GROUPS else fnmatch.fnmatch(name.lower(), f"*{w.lower()}*")
            for w in words
        )

    for word in [*only, *skip]:
        if not any(matches([word], name) for name in items):
            sys.exit(f"nothing is called {word!r}; --list shows groups and names")
    found = [n for n in items if (not only or matches(only, n)) and not matches(skip, n)]
    return sorted(found, key=lambda n: list(GROUPS).index(items[n].group))


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "processor": processor(),
        "cores": CORES,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: version(name) for name in PACKAGES},
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def processor() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    text = info.read_text() if info.exists() else ""
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.processor()


def version(package: str) -> str | None:
    """The installed version, None where there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
