"""Reading checkpoints: whole arrays, or what lies on devices of this process, from parts that have it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fnx.checkpoints import index as ix
from fnx.checkpoints.index import CorruptCheckpoint
from fnx.checkpoints.steps import folder_of, steps
from fnx.core import dtypes
from fnx.core.array import ConcreteArray
from fnx.core.errors import InvalidValue, ShapeError
from fnx.process.devices import device_put
from fnx.process.shards import make_array_from_callback
from fnx.process.spread import spans
from fnx.pytree.key_paths import keystr
from fnx.pytree.operations import broadcast_prefix, tree_flatten, tree_flatten_with_path

_KINDS = {"bool": bool, "int": int, "float": float, "complex": complex}


def restore(
    folder: str | Path, like: Any = None, *, step: int | None = None, shardings: Any = None
) -> Any:
    """The tree of a checkpoint, by default the last one.

    `like` is a tree of its structure, of arrays or ShapeDtypeStructs: arrays of the result lie as those do.
    Without it the tree must be of dicts, lists and tuples. `shardings`, a pytree prefix, says how arrays
    are to lie. InvalidValue, a ValueError, if there is no such checkpoint, or it has another structure;
    ShapeError for arrays of another shape or dtype; CorruptCheckpoint if files are not what was written.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> path = fnx.checkpoints.save(folder, 1, (jnp.arange(3.0),))
    >>> fnx.checkpoints.restore(folder, like=(jnp.zeros(3),))
    (Array([0., 1., 2.], dtype=float64),)
    """
    where = _folder(folder, step)
    index = ix.read(where)
    leaves = index["leaves"]
    if like is None:
        if index["tree"] is None:
            raise InvalidValue(
                f"the checkpoint {where} has nodes other than dicts, lists and tuples; expected "
                "restore(folder, like=tree), a tree of the same structure"
            )
        places = [None] * len(leaves)
    else:
        places = _places_like(like, leaves, where)
    build = (
        (lambda xs: ix.rebuilt(index["tree"], xs))
        if like is None
        else tree_flatten(like)[1].unflatten
    )
    if shardings is not None:
        shape = build([object() for _ in leaves])
        places = broadcast_prefix(shardings, shape, is_leaf=lambda s: s is None)
    reader = _Reader(where)
    return build([_leaf(reader, leaf, place) for leaf, place in zip(leaves, places, strict=True)])


def _folder(folder: str | Path, step: int | None) -> Path:
    found = steps(folder)
    if not found:
        raise InvalidValue(f"there is no checkpoint in {folder}; expected one that save wrote")
    chosen = found[-1] if step is None else step
    if chosen not in found:
        raise InvalidValue(f"there is no checkpoint of step {step} in {folder}; there are {found}")
    return folder_of(folder, chosen)


def _places_like(like: Any, leaves: list[dict], where: Path) -> list:
    """How each leaf is to lie; checked against what the checkpoint has."""
    given = [(keystr(path), x) for path, x in tree_flatten_with_path(like)[0]]
    paths = [leaf["path"] for leaf in leaves]
    if [name for name, _ in given] != paths:
        missing = sorted(set(paths) - {n for n, _ in given})
        extra = sorted({n for n, _ in given} - set(paths))
        raise InvalidValue(
            f"the checkpoint {where} has another structure than `like`: it has {missing or 'nothing'} "
            f"besides, and not {extra or 'anything else'}"
        )
    found = []
    for (name, x), leaf in zip(given, leaves):
        shape, dtype = tuple(leaf["shape"]), dtypes.of_name(leaf["dtype"])
        if hasattr(x, "shape") and (tuple(x.shape), x.dtype) != (shape, dtype):
            raise ShapeError(
                f"the leaf {name} of the checkpoint {where} has shape {shape} and dtype {dtype}; `like` "
                f"has shape {tuple(x.shape)} and dtype {x.dtype}"
            )
        place = getattr(x, "sharding", None)
        found.append(place if hasattr(place, "spec") else None)
    return found


def _leaf(reader: "_Reader", leaf: dict, place: Any) -> Any:
    shape, dtype = tuple(leaf["shape"]), dtypes.of_name(leaf["dtype"])
    if place is not None and spans(place):
        at = lambda box: reader.box(leaf, [_bounds(i, n) for i, n in zip(box, shape)], dtype)
        return make_array_from_callback(shape, place, at, dtype)
    value = reader.box(leaf, [(0, n) for n in shape], dtype)
    if leaf["kind"] in _KINDS:
        return _KINDS[leaf["kind"]](value[()])
    out = ConcreteArray(value, leaf["weak_type"])
    return out if place is None else device_put(out, place)


def _bounds(index: slice, size: int) -> tuple[int, int]:
    return index.start or 0, size if index.stop is None else index.stop


class _Reader:
    """Reads boxes of arrays from the parts of a checkpoint."""

    def __init__(self, folder: Path):
        self.folder = folder

    def box(self, leaf: dict, box: Sequence[tuple[int, int]], dtype: np.dtype) -> np.ndarray:
        """The elements of a box of a leaf."""
        out = np.empty([hi - lo for lo, hi in box], dtype)
        found = 0
        for part in leaf["parts"]:
            shared = [(max(a, c), min(b, d)) for (a, b), (c, d) in zip(box, part["box"])]
            if any(lo >= hi for lo, hi in shared):
                continue
            value = self.part(part, dtype)
            to = tuple([slice(lo - a, hi - a) for (lo, hi), (a, _) in zip(shared, box)])
            of = tuple([slice(lo - c, hi - c) for (lo, hi), (c, _) in zip(shared, part["box"])])
            out[to] = value[of]
            found += value[of].size
        if found != out.size:
            raise CorruptCheckpoint(
                f"the checkpoint {self.folder} has {found} of the {out.size} elements of leaf "
                f"{leaf['path'] or 'itself'} that are wanted; expected all"
            )
        return out

    def part(self, part: dict, dtype: np.dtype) -> np.ndarray:
        path = self.folder / part["file"]
        try:
            with path.open("rb") as file:
                file.seek(part["offset"])
                data = file.read(part["nbytes"])
        except OSError as error:
            raise CorruptCheckpoint(
                f"the file {path} of a checkpoint cannot be read: {error}"
            ) from error
        if len(data) != part["nbytes"] or ix.checksum(data) != part["checksum"]:
            raise CorruptCheckpoint(
                f"the file {path} of a checkpoint is not what was written: {part['nbytes']} bytes at "
                f"{part['offset']} have another checksum. Restore an earlier step (fnx.checkpoints.steps)"
            )
        shape = [hi - lo for lo, hi in part["box"]]
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
