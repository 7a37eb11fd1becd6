"""Linear solves with functions of users: A x = b, of which they give A and a way to solve."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from fnx.core.array import ConcreteArray
from fnx.core.aval import ShapedArray
from fnx.core.axis_size import axis_name_of
from fnx.core.backend import Backend
from fnx.core.config import checked_axes
from fnx.core.errors import TypeMismatch
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Eqn, Jaxpr, Var, eval_jaxpr
from fnx.core.primitive import Primitive
from fnx.core.recipe import Call, Operand, Recipe
from fnx.interpreters.analysis.uniformity import Solved
from fnx.interpreters.batching import batch_jaxpr, place_axis
from fnx.interpreters.jvp import jvp_jaxpr
from fnx.interpreters.operands import check_operands, given, only
from fnx.interpreters.passes.compiled import run
from fnx.interpreters.rewrite import with_jaxprs
from fnx.interpreters.variation import parted, together
from fnx.ops.base.broadcast import typed_zeros
from fnx.ops.elementwise.arithmetic import neg
from fnx.ops.structure.basic import add_any


@dataclass(frozen=True)
class LinearSolve(Primitive):
    """x such that matvec(x) = b, by `solve`; its derivatives are solves of the same kind.

    Operands: the constants of each of the four jaxprs, then b. `vecmat` and `transpose_solve` are
    for the transposed system; None if they are not known.
    """

    matvec: Jaxpr
    solve: Jaxpr
    vecmat: Jaxpr | None
    transpose_solve: Jaxpr | None
    consts: tuple[int, int, int, int]
    alike: frozenset = frozenset()  # names of axes whose members all solve it as one
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "custom_linear_solve"
    multiple_results = True
    jaxpr_fields = ("matvec", "solve")
    says_what_varies = True

    @property
    def typed_by(self) -> slice:  # type: ignore[override]
        return slice(sum(self.consts), None)

    def params(self) -> dict[str, Any]:
        return {k: v for k, v in super().params().items() if k != "alike" or v}

    def parts(self, values: Sequence) -> list:
        """The constants of each jaxpr, and b."""
        found, at = [], 0
        for n in self.consts:
            found.append(values[at : at + n])
            at += n
        return [*found, values[at:]]

    def abstract(self, *avals: ShapedArray) -> tuple[ShapedArray, ...]:
        parts = self.parts(avals)
        check_operands(self.name, [*parts[1], *parts[4]], self.solve.in_avals)
        return tuple([b.varying(x.vma) for b, x in zip(parts[4], self.solve.out_avals)])

    def impl(self, *values: np.ndarray) -> tuple:
        parts = self.parts([ConcreteArray(v) for v in values])
        return tuple([x._value for x in run(self.solve, self.backend, [*parts[1], *parts[4]])])

    def lower(self, *operands: Operand) -> Recipe:
        return Call(self._of_operands())

    def _of_operands(self) -> Jaxpr:
        """The solve as a jaxpr of all operands."""
        n = self.consts[1]
        a, _, c, d, _ = self.parts([None] * sum(self.consts))
        matvec = [Var(v) for v in self.matvec.in_avals[: len(a)]]
        rest = [Var(v) for v in (self.vecmat.in_avals[: len(c)] if self.vecmat else ())]
        last = [
            Var(v)
            for v in (self.transpose_solve.in_avals[: len(d)] if self.transpose_solve else ())
        ]
        own = self.solve.inputs
        return Jaxpr([*matvec, *own[:n], *rest, *last, *own[n:]], self.solve.eqns, self.solve.outs)

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        xs = self(*primals)
        consts = self.parts(primals)
        nonzero = self.parts(given(tangents))
        rhs = list(self.parts(tangents)[4])
        if any(nonzero[0]):
            mask = (*nonzero[0], *(False for _ in xs))
            jaxpr, made = jvp_jaxpr(self.matvec, mask)
            outs = eval_jaxpr(jaxpr, [*consts[0], *xs, *only(nonzero[0], self.parts(tangents)[0])])
            moved = iter(outs[len(made) :])
            for k, m in enumerate(made):
                if m:
                    minus = neg(next(moved))
                    rhs[k] = minus if rhs[k] is None else add_any(rhs[k], minus)
        if all(t is None for t in rhs):
            return xs, (None,) * len(xs)
        rhs = [typed_zeros(x.aval.tangent()) if t is None else t for t, x in zip(rhs, xs)]
        return xs, self(*primals[: sum(self.consts)], *rhs)

    def transpose(self, cts: tuple, *args: Any) -> tuple:
        if self.transpose_solve is None or self.vecmat is None:
            raise TypeMismatch(
                "reverse-mode differentiation of custom_linear_solve needs transpose_solve, or "
                "symmetric=True; of a system that all members of a named axis solve as one, "
                "symmetric=True, or shard_map with check_vma"
            )
        consts = self.parts(args)
        full = [typed_zeros(x.aval) if ct is None else ct for ct, x in zip(cts, consts[4])]
        n = self.consts
        other = replace(
            self,
            matvec=self.vecmat,
            solve=self.transpose_solve,
            vecmat=self.matvec,
            transpose_solve=self.solve,
            consts=(n[2], n[3], n[0], n[1]),
        )
        # A system that all members solve as one has one right-hand side.
        names, avals = checked_axes.get(), self.solve.out_avals
        if not names:
            names, avals = self.alike, [a.varying(frozenset()) for a in avals]
        full = together(full, avals, names) if names else full
        found = other(*consts[2], *consts[3], *consts[0], *consts[1], *full)
        found = parted(found, avals, names)
        return (*(None for _ in range(sum(n))), *found)

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        masks = self.parts(given(axes))
        jaxprs = (self.matvec, self.solve, self.vecmat, self.transpose_solve)
        alike = self.alike - {axis_name_of(size)}

        def batched(xs: tuple[bool, ...]) -> tuple[list, list[tuple]]:
            """The jaxprs where so many of the unknowns have a batch axis, and which results have it."""
            made = [j and batch_jaxpr(j, size, (*m, *xs), xs) for j, m in zip(jaxprs, masks)]
            return [m and m[0] for m in made], [m[1] if m else xs for m in made]

        one, every = [(k,) * len(masks[4]) for k in (False, True)]
        new, found = batched(one if not any(masks[4]) else every)
        if not any(masks[4]) and found[:2] == [one, one]:
            # One system, of which each member knows a part: so must the transposed one be.
            if found[2:] != [one, one]:
                new[2:] = None, None
        else:
            new, one = batched(every)[0], every
        prim = replace(
            self, matvec=new[0], solve=new[1], vecmat=new[2], transpose_solve=new[3], alike=alike
        )
        last, is_batched = sum(self.consts), one[0]
        place = [
            place_axis(size, x, k, 0 if k is not None or (is_batched and j >= last) else None)
            for j, (x, k) in enumerate(zip(args, axes))
        ]
        return prim(*place), (0 if is_batched else None,) * len(masks[4])


def solved_as_one(jaxpr: Jaxpr, solves: Mapping[int, Solved]) -> Jaxpr:
    """The jaxpr, whose solves know along which axes all members solve them as one.

    `solves` has what is known of these equations, by their identity.
    """

    def known(e: Eqn) -> Eqn:
        prim: Any = e.prim
        found = solves.get(id(e))
        if found is None:
            new = with_jaxprs(prim, rewritten)
        else:
            new = replace(prim, alike=prim.alike | (found.exchanged - found.varies))
            if new.alike & found.back:
                new = replace(new, vecmat=None, transpose_solve=None)
        return e if new is prim else Eqn(new, e.inputs, e.outs, e.source)

    def rewritten(j: Jaxpr) -> Jaxpr:
        eqns = [known(e) for e in j.eqns]
        return j if all(a is b for a, b in zip(eqns, j.eqns)) else j.with_eqns(eqns, j.outs)

    return rewritten(jaxpr) if solves else jaxpr
