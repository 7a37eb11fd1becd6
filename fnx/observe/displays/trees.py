"""Pytrees as tables of their leaves: paths, types, bytes; by treescope where that is installed."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from fnx.core import policy
from fnx.core.array import Array, ConcreteArray
from fnx.core.interpreter import Tracer
from fnx.core.source import brief
from fnx.observe.displays import markup
from fnx.pytree import operations


def is_leaf(x: Any) -> bool:
    """Whether a value is a leaf of pytrees."""
    return operations.treedef_is_leaf(operations.tree_structure(x))


def _type(x: Any) -> str:
    """The type of a leaf, with the value of what is no array."""
    if hasattr(x, "holds_keys"):
        return f"{x.dtype}{list(x.shape)}"
    if isinstance(x, Tracer):
        return repr(x)
    if isinstance(x, Array):
        placed = getattr(x, "placed", None) if type(x) is ConcreteArray else None
        return x.aval.str_short() + (f" on {placed}" if placed is not None else "")
    if hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{type(x).__name__} {x.dtype}{list(x.shape)}"
    return f"{type(x).__name__}: {brief(x)}"


class Tree:
    """A pytree to look at: a line for each leaf, with its path and its type.

    >>> fnx.show([jnp.ones(2), {"a": 1.5}])
    [0]       f64[2]
    [1]['a']  float: 1.5
    """

    def __init__(self, tree: Any):
        self.tree = tree

    def _rows(self) -> list[tuple[str, str, int]]:
        keyed = lambda x: hasattr(x, "holds_keys")
        found = operations.tree_leaves_with_path(self.tree, is_leaf=keyed)
        return [
            ("".join(map(str, path)) or ".", _type(x), getattr(x, "nbytes", 0)) for path, x in found
        ]

    def __str__(self) -> str:
        rows = self._rows()
        kept = rows[: policy.DISPLAYED_LEAVES]
        width = max([len(path) for path, *_ in kept], default=0)
        lines = [f"{path:<{width}}  {kind}" for path, kind, _ in kept]
        left = len(rows) - len(kept)
        return "\n".join([*lines, f"… {left:,} more leaves"] if left else lines) or "no leaves"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = self._rows()
        total = sum([count for *_, count in rows])
        what = type(self.tree).__name__
        title = markup.head(what, f"pytree; leaves: {len(rows):,}, {markup.bytes_text(total)}")
        kept = rows[: policy.DISPLAYED_LEAVES]
        table = markup.table([(p, k, markup.bytes_text(n) if n else "") for p, k, n in kept])
        left = len(rows) - len(kept)
        cut = markup.note(f"… {left:,} more leaves", "warn") if left else ""
        return markup.page(title, table, cut) + _by_treescope(self.tree)


def _by_treescope(tree: Any) -> str:
    """The tree as treescope folds it, where that package is; nothing where it is not, or fails."""
    if find_spec("treescope") is None:
        return ""
    try:
        return str(import_module("treescope").render_to_html(tree))
    except Exception:  # the table says what there is
        return ""


__all__ = ["Tree", "is_leaf"]
