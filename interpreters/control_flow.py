"""Records of loops and branches: what they hold, apart from their rules, which reverse mode is part of."""

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Self

from fnx.core import policy
from fnx.core.aval import ShapedArray
from fnx.core.backend import Backend
from fnx.core.def_use import definitions, use_counts
from fnx.core.fast_dataclasses import dataclass
from fnx.core.jaxpr import Jaxpr
from fnx.core.primitive import Primitive
from fnx.core.source import LoopSite

from .closure_conversion import HigherOrder, with_inputs


@dataclass(frozen=True)
class ScanRecord(HigherOrder):
    """`jaxpr`: (constants, carry, x) -> (carry, y), run `length` times over the rows of xs.

    Operands: constants, first carry, xs. Results: the last carry, the stacked ys. `divergent`:
    iterations, which carry nothing, are the elements of a batch, each of which runs loops of its own.
    `counted`: the first constant, which the body does not read, says how many iterations are run, of
    `length` at most; rows that have none are left alone in xs and hold anything in ys, so nobody may
    read them.
    """

    jaxpr: Jaxpr
    consts: int
    carry: int
    length: int
    reverse: bool = False
    unroll: int = 1
    backend: Backend | None = field(default=None, compare=False, repr=False)
    divergent: bool = False
    counted: bool = False
    site: LoopSite | None = field(default=None, compare=False, repr=False)
    progress: bool = field(default=False, repr=False)  # it is shown how far it is
    name = "scan"
    in_jax: ClassVar = {
        "jaxpr": "jaxpr", "length": "length", "reverse": "reverse", "unroll": "unroll",
        "consts": "num_consts", "carry": "num_carry",
    }  # fmt: skip
    jaxpr_fields = ("jaxpr",)

    def parts(self, values: Sequence) -> tuple[Any, Any, Any]:
        """Constants, carry and xs of the operands, or of anything that runs parallel to them."""
        n, m = self.consts, self.consts + self.carry
        return values[:n], values[n:m], values[m:]

    def input_output_aliases(self) -> dict[int, int]:
        carries = {k: self.consts + k for k in range(self.carry)}
        return carries | _rows_updated(self.jaxpr, self.consts) if self.divergent else carries

    def with_jaxpr(self, jaxpr: Jaxpr, consts: int, carry: int) -> Self:
        divergent = self.divergent and not carry
        return replace(self, jaxpr=jaxpr, consts=consts, carry=carry, divergent=divergent)

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        n = self.consts
        new = self.with_jaxpr(with_inputs(self.jaxpr, values, n), n + len(values), self.carry)
        return new, (*operands[:n], *more, *operands[n:])

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for e in self.jaxpr.eqns)

    def params(self) -> dict[str, Any]:
        return {
            "jaxpr": self.jaxpr,
            "length": self.length,
            "reverse": self.reverse,
            "num_consts": self.consts,
            "num_carry": self.carry,
            "unroll": self.unroll,
            **({"divergent": True} if self.divergent else {}),
            **({"counted": True} if self.counted else {}),
        }

    def abstract_operands(self) -> list[ShapedArray]:
        """The types of the operands."""
        consts, carry, xs = self.parts(self.jaxpr.in_avals)
        return [*consts, *carry, *(stacked(a, self.length) for a in xs)]


def stacked(aval: ShapedArray, length: int) -> ShapedArray:
    return aval.update(shape=(length, *aval.shape))


