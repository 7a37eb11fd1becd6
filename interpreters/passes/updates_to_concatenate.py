"""Updates to concatenate: additions to boxes that fill an array become one sum.

The cotangent of a rolled field comes back so, a large piece and a thin one. Each alone is a pass over
the array that waits for what was added before; a sum is computed together with what makes its terms.
The cotangent of a padded field is cut: its inside, and what is added to the edges. Cut before it is added
up, it is never stored with its padding; a box that fills a slice is an operand of a sum like any other.

Source: XLA's algebraic simplifier (for slices: of concatenate, pad and dynamic-update-slice).
Input: a jaxpr with chains of slice_add.
Output: the same, with `x` and the concatenated pieces added up; chains of slices for slices of chains.
Legal when: the boxes are apart and fill the array, and nobody reads what lies between the additions; of a
chain that is cut nobody reads anything but slices.
Pays when: there are at most so many pieces that a concatenation is cheap; slices hold hardly more than
the array that they are of (`CUT_SUMS`). Shifted fields of more than one axis stay: each piece would be
rows of its own, and what lies in memory is read by several as fast.
Costs: what slices share is computed for each; what a chain of zeros is added to comes first, and what
covers all of it, so a sum may be rounded differently, and a zero have another sign.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from fnx.core import policy
from fnx.core.array import ConcreteArray
from fnx.core.def_use import definitions, use_counts, users
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Literal, Var
from fnx.interpreters.rewrite import bind_into, live
from fnx.ops.base.broadcast import Broadcast
from fnx.ops.elementwise.arithmetic import add
from fnx.ops.structure.join import Concatenate
from fnx.ops.structure.slice import Slice, SliceAdd


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


# --- slices of sums ----------------------------------------------------------------------------

Shape = tuple[int, ...]


def cut_sums(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with chains of additions to slices for slices of such chains."""
    links = [e for e in jaxpr.eqns if e.prim.name == "slice_add"]
    cut = {e.outs[0] for e in links} & {e.inputs[0] for e in jaxpr.eqns if e.prim.name == "slice"}
    if not cut:
        return jaxpr
    uses, readers, maker = use_counts(jaxpr), users(jaxpr.eqns), definitions(jaxpr.eqns)
    cut = {v for v in cut if _is_cut(v, uses, readers)}
    if not cut:
        return jaxpr
    cutter = _Cutter(cut, uses, maker)
    for e in jaxpr.eqns:
        cutter.take(e)
    outs = [cutter.read(a) for a in jaxpr.outs]
    return jaxpr.with_eqns(live(cutter.eqns, outs), outs)


def _is_cut(v: Var, uses: dict[Atom, int], readers: dict[Var, list[Eqn]]) -> bool:
    """Whether all that is read of an array are slices, which have little in common."""
    slices = readers[v]
    if len(slices) != uses[v] or any(e.prim.name != "slice" for e in slices):
        return False
    dense = all(e.prim.dense_box() for e in slices)  # type: ignore[attr-defined]
    return dense and sum(e.outs[0].aval.size for e in slices) <= policy.CUT_SUMS * v.aval.size


@dataclass(frozen=True)
class _Chain:
    """An array to boxes of which terms are added; each begins at its place."""

    base: Atom
    terms: tuple[tuple[Shape, Atom], ...]


