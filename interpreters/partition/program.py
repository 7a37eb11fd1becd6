"""Programs of arrays that lie on a mesh: what each device does, and how results lie.

Input: a jaxpr with sharding constraints, all of one mesh.
Output: a jaxpr of one equation, the program of all members at once, and shardings of the results.
Legal when: no equation has effects.
Pays when: the backend says that members had better run at once.
Costs: what is gathered, which the notes say.
"""

from collections.abc import Sequence
from typing import Any

from fnx.core.backend import Backend
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr, Var, subjaxprs
from fnx.interpreters.control_flow import ScanRecord, WhileRecord
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.jit import has_effects
from fnx.interpreters.primitives.members import Members
from fnx.interpreters.primitives.sharding_constraint import ShardingConstraint

from .partitioner import Grid
from .parts import Cut

_LOOPS = (ScanRecord, WhileRecord)


@dataclass(frozen=True)
class Partitioned:
    """`members` computes the results of a program on a mesh; `places` are their shardings.

    `is_cut`: there is a value that is in parts.
    """

    jaxpr: Jaxpr
    members: Members
    places: tuple[Any, ...]
    notes: tuple[str, ...]
    mesh: Any
    is_cut: bool

    @property
    def pays(self) -> bool:
        """Whether all devices at once are faster than one alone."""
        return self.is_cut and self.members.runs_apart


def partitioned(jaxpr: Jaxpr, backend: Backend) -> Partitioned | None:
    """The program of one device of the mesh; None where there is no such program."""
    small = simplify(jaxpr)
    first = next(_constraints(jaxpr), None)
    meshes = {c.sharding.mesh for c in _constraints(small)}
    if first is not None and not meshes:  # of values that nobody reads
        meshes = {first.sharding.mesh}
    if len(meshes) != 1 or has_effects(small):
        return None
    (mesh,) = meshes
    cut = next(_constraints(small), None) is not None
    sizes = dict(mesh.shape)
    given = {e.inputs[0]: e.prim for e in reversed(small.eqns) if _is_constraint(e)}
    ins = [_cut(given.get(v), v.aval.ndim, sizes) for v in small.inputs]
    grid, local, outs = _local(small, ins, sizes)
    name = jaxpr.name or "f"
    prim = Members(local, tuple(sizes.items()), tuple(ins), tuple(outs), name, backend)
    inputs = [Var(v.aval) for v in small.inputs]
    results = [Var(a) for a in small.out_avals]
    made = Jaxpr(inputs, [Eqn(prim, inputs, results)], results, small.consts, jaxpr.name)
    places = _places(small, outs, first.sharding)
    return Partitioned(made, prim, places, tuple(dict.fromkeys(grid.notes)), mesh, cut)


def loops_at_once(jaxpr: Jaxpr, backend: Backend) -> tuple[Jaxpr, list[str]] | None:
    """The program with loops around members' programs run by all members at once; None if none pays."""
    small = simplify(jaxpr)
    eqns, notes = [], []
    for e in small.eqns:
        axes = {p.axes for p in _members(e.prim)} if isinstance(e.prim, _LOOPS) else set()
        prim = _loop(e, dict(axes.pop()), backend, notes) if len(axes) == 1 else None
        at_once = prim is not None and prim.runs_apart
        eqns.append(Eqn(prim, e.inputs, e.outs, e.source) if at_once else e)
    same = all(a is b for a, b in zip(eqns, small.eqns))
    return None if same else (small.with_eqns(eqns, small.outs), notes)


def _loop(e: Eqn, sizes: dict, backend: Backend, notes: list[str]) -> Members | None:
    """A loop as members' program, who all have the whole of its operands."""
    if e.prim.effects:
        return None
    inputs = [Var(a.aval) for a in e.inputs]
    outs = [Var(v.aval) for v in e.outs]
    alone = Jaxpr(inputs, [Eqn(e.prim, inputs, outs, e.source)], outs)
    ins = [((),) * v.aval.ndim for v in inputs]
    grid, local, cuts = _local(alone, ins, sizes)
    notes += dict.fromkeys(grid.notes)
    return Members(local, tuple(sizes.items()), tuple(ins), tuple(cuts), e.prim.name, backend)


def _local(jaxpr: Jaxpr, ins: list[Cut], sizes: dict) -> tuple[Grid, Jaxpr, list[Cut]]:
    """One member's program, and how its results are cut, all of them evenly."""
    grid = Grid(sizes)
    local, outs = grid.body(jaxpr, ins)
    even = [_even(grid, c, a.shape) for c, a in zip(outs, jaxpr.out_avals)]
    if even == outs:
        return grid, local, outs
    grid = Grid(sizes)
    return grid, *grid.body(jaxpr, ins, even)


def _members(prim: Any) -> Any:
    """The members' programs in the jaxprs of a primitive."""
    for inner in subjaxprs(prim):
        for e in inner.eqns:
            if isinstance(e.prim, Members):
                yield e.prim
            else:
                yield from _members(e.prim)


def _is_constraint(e: Eqn) -> bool:
    return isinstance(e.prim, ShardingConstraint)


def _constraints(jaxpr: Jaxpr) -> Any:
    for e in jaxpr.eqns:
        if _is_constraint(e):
            yield e.prim
        for inner in subjaxprs(e.prim):
            yield from _constraints(inner)


def _cut(constraint: Any, rank: int, sizes: dict) -> Cut:
    cut = ((),) * rank if constraint is None else constraint.cut
    return tuple([tuple([n for n in names if sizes[n] > 1]) for names in cut])


def _even(grid: Grid, cut: Cut, shape: Sequence[int]) -> Cut:
    """A result is whole along axes whose parts have different sizes."""
    return tuple([() if size % grid.count(n) else n for n, size in zip(cut, shape)])


def _places(jaxpr: Jaxpr, cuts: Sequence[Cut], like: Any) -> tuple[Any, ...]:
    """The shardings of results: as was asked for, if they were; else as they are cut."""
    asked = {e.outs[0]: e.prim for e in jaxpr.eqns if _is_constraint(e) and not e.prim.free}  # type: ignore
    found = []
    for o, cut in zip(jaxpr.outs, cuts):
        constraint = asked.get(o) if type(o) is Var else None
        if constraint is not None and constraint.sharding.is_even(o.aval.shape):
            found.append(constraint.sharding)
            continue
        spec = [None if not n else n[0] if len(n) == 1 else n for n in cut]
        while spec and spec[-1] is None:
            spec.pop()
        found.append(like.update(spec=spec))
    return tuple(found)


__all__ = ["Partitioned", "loops_at_once", "partitioned"]
