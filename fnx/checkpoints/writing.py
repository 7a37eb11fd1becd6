"""Writing checkpoints: each process its parts, one of them the index, and then one renaming."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fnx.checkpoints import index as ix
from fnx.checkpoints.steps import clear, drafted, folder_of, forget
from fnx.core import dtypes
from fnx.core.array import Array
from fnx.core.errors import InvalidValue, TypeMismatch
from fnx.core.interpreter import Tracer
from fnx.process.devices import process_index, ranks
from fnx.process.shards import global_shards
from fnx.process.spread import is_spread
from fnx.pytree.key_paths import keystr
from fnx.pytree.operations import tree_flatten_with_path

_NUMBERS = (bool, int, float, complex)


def save(folder: str | Path, step: int, tree: Any, *, keep: int | None = 3) -> Path:
    """Write a tree of arrays and numbers as the checkpoint of a step, and return its folder.

    All processes call it, on a file system that they share. When it returns the checkpoint is on disk; the
    last `keep` stay (all, for None). A run that is killed leaves those before. InvalidValue, a ValueError,
    for a step that is there already; TypeError for leaves that are neither arrays nor numbers.

    >>> import tempfile
    >>> fnx.checkpoints.save(tempfile.mkdtemp(), 7, [jnp.zeros(2)]).name
    'step_000000000007'
    """
    root, step = Path(folder), int(step)
    if step < 0 or (keep is not None and keep < 1):
        raise InvalidValue(
            f"save of step {step}, keep={keep}; expected 0 or more, and at least one"
        )
    final = folder_of(root, step)
    leaves = _leaves(tree)
    first = process_index() == 0
    names: list[str] = []

    def prepare() -> None:
        if final.exists():
            raise _is_there(step, root)
        root.mkdir(parents=True, exist_ok=True)
        clear(root)
        names.append(drafted(root, step).name)

    _together(prepare if first else _nothing)
    draft = root / _gathered(names)[0]
    try:
        parts: list = []
        _together(lambda: parts.extend(_write(draft, leaves)))
        every = _gathered(parts)

        def finish() -> None:
            described = [_described(path, x) for path, x in leaves]
            for k, part in every:
                described[k]["parts"].append(part)
            body = {"format": ix.FORMAT, "step": step, "tree": ix.structure(tree, [0])}
            _write_file(draft / ix.NAME, [ix.encoded({**body, "leaves": described})])
            _sync(draft)
            _publish(draft, final, step)
            if keep is not None:
                forget(root, keep)

        _together(finish if first else _nothing)
    except BaseException:
        if first:
            shutil.rmtree(draft, ignore_errors=True)
        raise
    return final


def _publish(draft: Path, final: Path, step: int) -> None:
    """Make a checkpoint of what is written, by one renaming."""
    try:
        draft.rename(final)
    except OSError:
        if final.exists():  # another writer was faster
            raise _is_there(step, final.parent) from None
        raise
    _sync(final.parent)


def _is_there(step: int, root: Path) -> InvalidValue:
    return InvalidValue(f"there is a checkpoint of step {step} in {root}; expected a new step")


def _nothing() -> None:
    """What the other processes do where one acts."""


def _together(act: Callable[[], None]) -> None:
    """Act, and wait for all processes; if one failed, all of them say so."""
    failure = None
    try:
        act()
    except Exception as error:
        failure = error
    failed = bool(failure)
    if ranks:
        failed = bool(ranks[0].all_reduce(np.asarray(failed), "max"))
    if failure is not None:
        raise failure
    if failed:
        raise InvalidValue("another process could not write its part of the checkpoint")


def _leaves(tree: Any) -> list[tuple[str, Any]]:
    found = []
    for path, x in tree_flatten_with_path(tree)[0]:
        name = keystr(path)
        if isinstance(x, Tracer):
            raise TypeMismatch(
                f"the leaf {name or 'itself'} of a checkpoint is a traced value; expected an array: call "
                "save outside of jit"
            )
        if not isinstance(x, (Array, np.ndarray, np.generic, *_NUMBERS)):
            raise TypeMismatch(
                f"the leaf {name or 'itself'} of a checkpoint is {type(x).__name__}; expected arrays and "
                "numbers"
            )
        dtype = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
        if dtype not in dtypes.NAME:
            raise TypeMismatch(
                f"the leaf {name or 'itself'} of a checkpoint has dtype {dtype}; expected one of arrays: "
                "keep fnx.random.key_data(key) of a key, and numbers of 64 bits"
            )
        found.append((name, x))
    return found


def _described(path: str, x: Any) -> dict:
    kind = type(x).__name__ if type(x) in _NUMBERS else "array"
    value = np.asarray(x) if kind != "array" else x
    return {
        "path": path,
        "kind": kind,
        "shape": list(np.shape(value)),
        "dtype": dtypes.NAME.get(value.dtype, str(value.dtype)),
        "weak_type": bool(getattr(x, "weak_type", False)),
        "parts": [],
    }


def _own_parts(x: Any) -> list[tuple[list, np.ndarray]]:
    """The parts that this process writes, of which no other has a copy that it would write."""
    if not is_spread(x):
        value = np.asarray(x)
        return [([[0, n] for n in value.shape], value)] if process_index() == 0 else []
    found = []
    for shard in global_shards(x):
        if shard.replica_id == 0 and shard.data is not None:
            bounds = zip(shard.index, x.shape)
            box = [[i.start or 0, n if i.stop is None else i.stop] for i, n in bounds]
            found.append((box, np.asarray(shard.data)))
    return found


def _write(draft: Path, leaves: list) -> list[tuple[int, dict]]:
    """This process's file; the number of the leaf and the description of each part in it."""
    name = f"process_{process_index()}.bin"
    parts: list[tuple[int, dict]] = []
    blocks = []
    offset = 0
    for k, (_, x) in enumerate(leaves):
        for box, value in _own_parts(x):
            little = value.astype(value.dtype.newbyteorder("<"), order="C", copy=False)
            data = np.ascontiguousarray(little).reshape(-1).view(np.uint8)
            where = {"file": name, "offset": offset, "nbytes": data.nbytes}
            parts.append((k, {**where, "box": box, "checksum": ix.checksum(data)}))
            blocks.append(data)
            offset += data.nbytes
    _write_file(draft / name, blocks)
    return parts


def _write_file(path: Path, blocks: list) -> None:
    with path.open("wb") as file:
        for block in blocks:
            file.write(memoryview(block))
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Let names in a folder be on disk; not all systems can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _gathered(parts: list) -> list:
    """The items of all processes, such as the parts that they have written."""
    if not ranks:
        return parts
    text = np.frombuffer(json.dumps(parts).encode(), np.uint8)
    sizes = ranks[0].all_gather(np.asarray(text.size))
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: text.size] = text
    rows = ranks[0].all_gather(padded)
    return [p for row, n in zip(rows, sizes) for p in json.loads(row[: int(n)].tobytes())]
