"""What a compiled program is made of, for people: kernels, library and host calls, memory, times."""

from dataclasses import dataclass
from typing import Any

from fnx.lowering import memory
from fnx.lowering.kernel import CallHost, CallLibrary, Loop, Nest, Program, Stmt, While


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a program's arguments, results, workspace and code."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int = 0
    alias_size_in_bytes: int = 0

    @property
    def peak_memory_in_bytes(self) -> int:
        return self.argument_size_in_bytes + self.output_size_in_bytes + self.temp_size_in_bytes


def walk(stmts: list[Stmt]) -> Any:
    """All statements, inner ones too."""
    for s in stmts:
        yield s
        for block in memory.inner_blocks(s):
            yield from walk(block)


def memory_analysis(program: Program) -> MemoryAnalysis:
    def total(buffers: list) -> int:
        return sum(b.size * memory.itemsize(b.dtype) for b in buffers)

    return MemoryAnalysis(total(program.inputs), total(program.outputs), program.workspace)


def report(program: Program, notes: list[str], seconds: dict[str, float]) -> str:
    """The compile report."""
    stmts = list(walk(program.body))
    kernels = [s for s in stmts if isinstance(s, Nest)]
    loops = [s for s in stmts if isinstance(s, (Loop, While)) and getattr(s, "poll", False)]
    lines = [f"program {program.name}: {len(kernels)} kernels, {len(loops)} outer loops"]
    lines += [f"  kernel {k.name}: {k.note}" for k in kernels]
    lines += [f"  library call {s.symbol}" for s in stmts if isinstance(s, CallLibrary)]
    lines += [f"  host call {s.name}" for s in stmts if isinstance(s, CallHost)]
    lines += [f"  note: {n}" for n in notes if not n.startswith(("kernel ", "host call"))]
    m = memory_analysis(program)
    lines.append(
        f"  bytes: arguments {m.argument_size_in_bytes}, results {m.output_size_in_bytes}, "
        f"workspace {m.temp_size_in_bytes}"
    )
    lines.append("  seconds: " + ", ".join(f"{k} {v:.4f}" for k, v in seconds.items()))
    return "\n".join(lines)
