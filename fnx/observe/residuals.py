"""What the backward pass of a function keeps, by the user's lines, and what checkpointing would save."""

import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fnx.core.array import Array
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.core.source import Source, name_of
from fnx.interpreters.control_flow import ScanRecord
from fnx.interpreters.jvp import has_tangent
from fnx.interpreters.linearize import linearize_jaxpr
from fnx.interpreters.passes.simplify import simplify
from fnx.interpreters.primitives.checkpoint import Checkpoint
from fnx.interpreters.primitives.jit import Jit
from fnx.interpreters.reverse.residuals import split_saving
from fnx.interpreters.trace import trace
from fnx.observe.costs import cost
from fnx.observe.flame import text as as_html
from fnx.observe.units import count, shortened, table
from fnx.pytree.flatten_fun import check_callable, flatten_arrays
from fnx.transforms.checkpoint import checkpoint_policies


@dataclass(frozen=True)
class Residual:
    """Arrays of one type that a line of the user's computes and the backward pass keeps.

    `times`: of how many iterations, those of the loops around multiplied; `bytes` are those of all.
    """

    source: Source | None = field(compare=False)
    operation: str
    type: str
    times: int
    number: int
    bytes: int

    @property
    def line(self) -> str:
        """The file and the line, and what is written there."""
        if self.source is None:
            return "unknown"
        file = self.source.code.co_filename
        place = f"{self.source.short} ({self.source.code.co_name})"
        written = linecache.getline(file, self.source.line).strip()
        return place + (f": {shortened(written)}" if written else "")


@dataclass(frozen=True)
class Saving:
    """What is kept if something is checkpointed, and what is then computed once more."""

    how: str
    bytes: int
    flops: float


