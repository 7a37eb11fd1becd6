"""The checkpoints that are in a folder."""

import os
import platform
import re
import shutil
import time
from pathlib import Path

from fnx.checkpoints.index import NAME

_STEP = re.compile(r"step_(\d{12,})$")


def folder_of(root: str | Path, step: int) -> Path:
    return Path(root) / f"step_{step:012d}"


def steps(folder: str | Path) -> list[int]:
    """The steps of which there are checkpoints, in order.

    >>> fnx.checkpoints.steps("no such folder")
    []
    """
    root = Path(folder)
    names = [p for p in root.iterdir() if (p / NAME).is_file()] if root.is_dir() else []
    return sorted([int(found[1]) for p in names if (found := _STEP.match(p.name))])


def latest(folder: str | Path) -> int | None:
    """The last step of which there is a checkpoint, None if there is none.

    >>> fnx.checkpoints.latest("no such folder") is None
    True
    """
    found = steps(folder)
    return found[-1] if found else None


def forget(root: Path, keep: int) -> None:
    """Delete all checkpoints but the last ones, and what killed runs left of others."""
    for step in steps(root)[:-keep]:
        gone = root / f".old_{step}"
        shutil.rmtree(gone, ignore_errors=True)
        try:
            folder_of(root, step).rename(gone)  # it is there as a whole or not at all
        except OSError:
            if folder_of(root, step).exists() and not gone.exists():
                raise  # else another writer does the same
    for rest in root.glob(".old_*"):
        shutil.rmtree(rest, ignore_errors=True)


_DRAFT = re.compile(r"\.draft_\d+_(?P<host>.*)_(?P<process>\d+)_\d+$", re.DOTALL)
_AT_WORK = 86400.0  # seconds in which a draft of another machine may be one that is being written


def drafted(root: Path, step: int) -> Path:
    """A new folder for what will be a checkpoint; its name says who writes it."""
    made = root / f".draft_{step}_{platform.node()}_{os.getpid()}_{time.time_ns()}"
    made.mkdir()
    return made


def clear(root: Path) -> None:
    """Delete what runs that were killed left, but not what others are writing now."""
    for draft in root.glob(".draft_*"):
        if not _is_at_work(draft):
            shutil.rmtree(draft, ignore_errors=True)


def _is_at_work(draft: Path) -> bool:
    found = _DRAFT.match(draft.name)
    if found is None:
        return False
    if os.name == "posix" and found["host"] == platform.node():
        try:
            os.kill(int(found["process"]), 0)  # asks whether it is there
        except ProcessLookupError:
            return False
        except OSError:
            return True
        return True
    try:
        return time.time() - draft.stat().st_mtime < _AT_WORK
    except OSError:
        return False
