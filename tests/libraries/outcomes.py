"""Runs the test files of a library with one interpreter, and compares what two of them say."""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

from .suites import Suite

PASSED = ""  # what is said of a test that passed
PLUGINS = Path(__file__).parent
PRIVATE = "private to JAX"  # in what is said of a test that cannot be asked of fnx (private_jax.py)
UNASKED = "passes with fnx; JAX was not asked"


Said = dict[str, tuple[dict[str, str], dict[str, str]]]  # by file: by test, what JAX and fnx say


class Result(NamedTuple):
    """What two runs of a suite say: how many tests JAX passes, how many of these fnx, and the others."""

    version: str
    counted: int
    passed: int
    failed: dict[str, str]  # by test: what is known, or the error
    uncounted: dict[str, int]  # by reason
    files: list[str]  # that were run
    left_out: list[str]  # the other test files of the suite
    unasked: int  # of those counted: tests that pass with fnx and were not run with JAX


def files(suite: Suite, source: Path, only: Sequence[str] = ("",)) -> list[str]:
    """The test files of a checkout whose paths in it have one of some parts."""
    found = [p for folder in suite.tests for p in sorted((source / folder).rglob(suite.files))]
    paths = [str(p.relative_to(source)) for p in found]
    return [p for p in paths if any(part in p for part in only)]


def run(
    python: str, paths: Sequence[str], source: Path, plugins: list[str], timeout: float, *files: str
) -> dict[str, dict[str, str]]:
    """What each test of some files says, in one process; the plugin fnx.jax makes `jax` mean fnx.

    Paths may be single tests, then their files are named besides.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [python, "-m", "pytest", "-q", *paths, f"--junitxml={report}"]
        command += [word for plugin in plugins for word in ("-p", plugin)]
        command += ["-p", "no:cacheprovider", "--tb=short", "--continue-on-collection-errors"]
        env = dict(os.environ, JAX_ENABLE_X64="1", JAX_PLATFORMS="cpu", PYTHONHASHSEED="0")
        places = filter(None, [str(PLUGINS), env.get("PYTHONPATH")])
        env["PYTHONPATH"] = os.pathsep.join(places)
        start = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=source, env=env, capture_output=True, text=True, timeout=timeout
            )
            ended = f"the process ended with status {done.returncode}"
        except subprocess.TimeoutExpired:
            ended = f"no end within {time.monotonic() - start:.0f} s"
        said = dict(_read(report)) if report.exists() else {}
    return {path: _of(path, said) or {path: ended} for path in files or paths}


def with_fnx_first(
    theirs: str, ours: str, paths: Sequence[str], source: Path, plugins: list[str], timeout: float
) -> Said:
    """What fnx says of all tests, and JAX of those alone that do not pass with fnx."""
    said: Said = {}
    for path, words in run(ours, paths, source, plugins, timeout).items():
        bad = [
            _node(path, name)
            for name, word in words.items()
            if word != PASSED and PRIVATE not in word
        ]
        asked = (
            [path] if path in words or len(bad) > 100 else bad
        )  # a file that said nothing: whole
        jax = run(theirs, asked, source, [], timeout, path) if bad else {}
        unasked = {name: UNASKED for name, word in words.items() if word == PASSED}
        said[path] = unasked | jax.get(path, {}), words
    return said


def _node(path: str, name: str) -> str:
    """What pytest calls a test of a file."""
    module = path.removesuffix(".py").replace("/", ".")
    classes, test = re.fullmatch(r"((?:[A-Z]\w*\.)*)(.*)", name.removeprefix(f"{module}.")).groups()  # type: ignore[union-attr]
    return f"{path}::{classes.replace('.', '::')}{test}"


def both(theirs: dict[str, str], ours: dict[str, str]) -> str:
    """How many of the tests that JAX passes pass with fnx."""
    good = [name for name, word in theirs.items() if word in (PASSED, UNASKED)]
    return f"{sum(ours.get(name) == PASSED for name in good)} of {len(good)}"


def _of(path: str, said: dict[str, str]) -> dict[str, str]:
    """What is said of the tests of one file, whose names begin with its module's."""
    module = path.removesuffix(".py").replace("/", ".")
    return {name: word for name, word in said.items() if f"{name}.".startswith(f"{module}.")}


def _read(report: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}".strip(".")
        bad = [*case.iter("failure"), *case.iter("error")]
        if bad:
            lines = (bad[0].get("message") or bad[0].text or "no message").strip().splitlines()
            yield name, lines[0][:160]
            continue
        skipped = " ".join(s.get("message") or "" for s in case.iter("skipped"))
        if not [*case.iter("skipped")] or PRIVATE in skipped:
            yield name, skipped[:160]


def compared(suite: Suite, version: str, said: Said, left_out: list[str]) -> Result:
    """What fnx's runs say about the tests that JAX's runs passed."""
    failed: dict[str, str] = {}
    uncounted: dict[str, int] = {}
    counted = unasked = 0
    for path, (theirs, ours) in said.items():
        for name, word in theirs.items():
            if word.startswith("no end within"):
                reason = "files of tests that did not end with JAX in the time given"
                uncounted[reason] = uncounted.get(reason, 0) + 1
            if word == "collection failure":
                reason = "files of tests that JAX's run cannot import, which need more packages"
                uncounted[reason] = uncounted.get(reason, 0) + 1
            if word not in (PASSED, UNASKED):
                continue
            unasked += word == UNASKED
            error = ours.get(name, ours.get(path, "did not run"))
            text = f"{name} {error}".lower()
            reason = next((why for part, why in suite.uncounted.items() if part in text), None)
            if error != PASSED and reason is not None:
                uncounted[reason] = uncounted.get(reason, 0) + 1
                continue
            counted += 1
            if error != PASSED:
                failed[name] = next(
                    (why for part, why in suite.known.items() if part in text), error
                )
    passed = counted - len(failed)
    return Result(version, counted, passed, failed, uncounted, list(said), left_out, unasked)
