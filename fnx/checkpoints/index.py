"""The index of a checkpoint: what its arrays are, and where in which file each of their parts lies.

The format, version 1. A checkpoint of step 12 is the folder `step_000000000012` with one file of raw bytes
for each process, `process_3.bin`, and `index.json`:

    format       1
    step         12
    tree         the structure: {"dict": [[key, tree]]}, {"list": [tree]}, {"tuple": [tree]},
                 {"none": true}, or the number of a leaf; null if it has nodes of other kinds
    leaves       for each leaf its `path` in the tree, `kind` ("array", or the type of a Python number),
                 `shape`, `dtype`, `weak_type` and `parts`
    checksum     of all of this

and each part the `file`, `offset` and `nbytes` of its elements, in row-major order and little endian, their
`checksum`, and `box`, their place in the array: (start, stop) for each axis. Checksums are BLAKE2b of 16
bytes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from fnx.core.errors import FnxError
from fnx.pytree.operations import all_leaves

FORMAT = 1
NAME = "index.json"


class CorruptCheckpoint(FnxError, ValueError):
    """A checkpoint is not what was written: a file is missing, short or changed.

    >>> issubclass(fnx.checkpoints.CorruptCheckpoint, ValueError)
    True
    """


def checksum(data: Any) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def encoded(index: dict) -> bytes:
    """The text of an index, with its checksum."""
    body = json.dumps(index, sort_keys=True)
    return json.dumps({**index, "checksum": checksum(body.encode())}, sort_keys=True).encode()


def read(folder: Path) -> dict:
    """The index of the checkpoint in a folder; CorruptCheckpoint if it is not what was written."""
    try:
        index = json.loads((folder / NAME).read_bytes())
        found = index.pop("checksum")
        same = found == checksum(json.dumps(index, sort_keys=True).encode())
    except (OSError, ValueError, LookupError, AttributeError, TypeError) as error:
        raise CorruptCheckpoint(
            f"the index of the checkpoint {folder} cannot be read: {error}"
        ) from error
    if not same:
        raise CorruptCheckpoint(f"the index of the checkpoint {folder} is not what was written")
    if index["format"] != FORMAT:
        raise CorruptCheckpoint(
            f"the checkpoint {folder} has format {index['format']}; expected {FORMAT}: use the version of "
            "fnx that wrote it"
        )
    return index


# --- structures ----------------------------------------------------------------------------------


def structure(tree: Any, count: list[int]) -> Any:
    """A tree of dicts, lists, tuples and None, leaves by their numbers; None for other nodes."""
    if tree is None:
        return {"none": True}
    if type(tree) is dict:
        if not all(type(k) is str for k in tree):
            return None
        found = {k: structure(tree[k], count) for k in sorted(tree)}
        # Leaves are numbered in the order of sorted keys; the tree has those in their own order.
        return None if None in found.values() else {"dict": [[k, found[k]] for k in tree]}
    if type(tree) in (list, tuple):
        items = [structure(x, count) for x in tree]
        return None if None in items else {type(tree).__name__: items}
    if not all_leaves([tree]):
        return None
    count[0] += 1
    return count[0] - 1


def rebuilt(shape: Any, leaves: list) -> Any:
    """The tree of a structure and its leaves."""
    if type(shape) is int:
        return leaves[shape]
    if "none" in shape:
        return None
    if "dict" in shape:
        return {k: rebuilt(s, leaves) for k, s in shape["dict"]}
    kind = list if "list" in shape else tuple
    return kind([rebuilt(s, leaves) for s in shape[kind.__name__]])
