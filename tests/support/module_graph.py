"""The modules of fnx: the rooms they lie in, which rooms each room may use, and what a module imports."""

import ast
import importlib.util
import re
from functools import cache
from pathlib import Path

PACKAGES = ("fnx", "fnx.interpreters", "fnx.lowering")

# Every room, and the rooms that its modules may use beside their own. A room is a folder; a module lies
# in the innermost room that its name begins with. "ops/" stands for all rooms within a folder.
_TABLE = """
core                    :
ops/base                : core
ops/elementwise         : core ops/base
ops/structure           : core ops/base ops/elementwise
ops/reduction           : core ops/base ops/elementwise ops/structure
ops/linalg              : core ops/base ops/elementwise ops/structure ops/reduction
ops/random              : core ops/base ops/elementwise ops/structure
ops                     : core ops/

interpreters            : core ops ops/
interpreters/analysis   : core ops ops/ interpreters
interpreters/passes     : core ops ops/ interpreters interpreters/analysis
interpreters/reverse    : core ops ops/ interpreters interpreters/analysis interpreters/passes
interpreters/primitives : core ops ops/ interpreters interpreters/analysis interpreters/passes
                          interpreters/reverse
interpreters/partition  : core ops ops/ interpreters interpreters/analysis interpreters/passes
                          interpreters/primitives
interpreters/faces      : core ops ops/ interpreters interpreters/

lowering/ir             : core
lowering/math           : core lowering/ir
lowering/transform      : core lowering/ir
lowering/planning       : core
lowering/generate       : core lowering/ir lowering/transform lowering/planning
lowering/routines       : core lowering/ir lowering/transform lowering/planning lowering/generate
lowering                : core lowering/ir lowering/transform lowering/planning lowering/generate
                          lowering/routines
lowering/numba          : core lowering lowering/ir lowering/math lowering/transform
                          lowering/planning lowering/generate lowering/routines lowering/cpu/jit
                          lowering/cpu/loader lowering/cpu/processor
lowering/cpu/processor  : core
lowering/cpu/llvm       : core lowering/ir lowering/math lowering/cpu/processor
lowering/cpu/jit        : core lowering/cpu/processor lowering/cpu/llvm
lowering/cpu/runtime    : core lowering/cpu/processor lowering/cpu/llvm lowering/cpu/jit
lowering/cpu/kernels    : core lowering/cpu/processor lowering/cpu/llvm lowering/cpu/jit
                          lowering/cpu/runtime
lowering/cpu/loader     : core lowering/cpu/processor lowering/cpu/llvm lowering/cpu/jit
                          lowering/cpu/runtime lowering/cpu/kernels
lowering/cpu/schedule   : core lowering/ir lowering/transform lowering/planning lowering/generate
                          lowering/cpu/processor lowering/cpu/llvm
lowering/cpu/routines   : core lowering/ir lowering/transform lowering/planning lowering/generate
                          lowering/routines
                          lowering/cpu/processor lowering/cpu/llvm lowering/cpu/jit
                          lowering/cpu/runtime lowering/cpu/kernels lowering/cpu/loader
                          lowering/cpu/schedule
lowering/cuda/nvvm      :
lowering/cuda/kernels   : core lowering/ir lowering/math lowering/transform lowering/numba
lowering/cuda           : core lowering lowering/ir lowering/math lowering/transform
                          lowering/planning lowering/generate lowering/routines lowering/numba
                          lowering/cpu/jit lowering/cuda/kernels lowering/cuda/nvvm
lowering/standalone     : core lowering lowering/ir lowering/math lowering/transform
                          lowering/planning lowering/generate lowering/routines lowering/numba
lowering/cpu            : core lowering lowering/ir lowering/math lowering/transform
                          lowering/planning lowering/generate lowering/routines lowering/numba
                          lowering/cpu/processor lowering/cpu/llvm
                          lowering/cpu/jit lowering/cpu/runtime lowering/cpu/kernels
                          lowering/cpu/loader lowering/cpu/schedule lowering/cpu/routines
lowering/cpu/tools      : core lowering lowering/ir lowering/math lowering/cpu lowering/cpu/llvm
                          lowering/cpu/loader

pytree                  : core ops ops/ interpreters
numpy/arrays            : core ops ops/ interpreters interpreters/ pytree
numpy/elementwise       : core ops ops/ interpreters interpreters/ pytree numpy/arrays
numpy/reductions        : core ops ops/ interpreters interpreters/ pytree numpy/arrays
                          numpy/elementwise
numpy/structure         : core ops ops/ interpreters interpreters/ pytree numpy/arrays
                          numpy/elementwise numpy/reductions
numpy/algebra           : core ops ops/ interpreters interpreters/ pytree numpy/arrays
                          numpy/elementwise numpy/reductions numpy/structure
numpy/numerics          : core ops ops/ interpreters interpreters/ pytree numpy/arrays
                          numpy/elementwise numpy/reductions numpy/structure numpy/algebra
numpy                   : core ops ops/ interpreters interpreters/ pytree numpy/
lax                     : core ops ops/ interpreters interpreters/ pytree numpy numpy/
random                  : core ops ops/ interpreters interpreters/ pytree numpy numpy/ lax
nn                      : core ops ops/ interpreters interpreters/ pytree numpy numpy/ lax random

process/watching        : SURFACE
process                 : SURFACE lowering lowering/ process/watching
transforms              : SURFACE lowering lowering/ process
observe/displays        : SURFACE lowering lowering/ process transforms
observe                 : SURFACE lowering lowering/ process process/watching transforms
                          observe/displays
control_flow            : SURFACE lowering lowering/ process transforms observe
image                   : SURFACE transforms
scipy/special           : SURFACE process transforms control_flow
scipy/linalg            : SURFACE process transforms control_flow
scipy/sparse            : SURFACE process transforms control_flow
scipy/spatial           : SURFACE process transforms control_flow
scipy/cluster           : SURFACE process transforms control_flow
scipy/stats             : SURFACE process transforms control_flow scipy/special scipy/linalg
scipy                   : SURFACE process transforms control_flow scipy/
example_libraries       : SURFACE process transforms control_flow
experimental/sparse     : SURFACE process transforms control_flow
experimental            : SURFACE process process/watching transforms control_flow experimental/sparse
extend/core             : SURFACE process transforms control_flow
extend                  : SURFACE process transforms control_flow extend/core
distributed             : SURFACE lowering lowering/ process
checkpoints             : SURFACE lowering lowering/ process
export                  : SURFACE lowering lowering/ process transforms control_flow
faces                   : SURFACE lowering lowering/ process transforms control_flow extend image
                          observe observe/displays
face                    : SURFACE lowering lowering/ process transforms control_flow export faces observe
                          observe/displays distributed experimental checkpoints
jax                     : core face process
jax/public              : jax SURFACE process transforms experimental faces
jax/src                 : jax jax/public SURFACE lowering lowering/ process transforms control_flow
                          experimental extend extend/core face faces
demo                    : face faces numpy lax random
"""
_SURFACE = "core ops ops/ interpreters interpreters/ pytree numpy numpy/ lax random nn"


