"""Control flow as LLVM blocks: loops, branches, and what happens when a program is cancelled."""

from collections.abc import Sequence
from typing import Any

from fnx.core.scalar import Expr
from fnx.lowering.cpu.llvm.operation_functions import function_lines
from fnx.lowering.cpu.processor import thresholds
from fnx.lowering.cpu.processor.features import functions_together, halves_vectors, side_by_side
from fnx.lowering.ir import dependence, kernel, traversal
from fnx.lowering.ir.expressions import combining, depends_on, nodes
from fnx.lowering.ir.kernel import Stmt
from fnx.lowering.ir.number_formats import PART, itemsize

from . import loop_tails, progress, register_transpose, slp, vector_abi
from . import types as lt
from .function import Function
from .module import Module
from .slp import Packs
from .types import Operand

_NUMBERS = ("const", "literal")
_WHOLE = (4, 8, 16)  # iterations that are whole vectors
_LOOPS = (kernel.Loop, kernel.While)


class Flow(Function):
    """A function whose code is statements in blocks; `top`: the entry of a program."""

    def __init__(
        self, module: Module, parent: Function | None = None, home: Any = None, top: bool = False
    ):
        super().__init__(module, parent, home)
        self.top = top
        self.exits: set[str] = set()
        # Variables that are 0 or a size, of the loops around.
        self.halves: dict[Expr, int] = parent.halves if isinstance(parent, Flow) else {}
        self.packs: Packs | None = None  # of the block that is being printed
        self.filled: set[kernel.Buffer] = set()  # by the vector loop around, with known numbers
        self.rows = isinstance(home, kernel.Loop)  # whether there is a loop around, in this kernel
        self.repeated: bool = isinstance(home, kernel.Loop) or (
            isinstance(parent, Flow) and parent.repeated
        )  # whether there is a loop around, here or where this is called

    def statements(self, body: Sequence[Stmt]) -> None:
        """Print a block."""
        raise NotImplementedError

    def scoped(self, body: Sequence[Stmt], results: Sequence[Expr]) -> list[Operand]:
        """A block in a scope of its own: what it yields."""
        with self.scope():
            return self.run(body, results)

    def run(self, body: Sequence[Stmt], results: Sequence[Expr]) -> list[Operand]:
        """A block, and what it yields."""
        outer = self.packs
        self.packs = None if self.in_vector else Packs(body, results)
        self.statements(body)
        found = [self.value(e) for e in results]
        self.packs = outer
        return found

    def call_function(self, e: Expr) -> Operand:
        """With it those that can be called together, as one vector."""
        shared = self.module.shared and (e.op, e.dtype) not in self.module.inlined
        if self.packs is None or self.stale or not shared:
            return super().call_function(e)
        calls = [x for x in self.packs.ready(e) if not self._is_known(x)]
        if len(calls) < 2:
            return super().call_function(e)
        for x in calls:
            for a in x.args:
                self.value(a)
        start, found = 0, []
        for width in slp.widths(len(calls), e.dtype):
            found += self._call_together(calls[start : start + width], width)
            start += width
        for x, operand in zip(calls[1:], found[1:], strict=True):
            self.enter(x, operand)
        return found[0]

    def _is_known(self, e: Expr) -> bool:
        return e in self.memo or self.parent is not None and self.known_outside(e)

    def _call_together(self, calls: list[Expr], width: int) -> list[Operand]:
        t = vector_abi.TYPE[calls[0].dtype]
        name, vector = self.module.helper(calls[0].op, calls[0].dtype), f"<{width} x {t}>"
        vectors = []
        for operands in zip(*[x.args for x in calls]):
            found = "poison"
            for lane in range(width):  # lanes without a call of their own repeat the first one
                x = self.memo[operands[lane if lane < len(calls) else 0]]
                found = self.op(f"insertelement {vector} {found}, {t} {x}, i64 {lane}")
            vectors.append(f"{vector} {found}")
        result = self.op(f"call {vector} {name}_w{width}({', '.join(vectors)})")
        return [self.op(f"extractelement {vector} {result}, i64 {k}") for k in range(len(calls))]

    def jump(self, label: str) -> None:
        self.put(f"br label %{label}")

    def branch(self, cond: str, on_true: str, on_false: str, meta: str = "") -> None:
        self.put(f"br i1 {cond}, label %{on_true}, label %{on_false}{meta}")

    def before(self, stmt: Stmt) -> None:
        """What a structured statement writes is not known any more, inside it and after it."""
        for buffer in traversal.all_writes(stmt):
            self.kill(buffer)

    # --- phis -----------------------------------------------------------------------------------

    def phis(self, dtypes: Sequence[str]) -> tuple[list[Operand], int]:
        """Names for values that depend on where control comes from; their lines are filled later."""
        at, names = len(self.lines), []
        for dtype in dtypes:
            pair = [self.fresh() for _ in lt.types(dtype)]
            self.lines += [""] * len(pair)
            names.append(lt.whole(pair))
        return names, at

    def fill(
        self,
        at: int,
        names: Sequence[Operand],
        dtypes: Sequence[str],
        sources: Sequence[tuple[str, Sequence[Operand]]],
    ) -> None:
        """Fill the lines of phis: `sources` are (block, operands)."""
        for k, (name, dtype) in enumerate(zip(names, dtypes, strict=True)):
            for j, t in enumerate(lt.types(dtype)):
                choices = [f"[ {lt.parts(ops[k])[j]}, %{label} ]" for label, ops in sources]
                self.lines[at] = f"  {lt.parts(name)[j]} = phi {t} {', '.join(choices)}"
                at += 1

    # --- loops ----------------------------------------------------------------------------------

    def loop(self, s: kernel.Loop) -> None:
        extent = self.value(s.extent)
        init = [self.value(e) for e in s.init]
        known = s.extent.attr if s.extent.op in ("size", "const") else None
        if known is not None and known <= 0:
            for variable, operand in zip(s.carries, init, strict=True):
                self.bind(variable, operand)
            return
        self.before(s)
        progress.begin(self, s, extent)
        self.iterations(s, extent, init, sure=known is not None)
        progress.end(self, s, extent)

    def iterations(
        self, s: kernel.Loop, extent: str, init: list[Operand], sure: bool, start: str = "0"
    ) -> None:
        """The loop itself, turned over: the test stands at the end. `sure`: at least one iteration."""
        dtypes = [c.dtype for c in s.carries]
        self.halves |= dependence.halves(s)
        before, body = self.block, self.label()
        number = self.module.next_number()
        done = self.label()
        if sure:
            self.jump(body)
        else:
            self.branch(self.op(f"icmp slt i64 {start}, {extent}"), body, done)
        self.start(body)
        (k,), index_at = self.phis(["int64"])
        carried, at = self.phis(dtypes)
        outer_groups, outer_fast, outer_vector = self.groups, self.fast, self.in_vector
        self.in_vector = s.kind.vectorized or _becomes_vector(s)
        outer_filled, self.filled = self.filled, _filled(s) if s.kind.vectorized else set()
        outer_rows, self.rows = self.rows, True
        outer_repeated, self.repeated = self.repeated, True
        if s.kind.vectorized:
            self.groups = (*self.groups, number)
        if s.reassociate:
            self.fast = self.fast | combining(s.carries, s.yields)
        with self.scope():
            self.bind(s.index, self._backwards(k, extent) if s.reverse else k)
            for variable, name in zip(s.carries, carried, strict=True):
                self.bind(variable, name)
            yields = self.run(s.body, s.yields)
        self.groups, self.fast, self.in_vector = outer_groups, outer_fast, outer_vector
        self.filled, self.rows, self.repeated = outer_filled, outer_rows, outer_repeated
        if s.polled:
            is_counted = traversal.has_known_extent(s) or not self.repeated or s.shown
            self.poll(s, k if is_counted else "")
        following, last = self.fresh(), self.fresh()
        self.put(f"{following} = add nuw nsw i64 {k}, 1")
        self.put(f"{last} = icmp eq i64 {following}, {extent}")
        end = self.block
        group, vectors = number if s.kind.vectorized else None, _vectors(s)
        together = 0 if vectors else self._together(s)
        lanes = 0 if _is_short(s) and not vectors else _lanes(s)
        vectors *= 2 if lanes else 1
        facts = self.module.loop(
            number, group, s.rolled, vectors, _is_rolled(s), len(dtypes), together, lanes
        )
        self.branch(last, done, body, facts)
        self.fill(index_at, [k], ["int64"], [(before, [start]), (end, [following])])
        self.fill(at, carried, dtypes, [(before, init), (end, yields)])
        self.start(done)
        results, at = self.phis(dtypes)
        sources = [(end, yields)] if sure else [(before, init), (end, yields)]
        self.fill(at, results, dtypes, sources)
        for variable, name in zip(s.carries, results, strict=True):
            self.bind(variable, name)

    def _together(self, s: kernel.Loop) -> int:
        """The vectors side by side in a long loop with the text of mathematical functions; 0 for others.

        Their operations wait for one another, and LLVM, which sees no registers left, takes one vector.
        """
        is_long = s.extent.op == "size" and s.extent.attr > thresholds.LONG_LOOP
        if (
            not is_long
            or not (s.kind.vectorized or _becomes_vector(s))
            or any(map(traversal.blocks, s.body))
        ):
            return 0
        found = list(traversal.nodes([s]))
        calls = {(e.op, e.dtype) for e in found if vector_abi.exists(e.op, e.dtype)}
        if not calls or not calls <= self.module.inlined:
            return 0
        slow = [e for e in found if e.op in ("div", "sqrt") and e.args[-1].op != "literal"]
        return functions_together(sum(function_lines(*c) for c in calls), len(slow))

    def _backwards(self, k: str, extent: str) -> str:
        last = self.op(f"sub i64 {extent}, 1")
        return self.op(f"sub nsw i64 {last}, {k}")

    def while_(self, s: kernel.While) -> None:
        init = [self.value(e) for e in s.init]
        self.before(s)
        progress.begin(self, s, "-1")
        dtypes = [c.dtype for c in s.carries]
        self.halves |= dependence.halves(s)
        before, head, body, done = self.block, self.label(), self.label(), self.label()
        self.jump(head)
        self.start(head)
        counts = s.shown or s.polled and not self.repeated
        (count,), count_at = self.phis(["int64"]) if counts else (("",), 0)
        carried, at = self.phis(dtypes)
        outer_repeated, self.repeated = self.repeated, True
        with self.scope():
            for variable, name in zip(s.carries, carried, strict=True):
                self.bind(variable, name)
            (cond,) = self.run(s.before, [s.cond])
            self.branch(cond, body, done)
            self.start(body)
            yields = self.scoped(s.body, s.yields)
        self.repeated = outer_repeated
        if s.polled:
            self.poll(s, count, carried)
        if counts:
            following = self.fresh()
            self.put(f"{following} = add nuw nsw i64 {count}, 1")
            self.fill(count_at, [count], ["int64"], [(before, ["0"]), (self.block, [following])])
        self.fill(at, carried, dtypes, [(before, init), (self.block, yields)])
        self.jump(head)
        self.start(done)
        for variable, name in zip(s.carries, carried, strict=True):
            self.bind(variable, name)
        progress.end(self, s, count)

    def poll(self, s: Any, round_: str, carried: Sequence[Operand] = ()) -> None:
        """Every so many operations, ask whether to stop; `round_`: the number of the iteration.

        A loop that runs often, each time nobody knows how long, has none: it counts on where another
        has stopped.
        """
        inner = [*s.before, *s.body] if isinstance(s, kernel.While) else s.body
        work = traversal.work(inner)
        ask, on = self.label(), self.label()
        if round_:
            period = max(1, thresholds.POLL_WORK // work)
            mask = self.number(("poll", s), (1 << (period.bit_length() - 1)) - 1, "i64")
            masked, due = self.fresh(), self.fresh()
            self.put(f"{masked} = and i64 {round_}, {mask}")
            self.put(f"{due} = icmp eq i64 {masked}, {mask}")
            self.branch(due, ask, on)
        else:
            place, before, now, due = self.until_poll(), self.fresh(), self.fresh(), self.fresh()
            self.put(f"{before} = load i64, ptr {place}, align 8")
            step = self.number(("work", s), min(work, thresholds.POLL_WORK), "i64")
            self.put(f"{now} = sub i64 {before}, {step}")
            self.put(f"{due} = icmp slt i64 {now}, 0")
            self.put(f"store i64 {now}, ptr {place}, align 8")
            self.branch(due, ask, on, self.module.rarely())
        self.start(ask)
        progress.tell(self, s, round_, carried)
        if not round_:
            self.put(f"store i64 {thresholds.POLL_WORK}, ptr {place}, align 8")
        self.ask(on)

    def ask(self, on: str) -> None:
        """Ask whether to stop, and go on there if not."""
        answer, go_on = self.fresh(), self.fresh()
        self.put(f"{answer} = call i32 {self.symbol('fnx_poll')}()")
        if not self.top:  # those around must learn of it, and threads beside
            told, either = self.fresh(), self.fresh()
            self.put(f"{told} = load atomic i32, ptr {self.stopped()} monotonic, align 4")
            self.put(f"{either} = or i32 {answer}, {told}")
            answer = either
        self.put(f"{go_on} = icmp eq i32 {answer}, 0")
        self.exits.add("cancelled")
        self.branch(go_on, on, "cancelled")
        self.start(on)

    def until_poll(self) -> str:
        """The address of the operations that are left until it is time to ask; each thread has its own."""
        found = self.memo.get("until_poll")
        if found is None and self.parent is not None and not isinstance(self.home, kernel.Loop):
            found = self.capture(self.parent.until_poll(), "ptr")  # type: ignore[attr-defined]
        elif found is None:
            found = self.slot("alloca i64, align 8")
            self.head.append(f"  store i64 {thresholds.POLL_WORK}, ptr {found}, align 8")
        self.memo["until_poll"] = found
        return found

    def stopped(self) -> str:
        """The address of a number that is not 0 once a function has been cancelled."""
        found = self.memo.get("stopped")
        if found is None and self.parent is not None:
            found = self.capture(self.parent.stopped(), "ptr")  # type: ignore[attr-defined]
        elif found is None:
            found = self.slot("alloca i32, align 4")
            self.head.append(f"  store i32 0, ptr {found}, align 4")
        self.memo["stopped"] = found
        return found

    def cancelled(self, result: str = "void") -> None:
        """The end of a function that was cancelled."""
        if "cancelled" in self.exits:
            self.start("cancelled")
            self.put(f"store atomic i32 1, ptr {self.stopped()} monotonic, align 4")
            self.put("ret void" if result == "void" else f"ret {result} poison")

    def unless_cancelled(self, inner: "Flow") -> None:
        """After a call of a function that may have been cancelled."""
        if "cancelled" not in inner.exits:
            return
        told, go_on, on = self.fresh(), self.fresh(), self.label()
        self.put(f"{told} = load atomic i32, ptr {self.stopped()} monotonic, align 4")
        self.put(f"{go_on} = icmp eq i32 {told}, 0")
        self.exits.add("cancelled")
        self.branch(go_on, on, "cancelled")
        self.start(on)

    # --- branches -------------------------------------------------------------------------------

    def if_(self, s: kernel.If) -> None:
        cond = self.value(s.cond)
        self.before(s)
        then, orelse, done = self.label(), self.label(), self.label()
        dtypes = [r.dtype for r in s.results]
        self.branch(cond, then, orelse)
        sources = []
        for label, body, results in ((then, s.then, s.on_true), (orelse, s.orelse, s.on_false)):
            self.start(label)
            values = self.scoped(body, results)
            sources.append((self.block, values))
            self.jump(done)
        self.start(done)
        names, at = self.phis(dtypes)
        self.fill(at, names, dtypes, sources)
        for variable, name in zip(s.results, names, strict=True):
            self.bind(variable, name)


def _vectors(s: kernel.Loop) -> int:
    """The vectors of a loop of whole ones, after which no iteration is left; 0 for other loops."""
    known = s.extent.op in ("size", "const") and s.extent.attr in _WHOLE
    if not (known and s.kind.vectorized and s.rolled):
        return 0
    stored = [x.buffer.dtype for x in s.body if isinstance(x, kernel.Store)]
    types = stored + [e.dtype for e in traversal.nodes(s.body) if e.op == "load"]
    widest = max([itemsize(PART.get(t, t)) for t in types], default=1)
    exprs = [e for x in traversal.statements(s.body) for e in traversal.expressions(x)]
    return 1 if loop_tails.kind(exprs) == "crowded" else side_by_side(s.extent.attr * widest)


def _is_short(s: kernel.Loop) -> bool:
    """Whether LLVM makes no vectors of a loop, but for a remark, unless they are whole ones."""
    return traversal.has_known_extent(s) and s.extent.attr <= thresholds.SHORT_LOOP


def _lanes(s: kernel.Loop) -> int:
    """The lanes of a vector, where this CPU has wide ones in two halves; 0 if LLVM may choose.

    Half as wide they cross a line of the cache half as often. That matters where a loop reads
    neighbours of its places, and does little else.
    """
    if not s.kind.vectorized or s.carries or not halves_vectors():
        return 0
    stores = [x for x in s.body if isinstance(x, kernel.Store)]
    exprs = [e for x in stores for e in (x.index, x.value)]
    found = list(traversal.nodes(s.body))
    loads = [e for e in found if e.op == "load"]
    beside = [e for e in loads if _is_next(e, s.index)]
    neighbours = len(beside) > len({e.attr for e in beside})
    if not stores or not neighbours or loop_tails.kind(exprs) == "crowded":
        return 0
    if any(vector_abi.exists(e.op, e.dtype) for e in found):
        return 0
    widest = max(itemsize(PART.get(x.buffer.dtype, x.buffer.dtype)) for x in stores)
    return 32 // widest


def _is_next(load: Expr, index: Expr) -> bool:
    """Whether neighbouring iterations read neighbours: not the same element, nor such as are apart."""
    products = [e for e in nodes(load.args) if e.op == "mul"]
    return depends_on(load.args, [index]) and not depends_on(products, [index])


def _is_rolled(s: kernel.Loop) -> bool:
    """Whether LLVM need not write several iterations one after the other, if it does not know how many.

    Of a vector loop the vectoriser has several vectors under way; and around other loops it would
    make long code for little, except where these are single vectors of a long row.
    """
    return (
        s.kind.vectorized
        or not isinstance(s, loop_tails.Overlapped)
        and any(isinstance(x, _LOOPS) for x in s.body)
    )


def _becomes_vector(s: kernel.Loop) -> bool:
    """Whether a reduction is long enough for LLVM to make vectors of its iterations."""
    short = s.extent.op in ("size", "const") and s.extent.attr <= _WHOLE[-1]
    return s.reassociate and not short and not any(traversal.blocks(x) for x in s.body)


def _filled(s: kernel.Loop) -> set[kernel.Buffer]:
    """The buffers into which each iteration of a loop stores several known numbers.

    LLVM would clear neighbouring zeros by calls, and loops with calls do not become vectors.
    """
    known = [x for x in s.body if isinstance(x, kernel.Store) and x.value.op in _NUMBERS]
    into = [
        x.buffer for x in known if register_transpose.can(PART.get(x.buffer.dtype, x.buffer.dtype))
    ]
    return {b for b in into if into.count(b) > 1 or b.dtype in PART}