class _Cutter:
    """Makes equations anew; chains that are cut, and what is added to their slices, wait for readers."""

    def __init__(self, cut: set[Var], uses: dict[Atom, int], maker: dict[Var, Eqn]):
        self.cut, self.uses, self.maker = cut, uses, maker
        self.eqns: list[Eqn] = []
        self.chains: dict[Atom, _Chain] = {}
        self.made: dict[Atom, Atom] = {}  # of chains that somebody has read
        self.waiting: set[Atom] = set()  # links of the chains that are cut
        for v in cut:
            link: Eqn | None = maker[v]
            while link is not None and link.prim.name == "slice_add":
                self.waiting.add(link.outs[0])
                before = link.inputs[0]
                link = maker.get(before) if uses[before] == 1 else None  # type: ignore[call-overload]

    def take(self, e: Eqn) -> None:
        """One more equation."""
        chain = None
        if e.prim.name == "slice_add":
            chain = self._longer(e)
        elif e.prim.name == "slice" and e.inputs[0] in self.cut & self.chains.keys():
            chain = self._part(self.chains[e.inputs[0]], *e.prim.dense_box())  # type: ignore[attr-defined]
        elif e.prim.name == "add":
            chain = self._onto(*e.inputs) or self._onto(*e.inputs[::-1])
        if chain is None:
            self.eqns.append(Eqn(e.prim, [self.read(a) for a in e.inputs], e.outs, e.source))
        else:
            self.chains[e.outs[0]] = chain

    def read(self, a: Atom) -> Atom:
        """What stands for an atom; if it is a chain, that is made."""
        chain = self.chains.get(a)
        if chain is None or a in self.made:
            return self.made.get(a, a)
        x, shape = chain.base, a.aval.shape
        # What covers all of it comes first: boxes after one another are made in one pass.
        terms = sorted(chain.terms, key=lambda link: link[1].aval.shape != shape)
        if terms and terms[0][1].aval.like(a.aval) and self._is_zero(x):
            x, terms = terms[0][1], terms[1:]
        if not terms:
            self.made[a] = x
            return x
        for k, (at, term) in enumerate(terms):
            whole = term.aval.shape == shape
            prim = add if whole else SliceAdd(at, _sums(at, term.aval.shape))
            if k == len(terms) - 1:
                self.eqns.append(Eqn(prim, [x, term], [a]))  # type: ignore[list-item]
                x = a
            else:
                (x,) = bind_into(self.eqns, prim, [x, term])
        self.made[a] = x
        return x

    def _open(self, a: Atom) -> _Chain | None:
        """A chain that nobody else reads."""
        return self.chains.get(a) if self.uses[a] == 1 and a not in self.made else None

    def _longer(self, e: Eqn) -> _Chain | None:
        """A chain with one more term; None if it need not wait."""
        before = self._open(e.inputs[0])
        box = e.prim.dense_box()  # type: ignore[attr-defined]
        if box is None or before is None and e.outs[0] not in self.waiting:
            return None
        before = before or _Chain(self.read(e.inputs[0]), ())
        return _Chain(before.base, (*before.terms, (box[0], self.read(e.inputs[1]))))

    def _onto(self, total: Atom, term: Atom) -> _Chain | None:
        """A sum of an array and a chain of zeros, as a chain of the array."""
        chain = self._open(term)
        if chain is None or not total.aval.like(term.aval) or not self._is_zero(chain.base):
            return None
        return _Chain(self.read(total), chain.terms)

    def _part(self, chain: _Chain, low: Shape, high: Shape) -> _Chain:
        """A slice of a chain: its terms where they meet it."""
        terms = []
        for at, term in chain.terms:
            start = tuple(map(max, low, at))
            stop = tuple(map(min, high, _sums(at, term.aval.shape)))
            if all(a < b for a, b in zip(start, stop, strict=True)):
                piece = self._slice(term, _differences(start, at), _differences(stop, at))
                terms.append((_differences(start, low), piece))
        return _Chain(self._slice(chain.base, low, high), tuple(terms))

    def _slice(self, x: Atom, low: Shape, high: Shape) -> Atom:
        shape = _differences(high, low)
        if shape == x.aval.shape:
            return x
        value = self._fill(x)
        prim = Slice(low, high) if value is None else Broadcast(shape, ())
        (piece,) = bind_into(self.eqns, prim, [x if value is None else value])
        self.maker[piece] = self.eqns[-1]
        return piece

    def _is_zero(self, x: Atom) -> bool:
        value = self._fill(x)
        return type(value) is Literal and not value.value._value.any()  # type: ignore[attr-defined]

    def _fill(self, x: Atom) -> Atom | None:
        """The number that an array is full of, if there is one."""
        e = self.maker.get(x) if type(x) is Var else None
        fills = e is not None and isinstance(e.prim, Broadcast) and not e.inputs[0].aval.shape
        return e.inputs[0] if e is not None and fills else None