@dataclass(frozen=True)
class ResidualReport:
    """What the backward pass of a function keeps: `residuals`, those of most bytes first.

    `arguments` are the bytes of arguments and constants that it reads again, which are there anyway.
    """

    name: str
    residuals: tuple[Residual, ...]
    arguments: int
    savings: tuple[Saving, ...]

    @property
    def bytes(self) -> int:
        return sum(r.bytes for r in self.residuals)

    def __str__(self) -> str:
        head = (
            f"the backward pass of {self.name} keeps {count(self.bytes, 'B')}, and reads "
            f"{count(self.arguments, 'B')} of arguments and constants again"
        )
        lines = [head]
        if self.residuals:
            rows = [("line", "operation", "type", "arrays", "iterations", "bytes")]
            rows += [
                (
                    r.line, r.operation, r.type, str(r.number), str(r.times) if r.times > 1 else "",
                    count(r.bytes, "B"),
                )
                for r in self.residuals
            ]  # fmt: skip
            lines += ["", *table(rows), ""]
        for s in self.savings:
            share = (
                f"{count(self.bytes - s.bytes, 'B')} less" if s.bytes < self.bytes else "no less"
            )
            lines.append(
                f"with {s.how} it keeps {count(s.bytes, 'B')}, {share}, and computes "
                f"{count(s.flops, 'FLOP')} once more"
            )
        if self.savings:
            lines.append(
                "(what a checkpointed part computes once more lives while that part runs back: "
                "checkpoint parts of a program)"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(str(self))


def report(f: Callable) -> Callable[..., ResidualReport]:
    """A function of the same arguments that says what the backward pass of `f` keeps, line by line.

    Arrays of loops count for each iteration. It also says what `checkpoint` would save: of the whole
    function, with a policy that keeps products of matrices, and of the bodies of loops. The compiler may
    still keep less, where it computes cheap values again; what loops of unknown length keep while they
    run back is not in it. Nothing is run. TypeError for what is no function.

    >>> found = fnx.ad_checkpoint.report(lambda x: jnp.sum(jnp.sin(x) ** 2))(jnp.ones(1000))
    >>> found.bytes
    16000
    >>> [saving.bytes for saving in found.savings]
    [0]
    """
    check_callable(f, "ad_checkpoint.report")

    def reported(*args: Any, **kwargs: Any) -> ResidualReport:
        leaves, treedef = flatten_arrays((args, kwargs), f"arguments of {name_of(f)}")

        def flat(*xs: Array) -> list[Array]:
            a, k = treedef.unflatten(xs)
            return flatten_arrays(f(*a, **k), f"results of {name_of(f)}")[0]

        jaxpr, consts = trace(
            flat, [x.aval for x in leaves], what="ad_checkpoint.report", name=name_of(f)
        )
        return of_jaxpr(simplify(jaxpr), name_of(f), len(consts))

    return reported


def of_jaxpr(jaxpr: Jaxpr, name: str, consts: int = 0) -> ResidualReport:
    """What the derivative of a jaxpr by its inputs, but the first `consts`, keeps."""
    nonzero = tuple([k >= consts and has_tangent(a) for k, a in enumerate(jaxpr.in_avals)])
    forward, linear, _, mask = linearize_jaxpr(jaxpr, nonzero)
    kept = [v for v in dict.fromkeys(forward.outs[len(mask) :]) if type(v) is Var]
    inputs = set(forward.inputs)
    arguments = sum(v.aval.nbytes for v in kept if v in inputs)
    made = [v for v in kept if v not in inputs]
    found = ResidualReport(name, tuple(_grouped(forward, made)), arguments, ())
    savings = [s for s in _savings(jaxpr, nonzero, linear) if s.bytes < found.bytes]
    distinct = {s.bytes: s for s in reversed(savings)}  # of those that keep as much, the first
    return replace(found, savings=tuple(s for s in savings if distinct[s.bytes] is s))


def _grouped(forward: Jaxpr, made: Sequence[Var]) -> list[Residual]:
    found: dict[tuple, Residual] = {}
    for v in made:
        source, operation, times = _origin(forward, v)
        key = str(source), operation, v.aval.str_short(), times
        old = found.get(key)
        number, size = (0, 0) if old is None else (old.number, old.bytes)
        found[key] = Residual(
            source, operation, v.aval.str_short(), times, number + 1, size + v.aval.nbytes
        )
    return sorted(found.values(), key=lambda r: -r.bytes)


def _origin(jaxpr: Jaxpr, v: Any) -> tuple[Source | None, str, int]:
    """The line that computes a value, and by what operation, in how many iterations."""
    for eqn in jaxpr.eqns:
        if v in eqn.outs:
            return _origin_within(eqn, eqn.outs.index(v))
    return None, "", 1  # an input


def _origin_within(eqn: Eqn, k: int) -> tuple[Source | None, str, int]:
    prim: Any = eqn.prim
    times = 1
    if isinstance(prim, ScanRecord):
        if k < prim.carry:
            return eqn.source, prim.name, 1
        times = prim.length
    elif not isinstance(prim, (Jit, Checkpoint)):
        return eqn.source, prim.name, 1
    source, operation, inner = _origin(prim.jaxpr, prim.jaxpr.outs[k])
    return source or eqn.source, operation or f"carry of {prim.name}", times * inner


# --- what checkpointing would save ---------------------------------------------------------------


def _savings(jaxpr: Jaxpr, nonzero: tuple[bool, ...], linear: Jaxpr) -> list[Saving]:
    plain = cost(linear).flops
    found = []
    for how, policy in (
        ("checkpoint(f)", None),
        (
            "checkpoint(f, policy=checkpoint_policies.dots_saveable)",
            checkpoint_policies.dots_saveable,
        ),
    ):
        parts = split_saving(jaxpr, nonzero, Checkpoint(jaxpr, policy).saves)
        stored = parts.forward.outs[len(jaxpr.outs) :]
        again = max(cost(parts.linear).flops - plain, 0.0)
        found.append(Saving(how, _bytes(stored, parts.forward), again))
    loops = _with_checkpointed_bodies(jaxpr)
    if loops is not None:
        forward, back, _, mask = linearize_jaxpr(loops, nonzero)
        again = max(cost(back).flops - plain, 0.0)
        size = _bytes(forward.outs[len(mask) :], forward)
        found.append(Saving("checkpoint of the bodies of loops", size, again))
    return found


def _bytes(stored: Sequence[Any], forward: Jaxpr) -> int:
    inputs = set(forward.inputs)
    return sum(v.aval.nbytes for v in dict.fromkeys(stored) if type(v) is Var and v not in inputs)


def _with_checkpointed_bodies(jaxpr: Jaxpr) -> Jaxpr | None:
    """The jaxpr whose loops have checkpointed bodies; None if it has no loops."""
    eqns = [_checkpointed(e) if isinstance(e.prim, ScanRecord) else e for e in jaxpr.eqns]
    return None if eqns == list(jaxpr.eqns) else jaxpr.with_eqns(eqns)


def _checkpointed(eqn: Eqn) -> Eqn:
    prim: Any = eqn.prim
    inputs = [Var(v.aval) for v in prim.jaxpr.inputs]
    outs = [Var(v.aval) for v in prim.jaxpr.outs]
    call = Eqn(Checkpoint(prim.jaxpr), inputs, outs, eqn.source)
    body = Jaxpr(inputs, [call], outs, prim.jaxpr.consts, prim.jaxpr.name)
    return Eqn(replace(prim, jaxpr=body), eqn.inputs, eqn.outs, eqn.source)


__all__ = ["Residual", "ResidualReport", "Saving", "of_jaxpr", "report"]
