"""`python -m tests.libraries NAME...`: the test suites of libraries written for JAX, on JAX and on fnx.

Makes two virtual environments (with JAX; without it, but with fnx), gets the library's sources, runs its
tests in both, and writes the table in docs/libraries.md. Opt-in: it needs a network, and hours for all.
"""

import argparse
import json
import subprocess
import sys
import venv
from pathlib import Path

from . import outcomes, table
from .suites import SUITES, Suite

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Run the suites that the command line names."""
    options = parse()
    for name in options.names or list(SUITES):
        if name not in SUITES:
            sys.exit(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    work = Path(options.work).resolve()
    work.mkdir(parents=True, exist_ok=True)
    for name in options.names or list(SUITES):
        suite = SUITES[name]
        theirs, ours = pythons(options, work, suite)
        source = sources(options, work, suite)
        result = measured(suite, source, theirs, ours, options)
        table.keep(name, result)
        say(f"{name} {result.version}: {result.passed} of {result.counted}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.libraries", description=__doc__)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help=f"of {', '.join(SUITES)}; without one, all")
    add("--work", default=str(ROOT / ".libraries"), help="folder for environments and sources")
    add("--sources", help="folder with a checkout of each library, by name, instead of cloning")
    add("--theirs", help="an interpreter that has JAX and the libraries, instead of a new one")
    add("--ours", help="an interpreter that has fnx and the libraries, instead of a new one")
    add(
        "--files", nargs="+", default=[""], help="only test files whose path has one of these parts"
    )
    add("--again", action="store_true", help="with JAX only files that it was not asked before")
    add("--fnx-first", action="store_true", help="with JAX only tests that do not pass with fnx")
    add("--timeout", type=float, default=1800.0, help="seconds for a process with files of tests")
    add("--together", type=int, default=1, help="so many files in a process, which saves imports")
    return parser.parse_args()


def pythons(options: argparse.Namespace, work: Path, suite: Suite) -> tuple[str, str]:
    """The interpreter with JAX, and the one without it, that has the same libraries and fnx."""
    if options.theirs and options.ours:
        return options.theirs, options.ours
    theirs, ours = (environment(work / kind) for kind in ("with-jax", "with-fnx"))
    pip(theirs, suite.name, *suite.needs, "pytest", "jax>=0.10,<0.11")
    frozen = subprocess.run(
        [theirs, "-m", "pip", "freeze"], capture_output=True, text=True, check=True
    )
    same = [p for p in frozen.stdout.splitlines() if p.split("==")[0] not in ("jax", "jaxlib")]
    pip(ours, "--no-deps", *same)
    pip(ours, "-e", str(ROOT))
    return theirs, ours


def environment(place: Path) -> str:
    """The interpreter of a virtual environment, made if it is not there."""
    if not place.exists():
        venv.create(place, with_pip=True)
    return str(place / "bin" / "python")


def pip(python: str, *arguments: str) -> None:
    """Install into an environment."""
    subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)


def sources(options: argparse.Namespace, work: Path, suite: Suite) -> Path:
    """A checkout of the library."""
    if options.sources:
        return Path(options.sources, suite.name).resolve()
    place = work / "sources" / suite.name
    if not place.exists():
        tag = ["--branch", suite.tag] if suite.tag else []
        clone = ["git", "clone", "--depth", "1", *tag, suite.repository, str(place)]
        subprocess.run(clone, check=True)
    return place


def measured(
    suite: Suite, source: Path, theirs: str, ours: str, options: argparse.Namespace
) -> outcomes.Result:
    """The outcomes in both environments of the test files asked for, and of those asked for before."""
    kept = Path(options.work) / f"{suite.name}.json"
    said: outcomes.Said = json.loads(kept.read_text()) if kept.exists() else {}
    plugins = ["fnx.jax", *filter(None, [suite.plugin])]
    for paths in batched(outcomes.files(suite, source, options.files), options.together):
        if options.fnx_first:
            said |= outcomes.with_fnx_first(theirs, ours, paths, source, plugins, options.timeout)
            for path in paths:
                say(f"  {path}: {outcomes.both(*said[path])}")
            kept.write_text(json.dumps(said, indent=1))
            continue
        new = [p for p in paths if not (options.again and said.get(p, ({}, {}))[0])]
        jax = {p: said[p][0] for p in paths if p in said}
        jax |= outcomes.run(theirs, new, source, [], options.timeout) if new else {}
        good = [p for p in paths if outcomes.PASSED in jax[p].values()]
        fnx = outcomes.run(ours, good, source, plugins, options.timeout) if good else {}
        for path in paths:
            said[path] = jax[path], fnx.get(path, {})
            say(f"  {path}: {outcomes.both(*said[path])}")
        kept.write_text(json.dumps(said, indent=1))
    asked = f"import importlib.metadata as m; print(m.version({suite.name!r}))"
    told = subprocess.run([ours, "-c", asked], capture_output=True, text=True, check=not suite.tag)
    version = suite.tag or told.stdout.strip()
    left_out = [path for path in outcomes.files(suite, source) if path not in said]
    return outcomes.compared(suite, version, said, left_out)


def batched(items: list[str], size: int) -> list[list[str]]:
    """Some at a time."""
    return [items[k : k + size] for k in range(0, len(items), size)]


def say(text: str) -> None:
    """A line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


main()
