"""Loops that the threads of a block share, and what their results combine to, as source."""

from collections import Counter

from fnx.core import scalar
from fnx.core.scalar import Expr
from fnx.lowering.ir import kernel
from fnx.lowering.ir.number_formats import KIND
from fnx.lowering.numba.expression_printer import Module, bare
from fnx.lowering.numba.program_printer import Code

from . import combining
from . import scalar as forms
from .thresholds import Limits

_WHOLE_WARP = "0xFFFFFFFF"
TYPES = {d: text.replace("np.", "numba.") for d, text in forms.STORED.items()}
TYPES["bool"] = "numba.boolean"


class BlockCode(Code):
    """Statements of threads that meet at barriers; `thread` is the number of each."""

    def __init__(self, found: Counter, limits: Limits):
        super().__init__(Module(), found)
        self.limits = limits
        self.width = limits.threads  # how many threads share loops
        self.shared: dict[tuple[int, str], str] = {}
        self.arrays: list[str] = []  # of a thread, and those that a block shares

    def share(self, s: kernel.Loop) -> None:
        """The threads of a block share the iterations; carries are combined over all of them."""
        if not s.carries and s.extent.op == "size" and s.extent.attr % self.width == 0:
            self._share_evenly(s, s.extent.attr // self.width)
            return
        extent, names = bare(self.index(s.extent)), self.named(s.carries)
        operations = combining.operations(s) or []
        neutral = [
            combining.identity(o, c.dtype) for o, c in zip(operations, s.carries, strict=True)
        ]
        self.set(names, neutral)
        self.before(s)
        index = self.fresh("i")
        self.put(f"for {index} in range(thread, {extent}, {self.width}):")
        self.depth += 1
        with self.scope():
            self.indices.add(s.index)
            self.bind(s.index, index)
            self.bind_all(s.carries, names)
            self.statements(s.body)
            self.set(names, s.yields)
        self.depth -= 1
        totals = [
            self._total_of(o, n, c.dtype, e)
            for o, n, c, e in zip(operations, names, s.carries, neutral, strict=True)
        ]
        starts = [e if e is not i else None for e, i in zip(s.init, neutral, strict=True)]
        for o, name, c, start in zip(operations, totals, s.carries, starts, strict=True):
            if start is None:
                self.bind(c, name)
                continue
            found = scalar.var(c.dtype)
            self.bind(found, name)
            self.bind(c, self.assigned(self._once(combining.combined(o, start, found))))

    def _share_evenly(self, s: kernel.Loop, times: int) -> None:
        """The same where each thread has as many: compilers see how many, and write loops out."""
        self.before(s)
        name = "thread"
        if times > 1:
            turn, name = self.fresh("i"), self.fresh("i")
            self.put(f"for {turn} in range({times}):")
            self.put(f"    {name} = {turn} * {self.width} + thread")
        self.depth += times > 1
        with self.scope():
            self.indices.add(s.index)
            self.bind(s.index, name)
            self.statements(s.body)
        self.depth -= times > 1

    def meet(self) -> None:
        """Wait for the threads that share loops."""
        whole = self.width == self.limits.threads
        self.put("cuda.syncthreads()" if whole else f"cuda.syncwarp({(1 << self.width) - 1:#x})")

    def _once(self, e: Expr) -> str:
        self.uses[e] += 1
        return self.inline(e)

    def _combine(self, op: str, a: str, b: str, dtype: str) -> str:
        """The text of an operation on two names."""
        x, y = scalar.var(dtype), scalar.var(dtype)
        self.bind(x, a)
        self.bind(y, b)
        return self._once(combining.combined(op, x, y))

    def _total_of(self, op: str, name: str, dtype: str, neutral: Expr) -> str:
        """What the values of all threads of a block combine to, known to each of them."""
        threads = self.width
        warp = min(threads, 32)
        kind = "numba.float32" if KIND[dtype] == "h" else TYPES[dtype]
        if dtype not in combining.SHUFFLED:
            array = self._shared_array(threads, kind)
            self._tree(op, name, dtype, array)
            return self._read(array, "0")
        self._shuffled(op, name, dtype, warp // 2)
        if threads == warp:
            return name
        count = threads // warp
        array = self._shared_array(count, kind)
        self.put("if thread % 32 == 0:")
        self.put(f"    {array}[thread // 32] = {name}")
        self.put("cuda.syncthreads()")
        self.put(f"{name} = {array}[thread % {count}]")
        self._shuffled(op, name, dtype, count // 2)
        self.put("cuda.syncthreads()")
        return name

    def _shared_array(self, size: int, kind: str) -> str:
        """Shared memory for one combination after another: each of them ends with a barrier."""
        if (size, kind) not in self.shared:
            name = self.shared[size, kind] = self.fresh("shared")
            self.arrays.append(f"    {name} = cuda.shared.array({size}, {kind})")
        return self.shared[size, kind]

    def _shuffled(self, op: str, name: str, dtype: str, distance: int) -> None:
        if not distance:
            return
        apart, other = self.fresh("d"), self.fresh("t")
        self.put(f"{apart} = np.int32({distance})")
        self.put(f"while {apart} > 0:")
        self.depth += 1
        with self.scope():
            self.put(f"{other} = cuda.shfl_xor_sync({_WHOLE_WARP}, {name}, {apart})")
            self.put(f"{name} = {bare(self._combine(op, name, other, dtype))}")
            self.put(f"{apart} >>= 1")
        self.depth -= 1

    def _tree(self, op: str, name: str, dtype: str, array: str) -> None:
        self.put(f"{array}[thread] = {name}")
        self.put("cuda.syncthreads()")
        distance = self.limits.threads // 2
        while distance:
            self.put(f"if thread < {distance}:")
            self.depth += 1
            with self.scope():
                a, b = (
                    self.assigned(f"({array}[{at}])") for at in ("thread", f"thread + {distance}")
                )
                self.put(f"{array}[thread] = {bare(self._combine(op, a, b, dtype))}")
            self.depth -= 1
            self.put("cuda.syncthreads()")
            distance //= 2

    def _read(self, array: str, at: str) -> str:
        name = self.assigned(f"({array}[{at}])")
        self.put("cuda.syncthreads()")
        return name


__all__ = ["TYPES", "BlockCode"]
