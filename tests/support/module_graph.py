"""The modules of fnx: their layers, their rooms, and what each imports."""

import ast
import importlib.util
from pathlib import Path

PACKAGES = ("fnx", "fnx.interpreters", "fnx.lowering")
# The face and the roof import everything and are imported by nobody below them.
SURFACE = set(
    "numpy lax random nn tree tree_classes tree_keys tree_util errors typing dtypes segment".split()
)
LAYERS = {
    "core": {"core"},
    "ops": {"core", "ops"},
    "interpreters": {"core", "ops", "interpreters"},
    "lowering": {"core", "lowering"},
    "surface": {"core", "ops", "interpreters", "surface"},
    "roof": {"core", "ops", "interpreters", "lowering", "surface", "roof"},
    "face": {"core", "ops", "interpreters", "lowering", "surface", "roof"},
    "demo": {"face", "surface", "demo"},
}
# The rooms of lowering, and which others each may use; what stands above them ("") may use all.
ROOMS: dict[str, set[str]] = {
    "ir": set(),
    "target": set(),
    "emit": {"ir", "target"},
    "build": {"ir", "emit", "target"},
    "runtime": {"emit", "target"},
    "routines": {"ir", "build", "runtime"},
}
ROOMS[""] = set(ROOMS)


def layer(module: str) -> str:
    """The layer of a module by its name: what is neither a room nor the surface is the roof."""
    part = [*module.split("."), ""][1]
    if not part:
        return "face"
    if part in SURFACE:
        return "surface"
    return part if part in LAYERS else "roof"


def room(module: str) -> str:
    """The room of a module of lowering; nothing for what stands above the rooms."""
    part = [*module.split("."), "", ""][2]
    return part if part in ROOMS else ""


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

    def __init__(self, module: str, is_package: bool, known: set[str]):
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

    def add(self, name: str):
        self.found.append((name, self.depth == 0 and not self.typing_only, self.typing_only))


def imports(module: str, source: str, known: set[str], is_package: bool = False):
    """What ``source`` imports: triples of name, whether at load, whether for type checkers only."""
    visitor = Imports(module, is_package, known)
    visitor.visit(ast.parse(source))
    return visitor.found
