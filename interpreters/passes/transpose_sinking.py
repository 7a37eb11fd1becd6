"""Transpose sinking: transposes move through what is made of them to where they cancel.

Batching puts its axis in front, so what goes through columns at once transposes the matrix, and what it
becomes back again. Here operations on a transposed value become ones on the value itself where they
can.

Source: MLIR, ONNX optimisers.
Input: a jaxpr.
Output: the same with fewer transposes, and one reshape for several.
Legal when: the operation has a counterpart in the other order of axes.
Pays when: a transpose vanishes, or goes through less memory.
Costs: nothing where it cancels.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fnx.core import policy
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Atom, Eqn, Jaxpr, Var
from fnx.interpreters.rewrite import bind_into
from fnx.ops.base.broadcast import Broadcast, Sum
from fnx.ops.base.permute import Reshape, Transpose
from fnx.ops.elementwise.pointwise import Pointwise
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.reduction.reduction import Reduction
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.structure.gather import ScatterAdd
from fnx.ops.structure.scatter import Scatter

Perm = tuple[int, ...]
_SHAPES = ("reshape", "squeeze", "expand_dims")


def without_turns(jaxpr: Jaxpr) -> Jaxpr:
    """The same with fewer transposes, and one reshape for several."""
    return _turned(jaxpr, lambda made: True)


def in_order_of_products(jaxpr: Jaxpr) -> Jaxpr:
    """The same, with what is made of products over a batch in the order of axes in which they leave it.

    Lanes are first there, and the longest axis often last. Whoever reads what lies otherwise goes
    through memory across.
    """
    if not any(_is_batched(e) for e in jaxpr.eqns):
        return jaxpr
    return _turned(jaxpr, lambda made: made is not None and _is_batched(made))


def _is_batched(e: Eqn) -> bool:
    return isinstance(e.prim, DotGeneral) and bool(e.prim.dimension_numbers[1][0])


def _turned(jaxpr: Jaxpr, starts: Callable[[Eqn | None], bool]) -> Jaxpr:
    work = _Turns([], {}, {}, {}, starts)
    for e in jaxpr.eqns:
        work.add(e)
    outs = [work.plain(o) for o in jaxpr.outs]
    return jaxpr.with_eqns(work.eqns, outs)


@dataclass(frozen=True)
class _Turns:
    """Equations so far; what stands for a variable; of which value, how permuted, it is the transpose.

    `starts` says of what made a value whether a transpose of it may be moved.
    """

    eqns: list[Eqn]
    name: dict[Atom, Atom]
    turned: dict[Atom, tuple[Atom, Perm]]
    maker: dict[Atom, Eqn]
    starts: Callable[[Eqn | None], bool]

    def bind(self, prim: Any, atoms: Sequence[Atom]) -> Var:
        (out,) = bind_into(self.eqns, prim, atoms)
        self.maker[out] = self.eqns[-1]
        return out

    def plain(self, a: Atom) -> Atom:
        """The value itself."""
        if a in self.turned and a not in self.name:
            x, perm = self.turned[a]
            self.name[a] = self.bind(Transpose(perm), [x])
        return self.name.get(a, a)

    def add(self, e: Eqn) -> None:
        """Append an equation, or what does the same on values that are not transposed."""
        found = self._of(e)
        if found is None:
            ins = [self.plain(a) for a in e.inputs]
            new = Eqn(e.prim, ins, e.outs, e.source)
            self.eqns.append(new)
            self.maker.update((v, new) for v in e.outs)
        elif type(found) is tuple:
            x, perm = found
            if perm == tuple(range(len(perm))):
                self.name[e.outs[0]] = x
            else:
                self.turned[e.outs[0]] = found
        else:
            self.name[e.outs[0]] = found

    def _of(self, e: Eqn) -> Any:
        """What stands for the result: a value, or a value and how it is permuted; None: nothing new."""
        prim: Any = e.prim
        if isinstance(prim, Transpose):
            x = e.inputs[0]
            if x in self.turned:
                x, first = self.turned[x]
                return x, tuple([first[k] for k in prim.permutation])
            x = self.plain(x)
            if not self.starts(self.maker.get(x)):
                return None
            return self._turn(x, prim.permutation) or (x, prim.permutation)
        if prim.name in _SHAPES:
            return self._reshaped(e)
        if not any(a in self.turned for a in e.inputs):
            return None
        if isinstance(prim, DotGeneral):
            return self._product(e)
        if isinstance(prim, Pointwise):
            return self._pointwise(e)
        if isinstance(prim, (Sum, Reduction)):
            return self._reduced(e)
        if e.inputs[0] not in self.turned or any(a in self.turned for a in e.inputs[1:]):
            return None
        x, perm = self.turned[e.inputs[0]]
        ins = [self.plain(a) for a in e.inputs[1:]]
        back = tuple(np.argsort(perm).tolist())
        if isinstance(prim, DynamicSlice):
            sizes = tuple([prim.slice_sizes[k] for k in back])
            return self.bind(DynamicSlice(sizes), [x, *(ins[k] for k in back)]), perm
        if isinstance(prim, (DynamicUpdateSlice, DynamicSliceAdd)):
            update, *starts = ins
            update = self.bind(Transpose(back), [update])
            return self.bind(prim, [x, update, *(starts[k] for k in back)]), perm
        if isinstance(prim, (Scatter, ScatterAdd)) and x.aval.ndim == 2:
            names = prim.dimension_numbers
            at = names.scatter_dims_to_operand_dims
            if (
                len(at) == 1
                and names.inserted_window_dims == at
                and not names.operand_batching_dims
            ):
                at = (perm[at[0]],)
                names = names._replace(inserted_window_dims=at, scatter_dims_to_operand_dims=at)
                return self.bind(replace(prim, dimension_numbers=names), [x, *ins]), perm
        return None

    def _turn(self, a: Atom, perm: Perm) -> Atom | None:
        """The transpose of what is made of broadcasts element by element: it costs nothing."""
        e = self.maker.get(a)
        prim: Any = None if e is None else e.prim
        if e is None or len(e.outs) != 1:
            return None
        if isinstance(prim, Broadcast):
            if not e.inputs[0].aval.shape:
                return self.bind(Broadcast(tuple([prim.shape[k] for k in perm]), ()), e.inputs)
            dims = [perm.index(d) for d in prim.broadcast_dimensions]
            (x,) = e.inputs
            if dims != sorted(dims):
                order = tuple(np.argsort(dims).tolist())
                before = self._back(x, order)
                if before is None and policy.TRANSPOSED_SPREAD * x.aval.size > e.outs[0].aval.size:
                    return None
                x = self.bind(Transpose(order), [x]) if before is None else before
            shape = tuple([prim.shape[k] for k in perm])
            return self.bind(Broadcast(shape, tuple(sorted(dims))), [x])
        if not isinstance(prim, Pointwise):
            return None
        ins = [self._turn(x, perm) if x.aval.shape else x for x in e.inputs]
        return None if any(x is None for x in ins) else self.bind(prim, ins)  # type: ignore[arg-type]

    def _back(self, a: Atom, perm: Perm) -> Atom | None:
        """What a value is the transpose of, if its transpose is that."""
        e = self.maker.get(a)
        prim: Any = None if e is None else e.prim
        if e is None or not isinstance(prim, Transpose):
            return None
        back = [prim.permutation[k] for k in perm]
        return e.inputs[0] if back == sorted(back) else None

    def _reshaped(self, e: Eqn) -> Any:
        """A reshape of a reshape is one; that of a line, however it lies, needs no transpose."""
        x, shape = e.inputs[0], e.outs[0].aval.shape
        made = self.maker.get(self.name.get(x, x))
        if x not in self.turned and made is not None and made.prim.name in _SHAPES:
            x = made.inputs[0]
        if x in self.turned:
            x, perm = self.turned[x]
            line = sum(n != 1 for n in x.aval.shape) <= 1
            if not line:
                trimmed = tuple([x.aval.shape[k] for k in perm])
                return (x, perm) if trimmed == shape else None
        x = self.name.get(x, x)
        return x if x.aval.shape == shape else self.bind(Reshape(shape), [x])

    def _product(self, e: Eqn) -> Atom | None:
        prim: Any = e.prim
        dims, batch = prim.dimension_numbers
        if batch[0]:
            return None
        ins, new = [], []
        for a, contracted in zip(e.inputs, dims):
            if a not in self.turned:
                ins.append(self.plain(a))
                new.append(contracted)
                continue
            x, perm = self.turned[a]
            free = [perm[k] for k in range(len(perm)) if k not in contracted]
            if free != sorted(free):
                return None
            ins.append(x)
            new.append(tuple([perm[k] for k in contracted]))
        return self.bind(replace(prim, dimension_numbers=(tuple(new), batch)), ins)

    def _reduced(self, e: Eqn) -> tuple[Atom, Perm]:
        """A reduction goes along the axes where they are."""
        prim: Any = e.prim
        x, perm = self.turned[e.inputs[0]]
        axes = tuple(sorted([perm[k] for k in prim.axes]))
        left = [k for k in range(len(perm)) if k not in axes]
        kept = tuple([left.index(p) for k, p in enumerate(perm) if k not in prim.axes])
        return self.bind(replace(prim, axes=axes), [x]), kept

    def _pointwise(self, e: Eqn) -> tuple[Atom, Perm] | None:
        (perm, *others) = {self.turned[a][1] for a in e.inputs if a in self.turned}
        if others:
            return None
        back = tuple(np.argsort(perm).tolist())
        ins: list[Atom] = []
        for a in e.inputs:
            if a in self.turned:
                ins.append(self.turned[a][0])
                continue
            a = self.plain(a)
            made = self._turn(a, back) if a.aval.shape else a
            if made is None:
                return None
            ins.append(made)
        return self.bind(e.prim, ins), perm
