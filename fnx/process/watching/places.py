"""What messages say of where something is made: the line, members of vmaps, iterations of loops."""

from collections.abc import Sequence

from fnx.core.array import Array
from fnx.core.source import Source, at_line, members_at, members_of
from fnx.process.watching.watched import running


def short(x: Array) -> str:
    """An array's type and numbers, in one line."""
    text = str(x).replace("\n", " ")
    return f"{x.aval.str_short()} {text if len(text) < 60 else text[:57] + '...'}"


def members(source: Source | None, at: tuple[Array, tuple[int, ...]] | None) -> str:
    """Which members of vmaps the first element that is wrong belongs to."""
    return "" if at is None else listed(source, at[0].shape, at[1])


def listed(source: Source | None, shape: tuple[int, ...], index: Sequence[int]) -> str:
    """Which members of vmaps an element of an array belongs to."""
    found = members_at(members_of(source, shape), [int(k) for k in index])
    return "".join([f"\n  {member}" for member in found])


def where(name: str, source: Source | None, said: str) -> str:
    """The user's line, whose derivative it is, and the iterations of the loops around."""
    text = at_line(source).replace("at", "made at", 1)
    if source is not None and source.role and not source.role.endswith(f" of {name}"):
        text += f", in {source.role}"
    return text + said + places()


def places() -> str:
    """The iterations of loops, and what else is being run one by one, innermost first."""
    return "".join([f"\n  in {place}" for place in reversed(running.get())])


__all__ = ["listed", "members", "places", "short", "where"]
