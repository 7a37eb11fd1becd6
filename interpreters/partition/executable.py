"""Compiled programs of arrays that lie on a mesh."""

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import Array, ConcreteArray
from fnx.core.jaxpr import Jaxpr


class Placing:
    """A compiled program whose results say how they lie; `notes` are of how it was partitioned.

    `of` is the jaxpr that was compiled, which lives as long as this.
    """

    def __init__(self, native: Any, of: Jaxpr, places: Sequence[Any], notes: Sequence[str]):
        self.native, self.of = native, of
        self.places, self.notes = tuple(places), tuple(notes)

    def __call__(self, args: Sequence[Array]) -> list[Array]:
        return self._placed(self.native(args))

    @property
    def fast(self) -> Callable | None:
        """The quickest call: NotImplemented where the arguments do not fit exactly."""
        run = getattr(self.native, "fast", None)
        if run is None:
            return None

        def fast(leaves: Sequence[Any]) -> Any:
            outs = run(leaves)
            return outs if outs is NotImplemented else self._placed(outs)

        return fast

    def _placed(self, outs: Sequence[Any]) -> list[Array]:
        found: list[Any] = []
        for x, place in zip(outs, self.places, strict=True):
            if place is None:
                found.append(x)
                continue
            new = ConcreteArray(x._value, x.weak_type)
            new.placed = place
            found.append(new)
        return found

    def report(self) -> str:
        """How it was partitioned, and what one program for all is made of."""
        lines = [f"  {note}" for note in self.notes]
        return "\n".join([*lines, self.native.report()])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.native, name)


__all__ = ["Placing"]
