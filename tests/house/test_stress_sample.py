"""A few seconds of each stress test, as its command runs it."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

STRESS = Path(__file__).resolve().parents[1] / "stress"
NAMES = [m.name for m in pkgutil.iter_modules([str(STRESS)]) if not m.name.startswith("_")]


def stress(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "tests.stress", *arguments]
    return subprocess.run(
        command, cwd=STRESS.parents[1], capture_output=True, text=True, timeout=300
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_each(name):
    done = stress(name, "--minutes", "0.05", "--seed", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: ok" in done.stdout


def test_a_name_that_there_is_not_is_told():
    done = stress("no_such_test")
    assert done.returncode == 2
    assert all(name in done.stderr for name in ["no_such_test", *NAMES])


def test_a_failure_is_told_and_is_the_exit_code(tmp_path):
    code = (
        "import sys; from tests.stress import __main__, cache\n"
        "cache.run = lambda seconds, seed: [f'{seconds} {seed} went wrong']\n"
        "sys.exit(__main__.main(['cache', '--minutes', '2', '--seed', '7']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=STRESS.parents[1], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "cache: 1 failures" in done.stdout
    assert "120.0 7 went wrong" in done.stdout
