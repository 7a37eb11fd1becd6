"""Files that nobody else can have written, so that what is in them may be run.

As ssh does with keys: a folder and its files must be this user's, or root's, and nobody else may write
to them. The folder is looked at once a process; each file when it is open, so that it stays the one.
"""

import os
import stat

LARGEST = 1 << 28  # bytes of a file that is read; code has some thousands
# A link is no file of ours; a pipe or a device must not make us wait.
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def problem(folder: str) -> str:
    """Why what lies in a folder may be another's, and what to do, or ""; OSError if it is gone."""
    if os.name != "posix":
        return ""
    place = os.path.realpath(folder)
    found = os.stat(place)
    if not stat.S_ISDIR(found.st_mode):
        return ""  # nothing can be read or written there
    if not _ours(found):
        return f"it belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}"
    if found.st_mode & _OTHERS:
        return f"others may write to it (run: chmod go-w '{place}')"
    # Who may write to a parent can put another folder in this one's place. Its files would be
    # theirs, and refused; but what everybody may change is not meant to hold what one trusts.
    while place != (place := os.path.dirname(place)):
        mode = os.stat(place).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"everybody may replace it, since everybody may write to '{place}'"
    return ""


def _ours(found: os.stat_result) -> bool:
    return found.st_uid in (os.geteuid(), 0)


def make(folder: str) -> None:
    """Make a folder, and those above it that are missing, for this user alone."""
    above = os.path.dirname(folder)
    if above != folder and not os.path.isdir(above):
        make(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise


def read(path: str) -> tuple[bytes, float]:
    """The bytes of a file, and when it was changed; OSError if there is none, or not of ours."""
    handle = os.open(path, _FLAGS)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LARGEST:
            raise OSError(f"{path} is not a file of compiled code")
        if os.name == "posix" and (not _ours(found) or found.st_mode & _OTHERS):
            raise PermissionError(f"others may have written {path}")
        data = os.read(handle, found.st_size)
        while len(data) < found.st_size and (more := os.read(handle, found.st_size - len(data))):
            data += more
        return data, found.st_mtime
    finally:
        os.close(handle)
