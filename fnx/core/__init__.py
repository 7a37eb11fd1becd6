"""The core: avals, arrays, primitives, jaxprs, the current interpreter, and what lowering is told."""

import importlib as _importlib
import typing as _typing
from typing import Any as _Any

if _typing.TYPE_CHECKING:  # what follows is imported when it is asked for
    from fnx.core.aval import ShapedArray
    from fnx.core.aval import ShapedArray as AbstractValue
    from fnx.core.interpreter import Interpreter as Trace
    from fnx.core.interpreter import Tracer, get_aval, pytype_aval_mappings
    from fnx.core.jaxpr import Atom, ClosedJaxpr, DropVar, Jaxpr, Literal, Var
    from fnx.core.jaxpr import eval_closed as eval_jaxpr
    from fnx.core.primitive import Primitive

__version__ = "0.1.0"
__version_info__ = (0, 1, 0)

__all__ = [
    "AbstractValue",
    "Atom",
    "ClosedJaxpr",
    "DropVar",
    "Jaxpr",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Trace",
    "Tracer",
    "Var",
    "eval_jaxpr",
    "get_aval",
    "pytype_aval_mappings",
]

# A package that imported what it is made of would wait for another thread that has begun with one of
# these, and which waits for the package.
_MODULES = {
    "aval": "AbstractValue ShapedArray",
    "interpreter": "Trace Tracer get_aval pytype_aval_mappings",
    "jaxpr": "Atom ClosedJaxpr DropVar Jaxpr Literal Var eval_jaxpr",
    "primitive": "Primitive",
}
_OWN_NAMES = {
    "AbstractValue": "ShapedArray",  # there are no others
    "Trace": "Interpreter",
    "eval_jaxpr": "eval_closed",
}


def __getattr__(name: str) -> _Any:
    """What is imported when it is asked for."""
    for module, names in _MODULES.items():
        if name in names.split():
            found = getattr(
                _importlib.import_module(f"fnx.core.{module}"), _OWN_NAMES.get(name, name)
            )
            globals()[name] = found
            return found
    raise AttributeError(f"module 'fnx.core' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__", "__version_info__"])
