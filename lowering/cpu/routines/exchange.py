"""Exchanges between the members of a team: one call of the run time with a record of what is exchanged."""

from fnx.core import recipe
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Value
from fnx.lowering.ir.kernel import Address, CallLibrary
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.routines.batched_matrices import at, finish, place


def exchange(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    kind, site, partition, size, op, sources = r.params
    (out,) = outs
    sent = 0
    given = None
    if r.operands:
        (x,) = r.operands
        given = builder.store(x)  # type: ignore[arg-type]
        sent = x.size * itemsize(x.dtype)  # type: ignore[attr-defined]
    destination = place(builder, out)
    count = out.size // size if kind in ("gather", "all_to_all") else out.size
    dtype = op and out.dtype  # what is only moved is bytes
    count *= 1 if op else itemsize(out.dtype)
    words = (kind, site, partition, op, dtype, count, sent, ",".join(map(str, sources)))
    name = f"exchange:{'|'.join(map(str, words))}"
    args = [Address(name), at(given or destination), at(destination)]
    builder.emit(CallLibrary("fnx:fnx_exchange", args, [destination.buffer], checked=True))
    finish(builder, out)


ROUTINES = {"exchange": exchange}
