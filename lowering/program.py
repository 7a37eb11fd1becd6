"""The Kernel IR of a whole program: its arguments and results, what it does, its memory planned."""

from fnx.core import scalar
from fnx.core.jaxpr import Jaxpr, Var

from . import fuse, memory, rows, tails
from .build import Builder, dtype_name
from .kernel import Buffer, Program
from .values import Handle, Registers, Stored


def build(jaxpr: Jaxpr) -> tuple[Program, list[str]]:
    """The Kernel IR of a jaxpr, with its memory planned; and notes for the report."""
    builder = Builder()
    inputs, handles = [], []
    for k, var in enumerate(jaxpr.inputs):
        dtype, shape = dtype_name(var.aval.dtype), var.aval.shape
        buffer = Buffer(f"in{k}", dtype, max(var.aval.size, 1), "argument", k)
        inputs.append(buffer)
        stored = Stored(buffer, owned=False)
        handle = Handle(shape, dtype, stored)
        if fuse.is_small(shape):
            loads = [scalar.load(buffer, scalar.size(i), dtype) for i in range(var.aval.size)]
            handle.state = Registers(loads)
        handles.append(handle)
    outputs, targets = [], {}
    for k, atom in enumerate(jaxpr.outs):
        dtype = dtype_name(atom.aval.dtype)
        buffer = Buffer(f"out{k}", dtype, max(atom.aval.size, 1), "argument", len(inputs) + k)
        outputs.append(buffer)
        if type(atom) is Var and not fuse.is_small(atom.aval.shape):
            targets.setdefault(atom, Stored(buffer))
    results = builder.jaxpr(jaxpr, handles, targets)
    for handle, buffer in zip(results, outputs, strict=True):
        if handle.size:
            builder.store_into(handle, Stored(buffer))
    rows.fuse(builder)
    tails.overlap(builder.block)
    total = memory.plan(builder.block, builder.buffers)
    return Program(jaxpr.name or "f", inputs, outputs, builder.block, total), builder.notes
