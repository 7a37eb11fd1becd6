"""Who may import whom: every module's imports, local ones included, against the table of layers."""

import ast
import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from module_graph import LAYERS, PACKAGES, ROOMS, imports, layer, modules, room

CORE_MAY_USE = {"numpy", "ml_dtypes"}
LOADED_LATE = {"numba", "llvmlite", "scipy"}
LATE_THEMSELVES = {"fnx.lowering.runtime.numba_runtime"}  # what the printed Numba Python imports


def bad_arrows(sources: dict[str, str], packages: set[str] = frozenset()) -> list[str]:
    """The imports that the table of layers forbids."""
    bad = []
    for module, source in sources.items():
        own = layer(module)
        for name, at_load, _ in imports(module, source, set(sources), module in packages):
            top = name.split(".")[0]
            if top == "fnx":
                if layer(name) not in LAYERS[own]:
                    bad.append(f"{module} ({own}) imports {name} ({layer(name)})")
                elif own == layer(name) == "lowering":
                    if room(name) not in ROOMS[room(module)] | {room(module)}:
                        bad.append(f"{module} imports {name}, of another room")
            elif own == "core" and top not in CORE_MAY_USE | sys.stdlib_module_names:
                bad.append(f"{module} (core) imports {name}")
            elif own != "demo" and at_load and top in LOADED_LATE and module not in LATE_THEMSELVES:
                bad.append(f"{module} imports {name} when it is loaded")
    return bad


def cycle(sources: dict[str, str], packages: set[str] = frozenset()) -> list[str]:
    """One cycle of imports, local ones included and those for type checkers left out, or []."""
    graph = {
        module: {
            name
            for name, _, typing_only in imports(module, source, set(sources), module in packages)
            if name in sources and name != module and not typing_only
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
    missing = [
        f"{module} imports {name}"
        for module, source in sources.items()
        for name, *_ in imports(module, source, set(sources), module in packages)
        if name.split(".")[0] == "fnx" and name not in sources
    ]
    assert missing == []


def test_no_import_cycles(house):
    assert cycle(*house) == []


def test_rooms_use_each_other_one_way():
    TopologicalSorter(ROOMS).prepare()


def test_all_three_packages_are_seen(house):
    sources, packages = house
    assert {room(name) for name in sources if layer(name) == "lowering"} == set(ROOMS)
    assert set(PACKAGES) <= packages
    assert {layer(name) for name in sources} >= {"core", "ops", "interpreters", "lowering"}


def test_every_file_begins_with_its_concept(house):
    bare = [name for name, source in house[0].items() if not ast.get_docstring(ast.parse(source))]
    assert bare == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fnx.core.aval", "from fnx.ops import sin"),
        ("fnx.core.aval", "import scipy.linalg"),
        ("fnx.core.aval", "def f():\n    import fnx.numpy"),
        ("fnx.ops.sin", "from fnx.lowering import kernel"),
        ("fnx.ops.sin", "import fnx"),
        ("fnx.ops.sin", "from fnx.interpreters.trace import Trace"),
        ("fnx.interpreters.jvp", "def f():\n    from fnx.lowering.cpu import compile"),
        ("fnx.interpreters.jvp", "from fnx import numpy"),
        ("fnx.interpreters.jvp", "from ..lowering import kernel"),
        ("fnx.lowering.cpu", "from fnx.ops.sin import sin"),
        ("fnx.lowering.cpu", "from ..ops import sin"),
        ("fnx.lowering.cpu", "import numba"),
        ("fnx.lowering.ir.walk", "from fnx.lowering.build import fuse"),
        ("fnx.lowering.build.fuse", "def f():\n    from fnx.lowering.cpu import compile"),
        ("fnx.lowering.emit.text", "if TYPE_CHECKING:\n    from fnx.lowering.build import fuse"),
        ("fnx.numpy.ufuncs", "from fnx.api import jit"),
        ("fnx.numpy.ufuncs", "class A:\n    from fnx.lowering import cpu"),
        ("fnx.random", "try:\n    import scipy.special\nexcept ImportError:\n    pass"),
        ("fnx.api", "from fnx.demo import fit"),
        ("fnx", "import fnx.demo"),
    ],
)
def test_the_checker_finds_a_bad_arrow(module, source):
    others = dict.fromkeys(
        "fnx fnx.numpy fnx.ops fnx.lowering fnx.lowering.cpu fnx.lowering.build.fuse".split(), ""
    )
    assert bad_arrows({**others, module: source}, {"fnx", "fnx.lowering"})


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fnx.core.aval", "import math, numpy, ml_dtypes\nfrom fnx.core import dtypes"),
        ("fnx.ops.sin", "from fnx.core.primitive import Primitive\nfrom . import cos"),
        ("fnx.interpreters.jvp", "from . import trace\nfrom fnx.ops import sin"),
        ("fnx.lowering.cpu", "def f():\n    import numba\nfrom . import kernel"),
        ("fnx.lowering.cpu", "from fnx.lowering.build import fuse\nfrom . import kernel"),
        ("fnx.lowering.build.fuse", "from fnx.lowering.ir.walk import nodes\nfrom . import points"),
        ("fnx.numpy", "from fnx.ops import sin"),
        ("fnx.api", "from fnx.lowering.cpu import compile"),
        ("fnx", "from fnx.api import jit\nfrom fnx import numpy"),
    ],
)
def test_the_checker_lets_good_arrows_pass(module, source):
    assert bad_arrows({"fnx.numpy": "", module: source}, {"fnx", "fnx.numpy"}) == []


def test_the_checker_finds_a_cycle():
    local = "def f():\n    from fnx.core import a"
    assert cycle({"fnx.core.a": "from fnx.core import b", "fnx.core.b": local})
    typing = "if TYPE_CHECKING:\n    from fnx.core import a"
    assert not cycle({"fnx.core.a": "from fnx.core import b", "fnx.core.b": typing})
