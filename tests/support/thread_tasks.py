"""Loops as LLVM IR that the thread pool shares out, and a call of the pool."""

import ctypes

import numpy as np

from fnx.lowering.cpu.runtime import thread_pool

# context: counts[n], then the address of fnx_parallel_for, then the address of a word
TASKS = """
define void @count(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %p = getelementptr i64, ptr %context, i64 %i
  %old = load i64, ptr %p
  %new = add i64 %old, 1
  store i64 %new, ptr %p
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define void @nested(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  %run_place = getelementptr i64, ptr %context, i64 0
  %run = load ptr, ptr %run_place
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %body, label %done
body:
  %offset = mul i64 %i, 50
  %shifted = add i64 %offset, 1
  %p = getelementptr i64, ptr %context, i64 %shifted
  call void %run(ptr @count, ptr %p, i64 50, i64 1)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

declare i64 @pthread_self()

define void @who(ptr %context, i64 %lo, i64 %hi) nounwind {
entry:
  %me = call i64 @pthread_self()
  br label %head
head:
  %i = phi i64 [ %lo, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, %hi
  br i1 %more, label %wait, label %done
wait:
  %k = phi i64 [ 0, %head ], [ %k1, %wait ]
  %k1 = add i64 %k, 1
  %p = getelementptr i64, ptr %context, i64 %i
  store volatile i64 %me, ptr %p
  %ready = icmp sge i64 %k1, 20000
  br i1 %ready, label %body, label %wait
body:
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}
"""


def parallel_for(task: int, context: np.ndarray, n: int, grain: int) -> None:
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)
    kind(thread_pool.address())(task, context.ctypes.data, n, grain)
