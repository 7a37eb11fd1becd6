"""Names of a module that stand for what is imported when somebody asks for it."""

import importlib
import sys
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
    if not _company:  # an array of another process is the first that this one sees of fnx
        importlib.import_module(f"{__name__.partition('.')[0]}.face")
    for module in _company.get(package, ()):
        importlib.import_module(module)


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