@dataclass(frozen=True)
class WhileRecord(HigherOrder):
    """`body_jaxpr` is applied to the carry while `cond_jaxpr` holds.

    Operands: constants of the condition, constants of the body, carry. Results: the carry.
    """

    cond_jaxpr: Jaxpr
    cond_consts: int
    body_jaxpr: Jaxpr
    body_consts: int
    backend: Backend | None = field(default=None, compare=False, repr=False)
    most: int | None = field(default=None, repr=False)  # it runs no more iterations than these
    by_states: bool = field(
        default=False, repr=False
    )  # reverse mode keeps states between iterations
    site: LoopSite | None = field(default=None, compare=False, repr=False)
    progress: bool = field(default=False, repr=False)  # it is shown how far it is
    name = "while"
    in_jax: ClassVar = {
        "cond_jaxpr": "cond_jaxpr", "cond_consts": "cond_nconsts",
        "body_jaxpr": "body_jaxpr", "body_consts": "body_nconsts",
    }  # fmt: skip
    jaxpr_fields = ("cond_jaxpr", "body_jaxpr")

    def params(self) -> dict[str, Any]:
        return {
            "cond_jaxpr": self.cond_jaxpr,
            "cond_nconsts": self.cond_consts,
            "body_jaxpr": self.body_jaxpr,
            "body_nconsts": self.body_consts,
        }

    def with_jaxprs(self, cond: Jaxpr, body: Jaxpr) -> Self:
        """The same loop of other jaxprs, with as many constants."""
        return replace(self, cond_jaxpr=cond, body_jaxpr=body)

    def parts(self, values: Sequence) -> tuple[Any, Any, Any]:
        """Constants of the condition, of the body, and the carry."""
        n, m = self.cond_consts, self.cond_consts + self.body_consts
        return values[:n], values[n:m], values[m:]

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        n, c, b = len(values), self.cond_consts, self.body_consts
        cond = with_inputs(self.cond_jaxpr, values, c)
        body = with_inputs(self.body_jaxpr, values, b)
        new = replace(self, cond_jaxpr=cond, cond_consts=c + n, body_jaxpr=body, body_consts=b + n)
        of_cond, of_body, carry = self.parts(operands)
        return new, (*of_cond, *more, *of_body, *more, *carry)

    def input_output_aliases(self) -> dict[int, int]:
        first = self.cond_consts + self.body_consts
        return {k: first + k for k in range(len(self.body_jaxpr.outs))}

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for e in (*self.cond_jaxpr.eqns, *self.body_jaxpr.eqns))


def _rows_updated(jaxpr: Jaxpr, consts: int) -> dict[int, int]:
    """Results of a loop over a batch whose rows are those of an operand, after a loop that carries them.

    The operand's number is given for each; nobody else in the loop over the batch reads it.
    """

    def find() -> dict[int, int]:
        maker, uses, found = definitions(jaxpr.eqns), use_counts(jaxpr), {}
        for k, out in enumerate(jaxpr.outs):
            e = maker.get(out)  # type: ignore[arg-type]
            if e is not None and e.prim.name == "while" and out.aval.size > policy.SMALL:
                row = e.inputs[e.prim.input_output_aliases()[e.outs.index(out)]]  # type: ignore
                if row in jaxpr.inputs[consts:] and uses[row] == uses[out] == 1:
                    found[k] = jaxpr.inputs.index(row)  # type: ignore[arg-type]
        return found

    return jaxpr.once(("rows updated", consts), find)


@dataclass(frozen=True)
class CondRecord(HigherOrder):
    """Operand 0, an int32, says which of `branches` is applied to the others; it is clamped."""

    branches: tuple[Jaxpr, ...]
    backend: Backend | None = field(default=None, compare=False, repr=False)
    name = "cond"
    in_jax: ClassVar = {"branches": "branches"}
    jaxpr_fields = ("branches",)

    def converted(self, values: tuple, more: Sequence, operands: tuple) -> tuple[Primitive, tuple]:
        new = self.with_branches([with_inputs(b, values, 0) for b in self.branches])
        return new, (operands[0], *more, *operands[1:])

    def with_branches(self, branches: Sequence[Jaxpr]) -> Self:
        return replace(self, branches=tuple(branches))

    @property
    def effects(self) -> bool:  # type: ignore[override]
        return any(e.prim.effects for b in self.branches for e in b.eqns)
