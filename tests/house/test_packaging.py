"""The wheel: fnx with its two neighbours, the marker of types, the demo's data, and no more."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from module_graph import imports

SOURCES = {"fnx": "fnx", "interpreters": "fnx/interpreters", "lowering": "fnx/lowering"}
FILES = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
# Optional, imported where it is used; llvmlite comes with numba, in the version that numba asks for;
# mpmath is for the tools that derive and measure the vector math, which programs do not load.
UNDECLARED = {"matplotlib", "llvmlite", "mpmath", "treescope"}
OPTIONAL = {
    "cuda": ("cuda-compile", "numba-cuda"),
    "mpi4py": ("mpi", "mpi4py"),
    "cupy": ("nccl", "cupy-cuda13x"),
    "cupyx": ("nccl", "cupy-cuda13x"),
}  # the extra, what it installs


@pytest.fixture(scope="module")
def wheel(repository, tmp_path_factory) -> Path:
    """A wheel built by the build backend from a copy of the sources."""
    copy = tmp_path_factory.mktemp("sources")
    for file in FILES:
        shutil.copy(repository / file, copy)
    for folder in SOURCES:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(repository / folder, copy / folder, ignore=ignore)
    (copy / "tests").mkdir()
    (copy / "tests" / "__init__.py").touch()
    build = "from setuptools import build_meta; build_meta.build_wheel('dist')"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", build], cwd=copy, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = (copy / "dist").glob("*.whl")
    return built


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_holds_every_module_and_nothing_else(wheel, repository):
    expected = {
        f"{target}/{file.relative_to(repository / folder).as_posix()}"
        for folder, target in SOURCES.items()
        for file in (repository / folder).rglob("*.py")
    }
    assert contents(wheel) == expected | {"fnx/py.typed", "fnx/demo/lynx_hare.csv"}


def test_the_wheel_carries_the_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (licence,) = (name for name in archive.namelist() if name.endswith("licenses/LICENSE"))
        assert b"Apache License" in archive.read(licence)


def test_the_unpacked_wheel_is_what_gets_imported(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    names = ["fnx", "fnx.core", "fnx.ops", "fnx.interpreters", "fnx.lowering"]
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        f"import importlib\nfor name in {names}: print(importlib.import_module(name).__file__)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [str(tmp_path) in line for line in done.stdout.split()] == [True] * len(names)


def declared(repository: Path, extra: str | None = None) -> dict[str, str]:
    """The requirements, without their bounds, and the bounds."""
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    lines = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {re.match(r"[\w.-]+", line)[0]: line for line in lines}


def test_every_import_is_declared(repository):
    used = set()
    for folder in SOURCES:
        for file in (repository / folder).rglob("*.py"):
            found = imports(file.stem, file.read_text(encoding="utf-8"), frozenset())
            used |= {name.split(".")[0] for name, _, _ in found}
    third = used - sys.stdlib_module_names - {"fnx", "", *UNDECLARED}
    assert third <= {*declared(repository), *OPTIONAL}
    for extra, requirement in OPTIONAL.values():
        assert requirement in declared(repository, extra)


def test_every_requirement_has_a_lower_bound(repository):
    for extra in (None, "plot", "cuda", "mpi", "nccl", "test", "bench", "notebook", "docs", "dev"):
        for name, line in declared(repository, extra).items():
            assert name == "fnx" or ">=" in line, line


def test_tests_do_not_need_a_rival(repository):
    served = repository / "tests/libraries/programs"  # whose jax is fnx
    for file in (repository / "tests").rglob("*.py"):
        if served in file.parents:
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        loaded = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.split(".")[0] for node in loaded for name in _names(node)}
        assert not names & {"jax", "jaxlib", "torch", "autograd"}, file.name


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
