"""Arrays that a program holds: copied from where the process keeps them."""

from typing import Any

import numpy as np

from fnx.core import dtypes, scalar
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import (
    Address,
    CallLibrary,
)
from fnx.lowering.routines.batched_matrices import at, place


def constant(builder: Generation, r: Any, outs: list[Value]) -> None:
    """An array that a program holds."""
    (out,) = outs
    array = np.ascontiguousarray(r.params)
    if builder.target.is_small(out.shape):
        values = [dtypes.scalar_value(x) for x in array.reshape(-1)]
        builder.settle_registers(out, [scalar.literal(x, out.dtype) for x in values])
        return
    destination = place(builder, out)
    args = [at(destination), Address(symbols.keep(array)), scalar.size(array.nbytes)]
    builder.emit(CallLibrary("libm:memcpy", args, [destination.buffer]))


ROUTINES = {"constant": constant}
