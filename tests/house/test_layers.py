"""Who may import whom: every module's imports, local ones and annotations included, against the rooms."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from module_graph import PACKAGES, ROOMS, imports, may_use, modules, room

import fnx

CORE_MAY_USE = {"numpy", "ml_dtypes"}
LOADED_LATE = {"numba", "llvmlite", "scipy"}
# What the printed Numba Python imports, and what compiles it.
LATE_THEMSELVES = {
    f"fnx.lowering.numba.{name}"
    for name in "calls compiler instructions load memory operations passes runtime".split()
}
FILES = 22  # at most so many in a folder, its __init__ counted
# Folders whose files are module paths of JAX, so that others decide how many there are.
PATHS = ("fnx", "fnx.scipy.stats", "fnx.jax.src")


def bad_arrows(sources: dict[str, str], packages: set[str] = frozenset()) -> list[str]:
    """The imports that the table of rooms forbids."""
    bad, known = [], frozenset(sources)
    for module, source in sources.items():
        own = room(module)
        for name, at_load, _ in imports(module, source, known, module in packages):
            top = name.split(".")[0]
            if top == "fnx":
                if not may_use(own, room(name)):
                    bad.append(f"{module} ({own}) imports {name} ({room(name)})")
            elif own == "core" and top not in CORE_MAY_USE | sys.stdlib_module_names:
                bad.append(f"{module} (core) imports {name}")
            elif own != "demo" and at_load and top in LOADED_LATE and module not in LATE_THEMSELVES:
                bad.append(f"{module} imports {name} when it is loaded")
    return bad


def cycles(sources: dict[str, str], packages: set[str] = frozenset()) -> list[str]:
    """One cycle of imports, local ones and those for type checkers included, or []."""
    known = frozenset(sources)
    graph = {
        module: {
            name
            for name, *_ in imports(module, source, known, module in packages)
            if name in sources and name != module
        }
        for module, source in sources.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


@pytest.fixture(scope="module")
def house():
    files = modules()
    packages = {name for name, file in files.items() if file.name == "__init__.py"}
    return {name: file.read_text(encoding="utf-8") for name, file in files.items()}, packages


def test_every_arrow_is_allowed(house):
    assert bad_arrows(*house) == []


def test_what_is_imported_exists(house):
    sources, packages = house
    known = frozenset(sources)
    missing = [
        f"{module} imports {name}"
        for module, source in sources.items()
        for name, *_ in imports(module, source, known, module in packages)
        if name.split(".")[0] == "fnx" and name not in sources
    ]
    assert missing == []


def test_no_import_cycles(house):
    assert cycles(*house) == []


def test_rooms_use_each_other_one_way():
    arrows = {
        own: {other for other in ROOMS if other != own and may_use(own, other)} for own in ROOMS
    }
    TopologicalSorter(arrows).prepare()


def test_every_room_has_modules_and_every_package_is_seen(house):
    sources, packages = house
    assert {room(name) for name in sources} == set(ROOMS)
    assert set(PACKAGES) <= packages


def test_folders_are_rooms_of_one_view(house):
    sources, packages = house
    held = {p: [n for n in sources if n.rpartition(".")[0] == p or n == p] for p in packages}
    inner = {p: [n for n in names if n == p or n not in packages] for p, names in held.items()}
    assert {p: len(n) for p, n in inner.items() if len(n) > FILES and p not in PATHS} == {}


def test_files_beside_the_face_define_nothing(house):
    """A file directly in fnx/ is a module path that programs may import: a docstring and imports."""
    sources, packages = house
    for module, source in sources.items():
        if room(module) == "faces" and module not in packages:
            kinds = {type(node) for node in ast.parse(source).body}
            assert kinds <= {ast.Expr, ast.ImportFrom, ast.Assign}, module


def test_every_file_begins_with_its_concept(house):
    bare = [name for name, source in house[0].items() if not ast.get_docstring(ast.parse(source))]
    assert bare == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fnx.core.aval", "from fnx.ops import sin"),
        ("fnx.core.aval", "import scipy.linalg"),
        ("fnx.core.aval", "def f():\n    import fnx.numpy"),
        ("fnx.core.aval", "def f():\n    importlib.import_module('fnx.numpy')"),
        ("fnx.ops.base.sin", "from fnx.lowering import kernel"),
        ("fnx.ops.base.sin", "from fnx.ops.linalg import lu"),
        ("fnx.ops.base.sin", "import fnx"),
        ("fnx.ops.base.sin", "from fnx.interpreters.trace import Trace"),
        ("fnx.interpreters.jvp", "def f():\n    from fnx.lowering.cpu import compile"),
        ("fnx.interpreters.jvp", "from fnx import numpy"),
        ("fnx.interpreters.jvp", "from ..lowering import kernel"),
        ("fnx.interpreters.jvp", "from .passes import simplify"),
        ("fnx.interpreters.passes.dce", "from fnx.interpreters.reverse import residuals"),
        ("fnx.lowering.cpu.backend", "from fnx.ops.base.sin import sin"),
        ("fnx.lowering.cpu.backend", "from ...ops import sin"),
        ("fnx.lowering.cpu.backend", "import numba"),
        ("fnx.lowering.ir.traversal", "from fnx.lowering.generate import storage"),
        ("fnx.lowering.generate.storage", "def f():\n    from fnx.lowering.cpu import backend"),
        (
            "fnx.lowering.transform.a",
            "if TYPE_CHECKING:\n    from fnx.lowering.generate import storage",
        ),
        ("fnx.numpy.elementwise.ufuncs", "from fnx.transforms.jit import jit"),
        ("fnx.numpy.elementwise.ufuncs", "class A:\n    from fnx.lowering import cpu"),
        ("fnx.random", "try:\n    import scipy.special\nexcept ImportError:\n    pass"),
        ("fnx.transforms.jit", "from fnx.demo import fit"),
        ("fnx", "import fnx.demo"),
    ],
)
def test_the_checker_finds_a_bad_arrow(module, source):
    names = "fnx.numpy fnx.ops fnx.interpreters.passes fnx.lowering fnx.lowering.generate.storage"
    others = dict.fromkeys(["fnx", *names.split()], "")
    assert bad_arrows({**others, module: source}, {"fnx", "fnx.lowering"})


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fnx.core.aval", "import math, numpy, ml_dtypes\nfrom fnx.core import dtypes"),
        ("fnx.ops.base.sin", "from fnx.core.primitive import Primitive\nfrom . import cos"),
        ("fnx.ops.linalg.lu", "from fnx.ops.base import sin"),
        ("fnx.interpreters.jvp", "from . import trace\nfrom fnx.ops.base import sin"),
        ("fnx.lowering.cpu.backend", "def f():\n    import numba\nfrom fnx.lowering import ir"),
        ("fnx.lowering.cpu.backend", "from fnx.lowering.generate import storage"),
        ("fnx.lowering.generate.storage", "from fnx.lowering.ir.traversal import nodes"),
        ("fnx.numpy", "from fnx.ops import sin"),
        ("fnx.transforms.jit", "from fnx.lowering.cpu.backend import compile"),
        ("fnx", "from fnx.transforms.jit import jit\nfrom fnx import numpy"),
    ],
)
def test_the_checker_lets_good_arrows_pass(module, source):
    assert bad_arrows({"fnx.numpy": "", module: source}, {"fnx", "fnx.numpy"}) == []


def test_the_checker_finds_a_cycle():
    local = "def f():\n    from fnx.core import a"
    assert cycles({"fnx.core.a": "from fnx.core import b", "fnx.core.b": local})
    typing = "if TYPE_CHECKING:\n    from fnx.core import a"
    assert cycles({"fnx.core.a": "from fnx.core import b", "fnx.core.b": typing})


def test_what_numpy_is_made_of_begins_without_it():
    """Threads that import parts at the same time would wait for each other in a circle."""
    known, late = modules(), set()
    for module, file in known.items():
        first = module.split(".")[1:2]
        text = file.read_text()
        below = first and first[0] in fnx._BEFORE - {"numpy"}
        if below and ("fnx.numpy" in text or "from fnx import" in text):
            found = imports(module, text, frozenset(known), file.name == "__init__.py")
            if any(at_load and name.startswith("fnx.numpy") for name, at_load, _ in found):
                late.add(module)
    also = [f"fnx.{name}" for name in fnx._AFTER]
    within = {m: [a for a in also if f"{m}.".startswith(f"{a}.")] for m in late}
    assert all(within.values()), within
    assert {a for found in within.values() for a in found} == set(also)