def _sums(a: Shape, b: Shape) -> Shape:
    return tuple([x + y for x, y in zip(a, b, strict=True)])


def _differences(a: Shape, b: Shape) -> Shape:
    return tuple([x - y for x, y in zip(a, b, strict=True)])


# --- sums of shifted fields --------------------------------------------------------------------

Term = tuple[int, int, Atom]  # from where to where, and what is added there


def in_pieces(jaxpr: Jaxpr) -> Jaxpr:
    """The jaxpr with concatenations for sums of shifted fields and zeros."""
    if not any([e.prim.name == "slice_add" for e in jaxpr.eqns]):
        return jaxpr
    maker, uses = definitions(jaxpr.eqns), use_counts(jaxpr)
    inner = {
        e.inputs[0] for e in jaxpr.eqns if e.prim.name == "slice_add" and uses[e.inputs[0]] == 1
    }
    eqns: list[Eqn] = []
    for e in jaxpr.eqns:
        ends = e.prim.name == "slice_add" and e.outs[0] not in inner
        terms = _terms(e, maker, uses) if ends else None
        if terms is None:
            eqns.append(e)
        else:
            pieces = _pieces(eqns, e.outs[0], terms)
            eqns.append(Eqn(Concatenate(0), pieces, e.outs, e.source))
    return jaxpr if len(eqns) == len(jaxpr.eqns) else jaxpr.with_eqns(live(eqns, jaxpr.outs))


def _terms(e: Eqn, maker: dict[Var, Eqn], uses: dict[Atom, int]) -> list[Term] | None:
    """What a chain adds to zeros, if the pieces are few."""
    shape = e.outs[0].aval.shape
    if len(shape) != 1:
        return None
    chain: list[Eqn] = []
    link: Eqn | None = e
    while (
        link is not None
        and link.prim.name == "slice_add"
        and (not chain or uses[link.outs[0]] == 1)
    ):
        chain.insert(0, link)
        link = maker.get(link.inputs[0]) if type(link.inputs[0]) is Var else None
    if not _makes_zeros(link) or link.outs[0] is not chain[0].inputs[0]:  # type: ignore[union-attr]
        return None
    boxes = [c.prim.dense_box() for c in chain]  # type: ignore[attr-defined]
    if None in boxes:
        return None
    terms = [(low, high, c.inputs[1]) for c, ((low,), (high,)) in zip(chain, boxes)]
    cuts = _cuts(terms, shape[0])
    longest = max([high - low for low, high in pairwise(cuts)])
    few = len(cuts) - 1 <= policy.CONCATENATED and 4 * longest >= 3 * shape[0]
    return terms if few and len(terms) > 1 else None


def _makes_zeros(e: Eqn | None) -> bool:
    a = e.inputs[0] if e is not None and isinstance(e.prim, Broadcast) else None
    known = type(a) is Literal and type(a.value) is ConcreteArray
    return known and not a.value._value.any()  # type: ignore[union-attr]


def _cuts(terms: Sequence[Term], n: int) -> list[int]:
    return sorted({0, n, *(at for low, high, _ in terms for at in (low, high))})


def _pieces(eqns: list[Eqn], out: Var, terms: Sequence[Term]) -> list[Var]:
    """What lies between two ends of terms: the sum of those that are there."""
    pieces = []
    for low, high in pairwise(_cuts(terms, out.aval.size)):
        there = [(start, x) for start, stop, x in terms if start <= low and high <= stop]
        parts = [bind_into(eqns, Slice((low - at,), (high - at,)), [x])[0] for at, x in there]
        if not parts:
            zero = Literal(ConcreteArray(np.zeros((), out.aval.dtype)))
            parts = bind_into(eqns, Broadcast((high - low,), ()), [zero])
        total = parts[0]
        for part in parts[1:]:
            (total,) = bind_into(eqns, add, [total, part])
        pieces.append(total)
    return pieces
