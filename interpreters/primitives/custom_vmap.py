"""Rules of users for vmap: custom_vmap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from fnx.core.array import Array
from fnx.core.errors import InvalidValue
from fnx.interpreters.batching import Batch, place_axis
from fnx.interpreters.jvp import jvp
from fnx.interpreters.linearize import linearize
from fnx.interpreters.operands import given, only, spread

from .custom_derivatives import CustomRule, call_with_rule, check_results

# (size of the batch, which operands are batched, these with the batch axis in front) -> results, which are
BatchRule = Callable[
    [int, tuple[bool, ...], Sequence[Array]], tuple[Sequence[Array], Sequence[bool]]
]


@dataclass(frozen=True, eq=False)
class CustomVmap(CustomRule):
    """`rule` gives the results for all batch elements at once; derivatives are those of the function."""

    rule: BatchRule = field(default=None, repr=False)  # type: ignore[assignment]
    name = "custom_vmap_call"
    what = "the custom_vmap function"
    __eq__, __hash__ = object.__eq__, object.__hash__

    def jvp(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
        self.check_consts(tangents)
        primals, tangents = primals[self.consts :], tangents[self.consts :]
        n, mask = len(primals), given(tangents)
        found: list[bool] = []

        def fun(*args: Array) -> list[Array]:
            outs, touts = jvp(self.fun, args[:n], spread(mask, args[n:]))
            found[:] = given(touts)
            return [*outs, *only(found, touts)]

        def rule(size: int, batched: tuple[bool, ...], args: Sequence[Array]) -> tuple:
            either = [b or t for b, t in zip(batched, spread(mask, batched[n:], False))]
            wanted = [*either, *only(mask, either)]
            full = [x if b or not e else place_axis(size, x, None, 0)
                    for x, b, e in zip(args, batched, wanted)]  # fmt: skip
            which: list[bool] = []

            def run(*xs: Array) -> Sequence[Array]:
                outs, out_batched = self.rule(size, tuple(either), xs)
                which[:] = out_batched
                return outs

            outs, touts = jvp(run, full[:n], spread(mask, full[n:]))
            found[:] = found or given(touts)  # the function itself may not have run
            missing = [t is None and f for t, f in zip(touts, found)]
            if any(missing):
                raise InvalidValue(
                    f"the rule of {self.of} gives results without tangents, where the function has some"
                )
            return [*outs, *only(found, touts)], [*which, *only(found, which)]

        outs = call_with_rule(
            CustomVmap(fun, self.of, rule=rule), [*primals, *only(mask, tangents)]
        )
        count = len(found)
        return tuple(outs[:count]), spread(found, outs[count:])

    def linearize(self, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:  # type: ignore
        self.check_consts(tangents)
        primals, tangents = primals[self.consts :], tangents[self.consts :]
        _, tape = linearize(self.fun, primals, given(tangents))
        plain = replace(self, jaxpr=None, consts=0)
        return tuple(call_with_rule(plain, primals)), tuple(tape.push(tangents))

    def batch(self, size: int, args: tuple, axes: tuple) -> tuple[tuple, tuple]:
        if any(k is not None for k in axes[: self.consts]):
            raise InvalidValue(
                f"the custom_vmap function {self.of} closed over a value with a batch axis; its rule knows "
                "nothing of them. Pass the value as an argument."
            )
        args, axes = args[self.consts :], axes[self.consts :]
        front = [x if k is None else place_axis(size, x, k, 0) for x, k in zip(args, axes)]
        outs, batched = self.rule(int(size), given(axes), front)
        if self.jaxpr is not None:
            wanted = [a.update(shape=(int(size), *a.shape)) if b else a
                     for a, b in zip(self.jaxpr.out_avals, batched)]  # fmt: skip
            check_results(outs, wanted, f"the rule of {self.of}")
        return tuple(outs), tuple([0 if b else None for b in batched])

    def once(self, home: Batch, mask: list[bool]) -> "CustomVmap":
        raise InvalidValue(
            f"the custom_vmap function {self.of} is called inside another vmap, of whose batch none of "
            "its arguments is. Pass what differs between batch elements as an argument."
        )
