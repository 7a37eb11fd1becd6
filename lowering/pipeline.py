"""The Kernel IR of a whole program: its arguments and results, what it does, its memory planned."""

from collections.abc import Callable, Sequence

from fnx.core import policy, scalar
from fnx.core.jaxpr import Jaxpr, Var
from fnx.lowering.generate.builder import Builder, dtype_name
from fnx.lowering.generate.target import Target
from fnx.lowering.generate.values import OWN, Materialized, Scalars, Value
from fnx.lowering.ir.kernel import Buffer, Program
from fnx.lowering.planning.input_output_aliases import Aliases, candidates
from fnx.lowering.transform import buffer_assignment

from . import recipes


def build(
    jaxpr: Jaxpr, donated: Sequence[int], target: Target, make: Callable[..., Builder] = Builder
) -> tuple[Program, list[str]]:
    """The Kernel IR of a jaxpr for a target, with its memory planned; and notes for the report."""
    refused: set[tuple[int, int]] = set()
    while True:
        aliases = (
            candidates(jaxpr, donated, refused) if len(refused) < policy.DONATION_TRIES else {}
        )
        builder, inputs, outputs, kept = _built(jaxpr, aliases, target, make)
        if len(kept) == len(aliases):
            break
        # The other results would have to be copied there: they are better new, or elsewhere.
        refused |= aliases.items() - kept.items()
    for transform in target.passes:
        transform(builder)
    total = buffer_assignment.plan(
        builder.block, builder.buffers, builder.machine, target.runs_at_once
    )
    program = Program(jaxpr.name or "f", inputs, outputs, builder.block, total, aliases=aliases)
    return program, builder.notes


def _built(
    jaxpr: Jaxpr, aliases: Aliases, target: Target, make: Callable[..., Builder]
) -> tuple[Builder, list[Buffer], list[Buffer], Aliases]:
    """The statements, and which results are where `aliases` wants them."""
    builder = make(recipes.make, target)
    inputs, values, carry_buffers = [], [], {}
    for k, var in enumerate(jaxpr.inputs):
        dtype, shape = dtype_name(var.aval.dtype), var.aval.shape
        buffer = Buffer(f"in{k}", dtype, max(var.aval.size, 1), "argument", k)
        inputs.append(buffer)
        value = Value(shape, dtype, Materialized(buffer, owned=False))
        if target.is_small(shape):
            loads = [scalar.load(buffer, scalar.size(i), dtype) for i in range(var.aval.size)]
            value.state = Scalars(loads)
        values.append(value)
    for j, k in aliases.items():
        carry_buffers[jaxpr.outs[j]] = values[k].state = Materialized(inputs[k])
        values[k].scope = OWN
    outputs, destinations = [], {}
    places: dict[int, Buffer] = {}
    for k, atom in enumerate(jaxpr.outs):
        if k in aliases:
            continue
        number = len(inputs) + len(outputs)
        dtype, n = dtype_name(atom.aval.dtype), max(atom.aval.size, 1)
        places[k] = Buffer(f"out{k}", dtype, n, "argument", number)
        outputs.append(places[k])
        if type(atom) is Var and not target.is_small(atom.aval.shape) and atom not in carry_buffers:
            destinations.setdefault(atom, Materialized(places[k]))
    results = builder.jaxpr(jaxpr, values, destinations, carry_buffers)  # type: ignore[arg-type]
    for k, buffer in places.items():
        if results[k].size:
            builder.store_into(results[k], Materialized(buffer))
    kept = {j: k for j, k in aliases.items() if _is_at(builder.store(results[j]), inputs[k])}
    return builder, inputs, outputs, kept


def _is_at(place: Materialized, buffer: Buffer) -> bool:
    return place.buffer is buffer and place.base is scalar.size(0)
