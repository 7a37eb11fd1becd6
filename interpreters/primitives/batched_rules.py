"""Rules of users under vmap: for all batch elements at once, or for arguments without a batch axis."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array
from fnx.core.errors import UnexpectedTracerError
from fnx.interpreters.batching import Batch, batch, place_axis
from fnx.ops.base.broadcast import Sum

Flat = Callable[..., Sequence[Any]]


def batched_rule(
    fn: Flat, size: int, axes: Sequence[int | None], home: Batch | None = None
) -> Flat:
    """`fn` for all batch elements at once; its results (None stays None) have them along axis 0.

    The batch elements are those of `home`, if given: `fn` may have closed over values that have them.
    """

    def run_batched(*args: Array | None) -> list[Array | None]:
        present = [k for k, a in enumerate(args) if a is not None]
        shape: list[bool] = []

        def inner(*some: Array) -> list[Array]:
            full: list = [None] * len(args)
            for k, a in zip(present, some):
                full[k] = a
            outs = fn(*full)
            shape.extend(o is not None for o in outs)
            return [o for o in outs if o is not None]

        some, where = [args[k] for k in present], [axes[k] for k in present]
        outs, out_axes = batch(inner, size, some, where, home)
        it = iter([place_axis(size, o, k, 0) for o, k in zip(outs, out_axes)])
        return [next(it) if m else None for m in shape]

    return run_batched


def for_once(
    fn: Flat,
    home: Batch,
    mask: list[bool],
    count: Callable[[Sequence], int] = len,
    repeats: int = 1,
    rest: list[bool] | None = None,
) -> Flat:
    """`fn` of arguments without a batch axis, where results may get some: the first `count` by `mask`.

    The others follow the mask again (`repeats`), or have their own, told in `rest`.
    """

    def run(*args: Array | None) -> list[Array | None]:
        made: list = []

        def inner() -> list[Array]:
            made.extend(fn(*args))
            return [o for o in made if o is not None]

        present, axes = batch(inner, home.size, (), (), home)
        it = iter(zip(present, axes))
        pairs = [(None, None) if o is None else next(it) for o in made]
        n = count(made)
        given_ = [k is not None for _, k in pairs]
        if not mask:
            again = given_[n : n * repeats] if repeats > 1 else given_[:n]
            mask.extend(a or b for a, b in zip(given_[:n], again))
        if rest is not None:
            rest[:] = given_[n:]
        full = [*mask * repeats, *given_[n * repeats :]]
        for has, m in zip(given_, full, strict=True):
            if has and not m:
                raise UnexpectedTracerError(
                    "a rule gave results that differ between the batch elements of a vmap, where its "
                    "function gives the same to all; both must agree"
                )
        return [
            None if o is None else place_axis(home.size, o, k, 0) if m else o
            for (o, k), m in zip(pairs, full)
        ]

    return run


def pulled_once(bwd: Flat, home: Batch, mask: list[bool], kept: list[bool]) -> Flat:
    """Cotangents of arguments without a batch axis: what batch elements pull back is summed."""

    def run(*args: Array | None) -> list[Array | None]:
        axes = [0 if m else None for m in (*kept, *mask)]
        made: list = []

        def inner(*some: Array) -> list[Array]:
            it = iter(some)
            made.extend(bwd(*[None if a is None else next(it) for a in args]))
            return [o for o in made if o is not None]

        given_ = [(a, k) for a, k in zip(args, axes) if a is not None]
        values, where = [a for a, _ in given_], [k for _, k in given_]
        outs, where = batch(inner, home.size, values, where, home)
        it = iter([o if k is None else Sum((k,))(o) for o, k in zip(outs, where)])
        return [None if o is None else next(it) for o in made]

    return run


class Zeros(Sequence):
    """Axis 0 for any number of operands."""

    def __getitem__(self, k: Any) -> Any:
        return 0

    def __len__(self) -> int:
        return 1 << 30


def summed(bwd: Flat, axes: Sequence[int | None]) -> Flat:
    """Cotangents where the operands had their batch axes; summed over the batch if they had none."""

    def run_summed(*args: Array) -> list[Array | None]:
        outs = bwd(*args)
        return [
            None if ct is None else Sum((0,))(ct) if k is None else place_axis(0, ct, 0, k)
            for ct, k in zip(outs, axes)
        ]

    return run_summed
