"""Run stress tests by name, or all of them: a line for each, and exit code 1 if one failed."""

import argparse
import importlib
import pkgutil
import sys
import time

import tests.stress


def main(arguments: list[str] | None = None) -> int:
    """The exit code; the line's arguments, where none are given."""
    names = sorted(module.name for module in pkgutil.iter_modules(tests.stress.__path__))
    names = [name for name in names if not name.startswith("_")]
    parser = argparse.ArgumentParser(prog="python -m tests.stress", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each of them")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - set(names)
    if unknown:
        parser.error(f"no stress test {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    failed = False
    for name in chosen.names or names:
        module = importlib.import_module(f"tests.stress.{name}")
        start = time.monotonic()
        failures = module.run(chosen.minutes * 60, chosen.seed)
        failed |= bool(failures)
        said = f"{len(failures)} failures" if failures else "ok"
        sys.stdout.write(f"{name}: {said} in {time.monotonic() - start:.0f} s\n")
        for failure in failures:
            sys.stdout.write("  " + failure.replace("\n", "\n  ") + "\n")
        sys.stdout.flush()
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