def _rooms() -> dict[str, set[str]]:
    """The table: each room, and the names of all rooms that it may use."""
    lines = re.sub(r"\n {10,}", " ", _TABLE).replace("SURFACE", _SURFACE).strip().splitlines()
    stated = {own.strip(): rest.split() for own, _, rest in (x.partition(":") for x in lines if x)}
    rooms: dict[str, set[str]] = {}
    for own, others in stated.items():
        within = [n for n in others if n.endswith("/")]
        rooms[own] = {n for n in others if not n.endswith("/")}
        rooms[own] |= {n for n in stated if n.startswith(tuple(within)) and n != own}
    return rooms


ROOMS = _rooms()
INTERPRETERS_FACES = {f"fnx.interpreters.{name}" for name in ("ad", "mlir", "partial_eval", "xla")}


def room(module: str) -> str:
    """The room of a module by its name; "face" is fnx itself, "faces" the files beside it."""
    if module in INTERPRETERS_FACES:
        return "interpreters/faces"
    parts = module.split(".")[1:]
    if not parts:
        return "face"
    for end in range(len(parts), 0, -1):
        found = "/".join(parts[:end])
        if found in ROOMS:
            return found
    return "faces"


def may_use(own: str, other: str) -> bool:
    """Whether modules of one room may import those of another."""
    return own == other or other in ROOMS[own]


def modules() -> dict[str, Path]:
    """The file of every module of the three packages, by its dotted name."""
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        assert spec is not None, package
        for folder in map(Path, spec.submodule_search_locations):
            for file in folder.rglob("*.py"):
                parts = file.relative_to(folder).with_suffix("").parts
                parts = parts[:-1] if parts[-1] == "__init__" else parts
                found[".".join((package, *parts))] = file
    return found


class Imports(ast.NodeVisitor):
    """Collects the modules that a module imports, and whether each import runs when it loads."""

    def __init__(self, module: str, is_package: bool, known: frozenset[str]):
        self.package = module if is_package else module.rpartition(".")[0]
        self.known = known
        self.depth = 0
        self.typing_only = False
        self.found: list[tuple[str, bool, bool]] = []  # name, at load, for type checkers only

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_Lambda = visit_FunctionDef

    def visit_If(self, node):
        before = self.typing_only
        test = ast.unparse(node.test)
        self.typing_only = before or test in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
        for child in node.body:
            self.visit(child)
        self.typing_only = before
        for child in node.orelse:
            self.visit(child)

    def visit_Import(self, node):
        for alias in node.names:
            self.add(alias.name)

    def visit_ImportFrom(self, node):
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, base] if base else above)
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            self.add(inner if inner in self.known else base)

    def visit_Call(self, node):
        """`import_module("name")` and `__import__("name")` import, too."""
        called = ast.unparse(node.func).rpartition(".")[2]
        if called in ("import_module", "__import__") and node.args:
            name = node.args[0]
            if isinstance(name, ast.Constant):
                self.add(str(name.value))
        self.generic_visit(node)

    def add(self, name: str):
        self.found.append((name, self.depth == 0 and not self.typing_only, self.typing_only))


@cache
def imports(module: str, source: str, known: frozenset[str], is_package: bool = False):
    """What ``source`` imports: triples of name, whether at load, whether for type checkers only."""
    visitor = Imports(module, is_package, known)
    visitor.visit(ast.parse(source))
    return visitor.found
