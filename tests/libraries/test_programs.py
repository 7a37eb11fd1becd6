"""Programs that use libraries written for JAX, on fnx by one line: `pip install 'fnx[libraries-test]'`."""

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("programs/with_*.py"))


def test_there_is_a_program_for_each_library_of_the_extra():
    names = {path.stem.removeprefix("with_") for path in PROGRAMS}
    ten = "chex diffrax distrax equinox flax haiku jaxtyping lineax optax optimistix"
    assert names >= set(ten.split())


def imported(path):
    """The packages that a program imports."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    names = [a.name for node in nodes if isinstance(node, ast.Import) for a in node.names]
    names += [node.module for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in names}


def run(path, tmp_path):
    """What a program prints that runs by the line."""
    for module in imported(path) - {"jax"}:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed, see the extra 'libraries-test'")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fnx.jax", str(path)],
        cwd=tmp_path,
        env=os.environ | {"FNX_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_a_library_runs(path, tmp_path):
    run(path, tmp_path)


def test_the_program_of_the_page_runs(tmp_path):
    page = Path(__file__).parents[2].joinpath("docs/howto/libraries.md").read_text("utf-8")
    (program,) = re.findall(r"```py\n(import fnx\.jax.*?)```", page, re.DOTALL)
    path = tmp_path / "program.py"
    path.write_text(program, "utf-8")
    numbers = [float(x) for x in re.findall(r"-?\d+\.\d+e-\d+", run(path, tmp_path))]
    assert numbers == pytest.approx([5.517e-8, -9.614e-5, -4.278e-5, 8.555e-5], rel=0.01)
