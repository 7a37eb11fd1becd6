"""Updates to concatenate: additions to boxes that fill an array become one sum.

The cotangent of a rolled field comes back so, a large piece and a thin one. Each alone is a pass over
the array that waits for what was added before; a sum is computed together with what makes its terms.

Source: XLA's algebraic simplifier.
Input: a jaxpr with chains of slice_add.
Output: the same, with `x` and the concatenated pieces added up.
Legal when: the boxes are apart and fill the array, and nobody reads what lies between the additions.
Pays when: there are at most so many pieces that a concatenation is cheap.
Costs: nothing.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

from fnx.core import policy
from fnx.core.def_use import use_counts
from fnx.core.jaxpr import Atom, Eqn, Jaxpr
from fnx.interpreters.rewrite import bind_into
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.structure.join import Concatenate


def whole_sums(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with sums for such additions."""
    added = [e for e in jaxpr.eqns if e.prim.name == "slice_add"]
    if len(added) < 2:
        return jaxpr
    uses = use_counts(jaxpr)
    of = {e.inputs[0]: e for e in added if uses[e.inputs[0]] == 1}
    chained = {e.outs[0] for e in added}
    found: dict[int, list[Eqn]] = {}  # the last of each set of additions -> all of it
    for first in added:
        if first.inputs[0] in chained and of.get(first.inputs[0]) is first:
            continue
        chain = [first]
        while chain[-1].outs[0] in of:
            chain.append(of[chain[-1].outs[0]])
        for some in _tilings(chain):
            found[id(some[-1])] = some
    return _rewritten(jaxpr, found, uses) if found else jaxpr


def _tilings(chain: Sequence[Eqn]) -> list[list[Eqn]]:
    """Sets of additions of a chain, in its order, that fill the array, one beside the other."""
    found = []
    shape = chain[0].outs[0].aval.shape
    for axis, n in enumerate(shape):
        starts: dict[int, list[Eqn]] = {}
        for e in chain:
            low, high = _box(e)
            others = zip(low, high, shape, strict=True)
            if all((l, h) == (0, m) for k, (l, h, m) in enumerate(others) if k != axis):
                starts.setdefault(low[axis], []).append(e)
        # A piece that covers all of the axis is no box: it stands in nobody's way.
        while some := _tiling(starts, axis, n):
            for e in some:
                starts[_box(e)[0][axis]].remove(e)
            if (
                len(some) <= policy.CONCATENATED
                and 4 * max(_length(e, axis) for e in some) >= 3 * n
            ):
                found.append(sorted(some, key=list(chain).index))
    return found


def _tiling(starts: dict[int, list[Eqn]], axis: int, n: int) -> list[Eqn] | None:
    """Pieces along an axis from its start to its end; None if there is a gap wherever one looks."""
    ways: list[list[Eqn]] = [[]]
    tried = set()
    while ways:
        way = ways.pop()
        at = _box(way[-1])[1][axis] if way else 0
        if at == n:
            return way
        if at not in tried:
            tried.add(at)
            ways += [[*way, e] for e in starts.get(at, ()) if 0 < _length(e, axis) < n]
    return None


def _length(e: Eqn, axis: int) -> int:
    low, high = _box(e)
    return high[axis] - low[axis]


def _box(e: Eqn) -> tuple[tuple[int, ...], tuple[int, ...]]:
    box = e.prim.dense_box()  # type: ignore[attr-defined]
    return box or ((-1,) * len(e.outs[0].aval.shape),) * 2  # with strides it has gaps


def _rewritten(jaxpr: Jaxpr, found: dict[int, list[Eqn]], uses: dict[object, int]) -> Jaxpr:
    """With sums in place of the last additions, made no earlier than somebody reads them.

    So are the slices that they add. What comes in between may be computed with what they are of.
    """
    gone = {id(e) for some in found.values() for e in some}
    terms = {e.inputs[1] for some in found.values() for e in some}
    name: dict[object, Atom] = {}
    later: dict[object, Callable[[], None]] = {}
    eqns: list[Eqn] = []

    def read(a: Atom) -> Atom:
        a = name.get(a, a)
        if a in later:
            later.pop(a)()
        return a

    def place(e: Eqn) -> None:
        eqns.append(Eqn(e.prim, [read(a) for a in e.inputs], e.outs, e.source))

    def total(e: Eqn) -> None:
        pieces = sorted(found[id(e)], key=_box)
        ends = pairwise([_box(x)[0] for x in pieces])
        axis = next(k for a, b in ends for k in range(len(a)) if a[k] != b[k])
        before = read(e.inputs[0])
        (term,) = bind_into(eqns, Concatenate(axis), [read(x.inputs[1]) for x in pieces])
        eqns.append(Eqn(add, [before, term], e.outs, e.source))

    for e in jaxpr.eqns:
        if id(e) in found:
            later[e.outs[0]] = partial(total, e)
        elif id(e) in gone:
            name[e.outs[0]] = name.get(e.inputs[0], e.inputs[0])
        elif e.prim.name == "slice" and e.outs[0] in terms and uses[e.outs[0]] == 1:
            later[e.outs[0]] = partial(place, e)
        else:
            place(e)
    outs = [read(a) for a in jaxpr.outs]
    return jaxpr.with_eqns(eqns, outs)
