"""Programs that use libraries written for JAX, on fnx by one line: `pip install 'fnx[libraries-test]'`."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = sorted(Path(__file__).parent.glob("programs/with_*.py"))


def test_there_is_a_program_for_each_library_of_the_extra():
    names = {path.stem.removeprefix("with_") for path in PROGRAMS}
    assert names >= set("diffrax distrax equinox haiku jaxtyping lineax optax optimistix".split())


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_of_a_library_runs(path, tmp_path):
    library = path.stem.removeprefix("with_")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed, see the extra 'libraries-test'")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fnx.jax", str(path)],
        cwd=tmp_path,
        env=os.environ | {"FNX_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
