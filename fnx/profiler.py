"""Traces of profilers, a module path of JAX."""

from fnx.process.profiler import (
    StepTraceAnnotation,
    TraceAnnotation,
    annotate_function,
    start_trace,
    stop_trace,
    trace,
)

__all__ = [
    "StepTraceAnnotation",
    "TraceAnnotation",
    "annotate_function",
    "start_trace",
    "stop_trace",
    "trace",
]
