"""Single operations on arrays of a GPU: compiled for it, once for each type of operands."""

from functools import lru_cache
from typing import Any

from fnx.core import config, lazy_imports
from fnx.core.array import Array, ConcreteArray
from fnx.core.buffer import check_places
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.trace import trace_closed
from fnx.process.placement import payload


def on_device(prim: Any, args: tuple[ConcreteArray, ...]) -> tuple[Array, ...]:
    """The results of an operation, on the device that computes it; MixedDevices where there are two."""
    check_places([payload(x) for x in args])
    run = _compiled(prim, tuple([x.aval for x in args]), config.of_traces())
    outs = run.fast(args)
    return tuple(run(args) if outs is NotImplemented else outs)


@lru_cache(maxsize=4096)
def _compiled(prim: Any, avals: tuple, *settings: Any) -> Any:
    del settings
    jaxpr = trace_closed(prim.apply, avals, what=prim.name, name=prim.name)
    return compiled(jaxpr, lazy_imports.find(__name__, "backend_of")("cuda"))


config.hooks.append(_compiled.cache_clear)
