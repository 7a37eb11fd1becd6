"""Exchanges between the members of a team: one call of the run time with a record of what is exchanged."""

from fnx.core import recipe
from fnx.lowering.generate import updates
from fnx.lowering.generate.generation import Generation
from fnx.lowering.generate.values import Materialized, Scalars, Value
from fnx.lowering.ir.kernel import Address, CallLibrary
from fnx.lowering.ir.number_formats import itemsize
from fnx.lowering.routines.batched_matrices import at, finish, in_place, place


def exchange(builder: Generation, r: recipe.Library, outs: list[Value]) -> None:
    kind, site, partition, size, op, sources = r.params
    (out,) = outs
    sent = 0
    given = destination = None
    if r.operands:
        x: Value = r.operands[0]  # type: ignore[assignment]
        sent = x.size * itemsize(x.dtype)
        if kind == "reduce" and _takes_over(builder, x, out):
            given = destination = out.state = in_place(builder, x, out)
        else:
            given = builder.store(x)
    destination = destination or place(builder, out)
    count = out.size // size if kind in ("gather", "all_to_all") else out.size
    dtype = op and out.dtype  # what is only moved is bytes
    count *= 1 if op else itemsize(out.dtype)
    words = (kind, site, partition, op, dtype, count, sent, ",".join(map(str, sources)))
    name = f"exchange:{'|'.join(map(str, words))}"
    args = [Address(name), at(given or destination), at(destination)]
    builder.emit(CallLibrary("fnx:fnx_exchange", args, [destination.buffer], checked=True))
    finish(builder, out)


def _takes_over(builder: Generation, x: Value, out: Value) -> bool:
    """Whether a reduction over members is best left in the place of what each has.

    Each member combines elements of its own, and writes them to all results after it has read them; one
    array instead of two comes through the cache.
    """
    if isinstance(x.state, Materialized):
        return updates.is_in_place(x, out) and builder.dies(x)
    return x.last_use <= builder.scope.position and not isinstance(x.state, Scalars)


ROUTINES = {"exchange": exchange}
