"""What a compiled program is made of, for people: kernels, library and host calls, memory, times."""

from fnx.core.fast_dataclasses import dataclass
from fnx.lowering.ir import traversal
from fnx.lowering.ir.kernel import CallHost, CallLibrary, Loop, Nest, Program, While
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.transform import buffer_assignment


@dataclass(frozen=True)
class MemoryAnalysis:
    """Bytes of a program's arguments, results, workspace and code; of results in donated arguments."""

    argument_size_in_bytes: int
    output_size_in_bytes: int
    temp_size_in_bytes: int
    generated_code_size_in_bytes: int = 0
    alias_size_in_bytes: int = 0

    @property
    def peak_memory_in_bytes(self) -> int:
        held = self.argument_size_in_bytes + self.output_size_in_bytes + self.temp_size_in_bytes
        return held - self.alias_size_in_bytes


def memory_analysis(program: Program) -> MemoryAnalysis:
    def total(buffers: list) -> int:
        return sum(b.size * itemsize(b.dtype) for b in buffers)

    alias = total([program.inputs[k] for k in program.aliases.values()])
    return MemoryAnalysis(
        total(program.inputs),
        total(program.outputs) + alias,
        program.workspace,
        alias_size_in_bytes=alias,
    )


def report(program: Program, notes: list[str], seconds: dict[str, float]) -> str:
    """The compile report."""
    stmts = list(traversal.statements(program.body))
    kernels = [s for s in stmts if isinstance(s, Nest)]
    loops = [s for s in stmts if isinstance(s, (Loop, While)) and s.polled]
    lines = [f"program {program.name}: {len(kernels)} kernels, {len(loops)} polled loops"]
    lines += [f"  kernel {k.name}: {k.note}" for k in kernels]
    lines += [f"  library call {s.symbol}" for s in stmts if isinstance(s, CallLibrary)]
    lines += [f"  host call {s.name}" for s in stmts if isinstance(s, CallHost)]
    lines += [f"  note: {n}" for n in notes if not n.startswith(("kernel ", "host call"))]
    m = memory_analysis(program)
    lines.append(
        f"  bytes: arguments {m.argument_size_in_bytes}, results {m.output_size_in_bytes}, "
        f"workspace {m.temp_size_in_bytes}"
    )
    for j, k in sorted(program.aliases.items()):
        lines.append(f"  donated: result {j} is left in argument {k}")
    lines.append("  seconds: " + ", ".join(f"{k} {v:.4f}" for k, v in seconds.items()))
    return "\n".join(lines)


def largest(program: Program, count: int = 3) -> str:
    """The largest buffers of a program's workspace, with their bytes."""
    buffers = {
        b: b.size * itemsize(b.dtype)
        for s in traversal.statements(program.body)
        for b in buffer_assignment.touched(s)
        if b.space == "global"
    }
    chosen = sorted(buffers.items(), key=lambda item: -item[1])[:count]
    return ", ".join(f"{b.name} of {size} bytes ({b.dtype}[{b.size}])" for b, size in chosen)
