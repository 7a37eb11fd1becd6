"""Fourier transforms: one call of a native driver with a plan, which is made when a program is loaded."""

from math import prod

from fnx.core import recipe, scalar
from fnx.lowering.cpu.kernels import pocketfft
from fnx.lowering.cpu.loader import symbols
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Address, CallLibrary, Fill
from fnx.lowering.routines.batched_matrices import at, const, finish, place, work


def known() -> bool:
    """Whether NumPy has the loops that the driver calls."""
    return pocketfft.loops() is not None


def fft(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    from fnx.lowering.cpu.kernels import fft_plan

    kind, lengths = r.params
    (x,), (out,) = r.operands, outs
    source = builder.store(x)  # type: ignore[arg-type]
    destination = place(builder, out)
    if not prod(x.shape):
        if out.size:
            zero = const(0, out.dtype)
            builder.emit(Fill(at(destination), scalar.size(out.size), zero))
        return finish(builder, out)
    shape = (*x.shape[: -len(lengths)], *lengths)
    plan = fft_plan.name(kind, shape, len(lengths), x.dtype)
    space = work(builder, "uint8", fft_plan.work_bytes(plan))
    symbols.soon(f"fft:{plan}")
    args = [Address(f"fft:{plan}"), at(source), at(destination), at(space)]
    written = {s.buffer: None for s in (destination, space)}
    builder.emit(CallLibrary("fnx:fnx_fft", args, list(written)))
    return finish(builder, out)


ROUTINES = {"fft": fft}
