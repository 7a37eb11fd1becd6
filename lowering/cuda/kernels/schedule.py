"""From the Kernel IR of a program to its plan: loop nests become kernels, what is around them steps.

A nest whose iterations are independent is dealt out to threads. What is small is one thread's, together
with its neighbours. Loops around kernels are the host's; their indices and carries lie in memory of the
device, so that a round of them is the same launches each time.

Source: kernel extraction from loop nests (Polly-ACC, Grosser & Hoefler 2016), by the strides of accesses.
"""

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import dependence, kernel, traversal
from fnx.lowering.ir.expressions import reads_memory
from fnx.lowering.ir.kernel import (
    Buffer,
    CallHost,
    CallLibrary,
    Eval,
    Let,
    Nest,
    Program,
    Ref,
    Stmt,
)
from fnx.lowering.ir.number_formats import itemsize

from . import blocks, independence, scalars
from .plan import Axes, For, Host, If, Kernel, Library, Plan, Shape, Step, While
from .thresholds import LIMITS, Limits

ALIGN = 64  # bytes, of what lies in the workspace


def plan(program: Program, limits: Limits = LIMITS) -> Plan:
    """The plan of a program."""
    scheduler = Scheduler(limits)
    scheduler.statements(program.body)
    scheduler.flush()
    steps = scalars.merged(scheduler.steps)
    scalars.replicated(steps, scheduler.slots.buffers.values(), limits)
    slots = scheduler.slots.place(steps, program.workspace)
    workspace = scheduler.slots.end
    for buffer in scheduler.temporaries:
        buffer.place = workspace
        workspace += -(-buffer.size * itemsize(buffer.dtype) // ALIGN) * ALIGN
    return Plan(program, scalars.without_idle(steps), slots, workspace, scheduler.notes)


class Slots:
    """Where scalars lie between kernels: one buffer for each dtype, an element for each value."""

    def __init__(self) -> None:
        self.buffers: dict[str, Buffer] = {}
        self.places: dict[Expr, tuple[Buffer, int]] = {}
        self.end = 0

    def of(self, value: Expr) -> tuple[Buffer, int]:
        """The place of a value, a new one if it has none."""
        if value not in self.places:
            buffer = self.buffers.get(value.dtype)
            if buffer is None:
                buffer = Buffer(f"values_{value.dtype}", value.dtype, 0, "global")
                self.buffers[value.dtype] = buffer
            self.places[value] = buffer, buffer.size
            buffer.size += 1
        return self.places[value]

    def place(self, steps: list[Step], offset: int) -> list[Buffer]:
        """Say which kernels read and leave what, and lay the buffers out from an offset on."""
        kernels = Plan(None, steps, [], 0).kernels()  # type: ignore[arg-type]
        for k in kernels:
            k.slots = {v: self.of(v) for v in _free(k)}
        wanted = {v for k in kernels for v in k.slots}
        for k in kernels:
            mine = [v for s in k.body for v in traversal.defined(s)]
            k.stored = {v: self.of(v) for v in mine if v in wanted or v in self.places}
        for buffer in self.buffers.values():
            buffer.place, offset = offset, offset + -(-16 * buffer.size // ALIGN) * ALIGN
        self.end = offset
        return list(self.buffers.values())


def _free(k: Kernel) -> dict[Expr, None]:
    """The variables that a kernel takes from those before it."""
    known = {i for i, _ in k.axes} | (k.staged.variables() if k.staged else set())
    known |= {k.thread, k.group} - {None}
    for s in traversal.statements(k.statements()):
        known.update(traversal.defined(s))
        if isinstance(s, (kernel.Loop, kernel.While)):
            known.update(s.carries)
        if isinstance(s, kernel.Loop):
            known.add(s.index)
    names = {e: v for e, v in k.names.items() if v not in known}
    found: dict[Expr, None] = {}
    seen: set[Expr] = set()
    stack = [e for s in traversal.statements(k.statements()) for e in traversal.expressions(s)]
    stack += [n for _, n in k.axes]
    while stack:
        e = stack.pop()
        e = names.get(e, e)
        if e in seen:
            continue
        seen.add(e)
        if e.op == "var" and e not in known:
            found[e] = None
        stack.extend(e.args)
    return found


class Scheduler:
    """Makes steps of statements, in order."""

    def __init__(self, limits: Limits):
        self.limits = limits
        self.steps: list[Step] = []
        self.pending: list[Stmt] = []  # for one thread
        self.names: dict[Expr, Expr] = {}  # what an Eval has asked for: the variable that holds it
        self.halves: dict[Expr, int] = {}
        self.slots = Slots()
        self.guards: list[tuple[Buffer, int, bool]] = []  # of the loops and branches that we are in
        self.temporaries: list[Buffer] = []
        self.notes: list[str] = []
        self.count = 0

    # --- steps ---------------------------------------------------------------------------------

    def flush(self) -> None:
        """What is pending is one thread's kernel."""
        if self.pending:
            body, self.pending = self.pending, []
            self.launch("single", [], body, "scalars")

    def launch(
        self,
        shape: Shape,
        axes: Axes,
        body: list[Stmt],
        name: str = "",
        note: str = "",
        **more: Any,
    ) -> None:
        self.flush()
        self.count += 1
        text = f"k{self.count}_{name or 'loop'}"
        more |= {"names": dict(self.names), "guards": list(self.guards)}
        self.steps.append(Kernel(text, shape, axes, body, note, **more))

    def temporary(self, dtype: str, size: int) -> Buffer:
        """Memory for what one kernel leaves for the next."""
        buffer = Buffer(f"part{len(self.temporaries)}", dtype, size, "global")
        self.temporaries.append(buffer)
        return buffer

    def inside(
        self, body: Sequence[Stmt], after: Sequence[Stmt] = (), name: str = "", note: str = ""
    ) -> list[Step]:
        """The steps of a block, and of statements at its end."""
        outer, names = self.steps, dict(self.names)
        self.flush()
        self.steps = []
        for s in body:
            self.statement(s, name, note)
        self.pending += after
        self.flush()
        found, self.steps, self.names = self.steps, outer, names
        return found

    def assigned(self, variables: Sequence[Expr], values: Sequence[Expr]) -> list[Stmt]:
        """Statements that put values into slots, all at once."""
        if not variables:
            return []
        names = [scalar.var(v.dtype, "n") for v in variables]
        stores: list[Stmt] = []
        for v, n in zip(variables, names, strict=True):
            buffer, place = self.slots.of(v)
            stores.append(kernel.Store(buffer, scalar.size(place), n))
        return [Let(names, list(values)), *stores]

    # --- statements ----------------------------------------------------------------------------

    def statements(self, body: Iterable[Stmt]) -> None:
        for s in body:
            self.statement(s)

    def statement(self, s: Stmt, name: str = "", note: str = "") -> None:
        match s:
            case Eval():
                self.pending.append(s)
                self._keep(s)
            case Nest():
                self._nest(s)
            case CallHost() | CallLibrary():
                self._call(s)
            case kernel.Copy() | kernel.Fill():
                self._loop(_as_loop(s), name or type(s).__name__.lower(), note)
            case kernel.Loop():
                self._loop(s, name, note)
            case kernel.While() if self._is_worth(s):
                self._while(s)
            case kernel.If() if self._is_worth(s):
                self._if(s)
            case _:
                self.pending.append(s)

    def _keep(self, s: Eval) -> None:
        """Remember values that outlive writes to the memory that they were loaded from."""
        found = [e for e in s.exprs if e.args and reads_memory(e)]
        if found:
            variables = [scalar.var(e.dtype, "e") for e in found]
            self.pending.append(Let(variables, found))
            self.names |= dict(zip(found, variables, strict=True))

    def _nest(self, s: Nest) -> None:
        private = [{b for b in traversal.buffers([x]) if b.space == "private"} for x in s.body]
        shared = any(a & b for k, a in enumerate(private) for b in private[:k])
        if shared:
            self.pending.append(s)
            return
        for x in s.body:
            self.statement(x, s.name.partition("_")[2], s.note)

    def _call(self, s: CallHost | CallLibrary) -> None:
        self.flush()
        refs = traversal.references(s)
        offsets = [self._offset(r) for r in refs]
        if isinstance(s, CallHost):
            self.steps.append(Host(s, offsets))
        else:
            if s.result is not None:
                self.slots.of(s.result)
            self.steps.append(Library(s, offsets))

    def _offset(self, ref: Ref) -> tuple[Buffer, int]:
        """The buffer and the place in it of a reference; a slot's, where it is computed."""
        if ref.index.op in ("size", "const"):
            return ref.buffer, int(ref.index.attr)
        place = scalar.var("int64", "o")
        self.pending += self.assigned([place], [ref.index])
        self.flush()
        return self.slots.of(place)

    # --- loops -----------------------------------------------------------------------------------

    def _is_worth(self, s: Stmt) -> bool:
        """Whether there is something inside for more than one thread, or for the host."""
        if independence.calls([s]):
            return True
        inner = [x for x in traversal.statements([s]) if isinstance(x, kernel.Loop)]
        if any(traversal.extent(x.extent) >= self.limits.parallel for x in inner if x is not s):
            return True
        copies = [x for x in traversal.statements([s]) if isinstance(x, (kernel.Copy, kernel.Fill))]
        return any(traversal.extent(x.count) >= self.limits.parallel for x in copies)

    def _loop(self, s: kernel.Loop, name: str, note: str) -> None:
        if blocks.scheduled(self, s, name, note):
            return
        if self._is_worth(s) and not _shares_private(s):
            self._host_loop(s, name, note)
        else:
            self.pending.append(s)

    def _host_loop(self, s: kernel.Loop, name: str, note: str) -> None:
        known = s.extent.op in ("size", "const")
        extent = scalar.var("int64", "n")
        first = scalar.size(0)
        if s.reverse:
            first = scalar.sub(s.extent, scalar.size(1))
        index = [s.index] if any(e is s.index for e in traversal.nodes(s.body)) else []
        variables, values = [*index, *s.carries], [*([first] if index else []), *s.init]
        if not known:
            variables, values = [*variables, extent], [*values, s.extent]
        self.pending += self.assigned(variables, values)
        self.flush()
        step = scalar.sub if s.reverse else scalar.add
        outer = self.halves
        self.halves = outer | dependence.halves(s)
        following = [step(i, scalar.size(1)) for i in index]
        after = self.assigned([*index, *s.carries], [*following, *s.yields])
        body = self.inside(s.body, after, name, note)
        self.halves = outer
        self.steps.append(For(int(s.extent.attr) if known else self.slots.of(extent), body))

    def _round(
        self, body: Sequence[Stmt], variables: Sequence[Expr], values: Sequence[Expr]
    ) -> list[Step]:
        """The steps of a body, which ends with new values of variables."""
        return self.inside(body, self.assigned(variables, values))

    def _while(self, s: kernel.While) -> None:
        goes_on = scalar.var("bool", "c")
        first = scalar.const(True, "bool")
        self.pending += self.assigned([*s.carries, goes_on], [*s.init, first])
        self.flush()
        outer, names, guards = self.halves, dict(self.names), self.guards
        self.guards = [*guards, (*self.slots.of(goes_on), True)]
        self.halves = outer | dependence.halves(s)
        steps, self.steps = self.steps, []
        self.statements(s.before)
        self.pending += self.assigned([goes_on], [s.cond])
        self.flush()
        before, self.steps = self.steps, steps
        body = self._round(s.body, s.carries, s.yields)  # it knows what `before` has evaluated
        self.halves, self.names, self.guards = outer, names, guards
        self.steps.append(While(before, self.slots.of(goes_on), body))

    def _if(self, s: kernel.If) -> None:
        chosen = scalar.var("bool", "c")
        self.pending += self.assigned([chosen], [s.cond])
        self.flush()
        guards, slot = self.guards, self.slots.of(chosen)
        self.guards = [*guards, (*slot, True)]
        then = self._round(s.then, s.results, s.on_true)
        self.guards = [*guards, (*slot, False)]
        orelse = self._round(s.orelse, s.results, s.on_false)
        self.guards = guards
        self.steps.append(If(slot, then, orelse))


def _shares_private(s: Stmt) -> bool:
    """Whether arrays of one thread are handed on between statements that would be several kernels."""
    if isinstance(s, Nest):
        return False
    for block in traversal.blocks(s):
        private = [{b for b in traversal.buffers([x]) if b.space == "private"} for x in block]
        if any(a & b for k, a in enumerate(private) for b in private[:k]):
            return True
        if any(map(_shares_private, block)):
            return True
    return False


def _as_loop(s: kernel.Copy | kernel.Fill) -> kernel.Loop:
    """A copy, or a filling, as a loop."""
    i = scalar.var("int64", "i")
    if s.count.op in ("size", "const"):
        i = scalar.counter("i", max(int(s.count.attr), 1))
    if isinstance(s, kernel.Fill):
        value = s.value
    else:
        buffer = s.source.buffer
        value = scalar.load(buffer, scalar.add(s.source.index, i), buffer.dtype)
    to = s.destination
    store = kernel.Store(to.buffer, scalar.add(to.index, i), value)
    return kernel.Loop(i, s.count, [store], kind=kernel.LoopKind.VECTORIZED)


def size_of(axes: Sequence[tuple[Expr, Expr]]) -> int:
    """How many iterations axes have, as far as it is known."""
    return prod(max(traversal.extent(n), 1) for _, n in axes)
