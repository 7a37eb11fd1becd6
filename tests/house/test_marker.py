"""The marker `slow` leaves a choice that touches every file of tests, and leaves out most cases."""

import ast
import re
import subprocess
import sys

# What the extra 'notebook' is needed for.
WHOLLY_SLOW = {"test_notebooks.py"}


def marked(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any("mark.slow" in ast.unparse(x) for x in node.decorator_list)


def test_every_file_has_tests_that_are_not_slow(repository):
    for file in (repository / "tests").rglob("test_*.py"):
        body = ast.parse(file.read_text(encoding="utf-8")).body
        tests = [x for x in body if isinstance(x, ast.FunctionDef) and x.name.startswith("test_")]
        quick = [x.name for x in tests if not marked(x)]
        assert quick or not tests or file.name in WHOLLY_SLOW, file


def test_one_case_of_many_is_not_slow(repository):
    """Each test of the file is collected, most of its cases are not."""
    file = "tests/ops/test_primitives.py"
    names = {}
    for mark in ("not slow", "slow or not slow"):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", mark, file]
        done = subprocess.run(command, cwd=repository, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout
        names[mark] = re.findall(r"^\S+::(\w+)", done.stdout, re.M)
    quick, every = names.values()
    assert set(quick) == set(every)
    assert 4 * len(quick) < len(every)
