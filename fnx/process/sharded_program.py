"""Programs of arrays that lie elsewhere: on a mesh of devices, and single operations there or on a GPU."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from fnx.core import config, lazy_imports
from fnx.core.array import Array, ConcreteArray, any_placed, is_afar
from fnx.core.buffer import check_places
from fnx.core.interpreter import evaluable
from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.partition.executable import Placing
from fnx.interpreters.partition.program import loops_at_once, partitioned
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.trace import trace_closed
from fnx.process.constraints import constrained_all
from fnx.process.placement import payload, places_of, use
from fnx.process.rank_program import RankProgram
from fnx.process.spread import mesh_spans


def compiled_for_mesh(jaxpr: Jaxpr, backend: Any, donated: tuple[int, ...]) -> Any:
    """The program for all devices at once, where that pays, else for one of them alone."""
    found = partitioned(jaxpr, backend)
    if found is not None and mesh_spans(found.mesh):
        return RankProgram(found, found.mesh, backend)
    plain = simplify(jaxpr, final=True)
    if found is None:
        loops = loops_at_once(jaxpr, backend)
        if loops is None:
            return compiled(plain, backend, donated)
        chosen, notes = loops
        native = compiled(chosen, backend, donated)
        return Placing(native, chosen, (None,) * len(chosen.outs), notes)
    if found.mesh.size > 1:
        use()  # results say how they lie
    chosen = found.jaxpr if found.pays else plain
    native = compiled(chosen, backend, donated)
    size = found.members.size
    how = (
        f"{size} devices at once"
        if found.pays
        else f"one device, which is faster than {size} at once"
    )
    return Placing(native, chosen, found.places, (f"computed by {how}", *found.notes))


# --- operations at once ---------------------------------------------------------------------------


def at_once(process: Callable, root: Any, prim: Any, args: tuple) -> tuple:
    """The results of an operation, which lie as its operands do: computed where they lie if that pays."""
    if not any_placed(args) or prim.effects:
        return process(root, prim, args)
    args = tuple([evaluable(a, prim) for a in args])
    if any(map(is_afar, args)):
        return on_device(prim, args)
    avals = tuple([a.aval for a in args])
    run, places = _planned(prim, avals, places_of(args), config.of_traces(), config.backend.value)
    if run is not None:
        return tuple(run(args))
    return tuple(map(_lying, process(root, prim, args), places))


def _lying(x: Any, place: Any) -> ConcreteArray:
    out = ConcreteArray(x._value, x.weak_type)
    out.placed = place
    return out


@lru_cache(maxsize=1024)
def _planned(prim: Any, avals: tuple, lies: tuple, *settings: Any) -> tuple[Any, Sequence[Any]]:
    """A program for all devices, or None if one alone is faster, and how results lie."""
    del settings

    def fn(*xs: Array) -> Sequence[Array]:
        return prim.apply(*constrained_all(xs, lies))

    backend = lazy_imports.find(__name__, "BACKEND")
    jaxpr = trace_closed(fn, avals, what=prim.name, name=prim.name)
    found = partitioned(jaxpr, backend)
    if found is None:  # of several meshes
        return None, [_whole(lies)] * len(jaxpr.outs)
    if mesh_spans(found.mesh):
        return RankProgram(found, found.mesh, backend), ()
    if not found.pays:
        return None, found.places
    native = compiled(found.jaxpr, backend)
    return Placing(native, found.jaxpr, found.places, found.notes), ()


def _whole(lies: Sequence[Any]) -> Any:
    """Along no axis of the first mesh."""
    return next(place for place in lies if place is not None).update(spec=())


# --- on a GPU -------------------------------------------------------------------------------------


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


config.hooks += [_planned.cache_clear, _compiled.cache_clear]

__all__ = ["at_once", "compiled_for_mesh"]
