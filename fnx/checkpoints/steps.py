"""The checkpoints that are in a folder."""

import re
import shutil
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
        folder_of(root, step).rename(gone)  # it is there as a whole or not at all
    for rest in root.glob(".old_*"):
        shutil.rmtree(rest, ignore_errors=True)
