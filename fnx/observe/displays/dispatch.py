"""The display of each kind of object, by what it is."""

from typing import Any

from fnx.core.array import ConcreteArray
from fnx.core.interpreter import Tracer
from fnx.observe.displays import arrays, shardings
from fnx.process.shardings import Sharding


def html(x: Any) -> str:
    """What a notebook shows of an object that has `_repr_html_`."""
    if hasattr(x, "holds_keys"):
        return arrays.keys(x)
    if isinstance(x, Tracer):
        return arrays.tracer(x)
    if isinstance(x, ConcreteArray):
        return arrays.concrete(x)
    if isinstance(x, Sharding):
        return shardings.sharding(x)
    if hasattr(x, "axis_names"):
        return shardings.mesh(x)
    from fnx.observe.displays import jitted  # transforms need not be loaded for arrays

    return jitted.jitted(x)


__all__ = ["html"]
