"""Names of a module that stand for what is imported when somebody asks for it."""

import importlib
import sys
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import Any

_known: dict[str, dict[str, tuple[str, str]]] = {}
_company: dict[str, list[str]] = {}


def add(package: str, module: str, names: str, modules: bool = False) -> None:
    """Let a package have names that a module defines, or that are names of the module itself."""
    for name in names.split():
        _known.setdefault(package, {})[name] = module, "" if modules else name


def along(package: str, modules: str) -> None:
    """Let modules above a package be imported with it: nobody uses it without them."""
    _company[package] = modules.split()


def bring(package: str) -> None:
    """Import what comes along with a package; its last statement."""
    for module in _company.get(package, ()):
        importlib.import_module(module)


def bring_before(module: str, but: str, also: str) -> None:
    """Let a module be whole before any other of its package begins, but for what it is made of.

    Python locks one module at a time, a part before the package that it is in. Threads that import
    different parts at the same time would wait for each other in a circle, and see halves.
    """
    sys.meta_path.insert(0, _Finder(module, frozenset(but.split()), frozenset(also.split())))  # type: ignore[arg-type]


class _Finder:
    def __init__(self, module: str, but: frozenset[str], also: frozenset[str]):
        self.module, self.but, self.also = module, but, also
        self.package = module.partition(".")[0]

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Where a module is, with a loader that waits; here nothing may, as Python holds a lock."""
        package, _, part = name.partition(".")
        if package != self.package or not part:
            return None
        if part not in self.also and ("." in part or part in self.but):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and type(spec.loader) is SourceFileLoader:
            spec.loader = _After(spec.loader.name, spec.loader.path)
            spec.loader.module = self.module
        return spec


class _After(SourceFileLoader):
    """Loads a module when another one is whole."""

    module: str

    def exec_module(self, module: ModuleType) -> None:
        importlib.import_module(self.module)
        super().exec_module(module)


def names(package: str) -> list[str]:
    """The names that a package has in this way."""
    return list(_known.get(package, ()))


def find(package: str, name: str) -> Any:
    """What a name stands for, from now on in the package itself; AttributeError if it has none."""
    owner = sys.modules[package]
    place = _known.get(package, {}).get(name)
    if place is None:
        # With name and obj Python adds "Did you mean" to the message.
        text = f"module {package!r} has no attribute {name!r}"
        raise AttributeError(text, name=name, obj=owner)
    module, attribute = place
    found = importlib.import_module(module)
    found = getattr(found, attribute) if attribute else found
    setattr(owner, name, found)
    return found


def repr_html(x: Any) -> str:
    """The `_repr_html_` of whatever notebooks show: the room of displays is imported when they ask."""
    return find(__name__, "html")(x)
