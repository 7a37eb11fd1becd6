"""Compiling programs of arrays that lie on a mesh of devices."""

from typing import Any

from fnx.core.jaxpr import Jaxpr
from fnx.interpreters.partition.executable import Placing
from fnx.interpreters.partition.program import loops_at_once, partitioned
from fnx.interpreters.passes.compiled import compiled
from fnx.interpreters.passes.simplify import simplify
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
    at_once = found.is_cut and found.members.runs_apart
    chosen = found.jaxpr if at_once else plain
    native = compiled(chosen, backend, donated)
    size = found.members.size
    how = (
        f"{size} devices at once" if at_once else f"one device, which is faster than {size} at once"
    )
    return Placing(native, chosen, found.places, (f"computed by {how}", *found.notes))
