"""Small programs in LLVM IR, as the lowering emits them, for tests of what comes after it."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fnx.core import dtypes
from fnx.lowering.cpu.loader import load


@dataclass
class Emitted:
    """What a printer of programs gives to the loader."""

    text: str
    params: list[Any] = field(default_factory=list)


def axpy(kind: str = "double", scale: str = "2.0") -> str:
    """out[i] = scale * x[i] + y[i] for i < params[0]."""
    return f"""
define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {{
entry:
  %py = getelementptr ptr, ptr %args, i64 1
  %po = getelementptr ptr, ptr %args, i64 2
  %x = load ptr, ptr %args
  %y = load ptr, ptr %py
  %out = load ptr, ptr %po
  %n = load i64, ptr %params
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %xi = getelementptr {kind}, ptr %x, i64 %i
  %yi = getelementptr {kind}, ptr %y, i64 %i
  %oi = getelementptr {kind}, ptr %out, i64 %i
  %a = load {kind}, ptr %xi
  %b = load {kind}, ptr %yi
  %c = fmul {kind} %a, {scale}
  %d = fadd {kind} %c, %b
  store {kind} %d, ptr %oi
  %next = add i64 %i, 1
  br label %head
done:
  ret i32 0
}}
"""


def spin() -> str:
    """Rounds for ever, until the routine params[0] (fnx_poll) says to stop."""
    return """
define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {
entry:
  %poll = load ptr, ptr %params
  br label %again
again:
  %stop = call i32 %poll()
  %go_on = icmp eq i32 %stop, 0
  br i1 %go_on, label %again, label %cancelled
cancelled:
  ret i32 1
}
"""


def call_host() -> str:
    """Calls the host callback params[0] with the pointers of all arguments; its failure is 2."""
    return """
define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {
entry:
  %callback = load ptr, ptr %params
  %status = call i32 %callback(ptr %args)
  %good = icmp eq i32 %status, 1
  br i1 %good, label %done, label %failed
done:
  ret i32 0
failed:
  ret i32 2
}
"""


def use_workspace() -> str:
    """Fills params[0] words of workspace with x[0], waits params[1] rounds, adds them up into out."""
    return """
define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {
entry:
  %po = getelementptr ptr, ptr %args, i64 1
  %px = load ptr, ptr %args
  %out = load ptr, ptr %po
  %x = load i64, ptr %px
  %n = load i64, ptr %params
  br label %fill
fill:
  %i = phi i64 [ 0, %entry ], [ %i1, %fill ]
  %p = getelementptr i64, ptr %workspace, i64 %i
  store volatile i64 %x, ptr %p
  %i1 = add i64 %i, 1
  %filled = icmp sge i64 %i1, %n
  br i1 %filled, label %sum, label %fill
sum:
  %j = phi i64 [ 0, %fill ], [ %j1, %sum ]
  %s = phi i64 [ 0, %fill ], [ %s1, %sum ]
  %q = getelementptr i64, ptr %workspace, i64 %j
  %v = load volatile i64, ptr %q
  %s1 = add i64 %s, %v
  %j1 = add i64 %j, 1
  %summed = icmp sge i64 %j1, %n
  br i1 %summed, label %done, label %sum
done:
  store i64 %s1, ptr %out
  ret i32 0
}
"""


def copies(kinds: list[str]) -> str:
    """Copies one element from each of several inputs to its output."""
    lines = []
    for k, kind in enumerate(kinds):
        lines += [
            f"  %a{k} = getelementptr ptr, ptr %args, i64 {k}",
            f"  %b{k} = getelementptr ptr, ptr %args, i64 {k + len(kinds)}",
            f"  %p{k} = load ptr, ptr %a{k}",
            f"  %q{k} = load ptr, ptr %b{k}",
            f"  %v{k} = load {kind}, ptr %p{k}",
            f"  store {kind} %v{k}, ptr %q{k}",
        ]
    head = "define i32 @entry(ptr %args, ptr %params, ptr %workspace, ptr %control) nounwind {"
    return "\n".join([head, *lines, "  ret i32 0", "}", ""])


LLVM = {"float64": "double", "float32": "float", "int64": "i64", "int32": "i32", "int8": "i8"}
LLVM |= {"bool": "i8", "bfloat16": "i16", "float16": "i16", "uint8": "i8", "int16": "i16"}
LLVM |= {"uint64": "i64", "uint32": "i32", "uint16": "i16", "complex64": "i64"}
LLVM |= {"complex128": "i128", **dict.fromkeys(dtypes.COMPUTED, "i8")}


def adder(n=5, shape=None, weak=(False, False), out_weak=False, kind="float64"):
    shape = (n,) if shape is None else shape
    inputs = [(shape, kind, w) for w in weak]
    program = Emitted(axpy(LLVM[kind]), [int(np.prod(shape))])
    return load.load(program, inputs, [(shape, kind, out_weak)], 0)


def check_axpy(executable, n: int = 5) -> None:
    """Run a loaded axpy(); its results are right."""
    x, y = np.arange(float(n)), np.full(n, 10.0)
    (out,) = executable([x, y])
    np.testing.assert_array_equal(out, 2 * x + y)
