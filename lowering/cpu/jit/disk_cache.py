"""The persistent cache: compiled code and what belongs to it, in files that any process may read.

An entry is a file that is named by its key and begins with a checksum over this name, its kind, its
length and its bytes, so that a torn file, or that of another entry, is a miss. So is what somebody else
may have written (`private_files.py`): what is found here is run. Files appear whole (written aside, then
renamed), so that processes need no locks.
"""

import contextlib
import importlib.util
import itertools
import os
import platform
import re
import stat
import sys
import time
import warnings
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from fnx.core import __version__, config

try:  # hashlib would load OpenSSL too, which takes longer than all that is hashed here
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b
from fnx.lowering.cpu.processor import features

from . import private_files

# The packages whose code decides to what code a jaxpr is lowered: those of primitives, and what is below
# them. What the public surface traces is in the jaxpr.
SOURCES = ("fnx.core", "fnx.ops", "fnx.experimental", "fnx.interpreters", "fnx.lowering")
_MAGIC = b"fnxcach2"  # names the form of a file; a new one goes with new keys
_DIGEST = 20
_HEADER = len(_MAGIC) + _DIGEST
_SWEEP_EVERY = 256  # writes of this process between two looks at the size of the folder
_DEFAULT_LIMIT = 1 << 30
_FRESH = 86400.0  # a hit renews the time of an entry that is older than this, in seconds


class CacheWarning(RuntimeWarning):
    """The cache of compiled code cannot be written or trusted; fnx works on without it."""


class Info(NamedTuple):
    """What the cache holds: its folder, the number of entries, bytes, and the bound on bytes."""

    folder: Path
    entries: int
    bytes: int
    limit: int
    enabled: bool


def folder() -> Path:
    """Where entries live: `FNX_CACHE_DIR`, or the user's cache folder of this platform."""
    return Path(_place())


def _place() -> str:
    chosen = os.environ.get("FNX_CACHE_DIR")
    if not chosen:
        return str(_default_folder())
    if not os.path.isabs(chosen):
        with contextlib.suppress(OSError):  # the current folder was removed
            return os.path.join(os.getcwd(), chosen)
    return chosen


@lru_cache(maxsize=1)
def _default_folder() -> Path:
    # What platformdirs would say here; to import it takes longer than to load a program.
    if sys.platform != "linux":
        import platformdirs

        return Path(platformdirs.user_cache_dir("fnx", appauthor=False))
    chosen = os.environ.get("XDG_CACHE_HOME", "").strip()
    found = chosen if os.path.isabs(chosen) else os.path.expanduser("~/.cache")
    if os.path.isabs(found):
        return Path(found, "fnx")
    import tempfile  # the user has no home, in a container say

    return Path(tempfile.gettempdir(), f"fnx-{os.geteuid()}")  # which `_refused` looks at


def limit() -> int:
    """The bound on the bytes of all entries: `FNX_CACHE_LIMIT`, or 1 GiB."""
    try:
        return int(os.environ.get("FNX_CACHE_LIMIT", _DEFAULT_LIMIT))
    except ValueError:
        return _DEFAULT_LIMIT


def enabled() -> bool:
    return bool(config.cache.value)


def key(*parts: str | bytes, sources: bool = True) -> str:
    """A name for what depends on `parts`, on the compiler, on the CPU, and on fnx's `sources`."""
    digest = blake2b(environment(), digest_size=_DIGEST)
    if sources:
        digest.update(fingerprint().encode())
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return digest.hexdigest()


@lru_cache(maxsize=1)
def environment() -> bytes:
    """What all keys depend on: the versions of compiler and Python, the platform, and the CPU."""
    words = [_compiler(), sys.platform, platform.machine(), *features.identity()]
    words += [_MAGIC.decode(), str(sys.implementation.cache_tag)]  # whose marshal wrote an entry
    return "\0".join(words).encode()


def _compiler() -> str:
    """What tells the compiler's version, if possible without importing it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        package = importlib.util.find_spec("llvmlite").origin  # type: ignore[union-attr]
        return Path(package).with_name("_version.py").read_text("utf-8")  # type: ignore[arg-type]
    import llvmlite

    return llvmlite.__version__


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """What tells the sources that decide to what code a jaxpr is lowered: their sizes and times."""
    found: list[tuple[str, int, int]] = []
    for package in SOURCES:
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            found += _stamps(root)
    # The version, too: some installers give all files the same time.
    said = f"{__version__} {sorted(found)}"
    return blake2b(said.encode(), digest_size=_DIGEST).hexdigest()


def _stamps(place: str) -> list[tuple[str, int, int]]:
    """Name, size and time of each source file below a folder, in any order."""
    found, folders = [], [place]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name[-3:] == ".py":
                    about = entry.stat()
                    found.append((name, about.st_size, about.st_mtime_ns))
                elif "." not in name and name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return found


# --- entries -----------------------------------------------------------------------------------


def _path(name: str) -> Path:
    return Path(_place(), name[:2], name)


def get(name: str, kind: str = "code") -> bytes | None:
    """The bytes that were put under a key, or None: absent, damaged, not ours, cache off."""
    if not enabled() or _refused():
        return None
    path = os.path.join(_place(), name[:2], name)
    try:
        data, used = private_files.read(path)
    except OSError:
        return None
    payload = data[_HEADER:]
    if data[:_HEADER] != _header(kind, name, payload):
        with contextlib.suppress(OSError):
            os.unlink(path)
        return None
    # Entries are evicted by age since their last use, which is noted about once a day.
    if time.time() - used > _FRESH:
        with contextlib.suppress(OSError):
            os.utime(path, follow_symlinks=False)
    return payload


def _header(kind: str, name: str, payload: bytes) -> bytes:
    """What a file begins with: it fits no other entry's bytes, and no other kind of them."""
    digest = blake2b(f"{kind} {name} {len(payload)}\n".encode(), digest_size=_DIGEST)
    digest.update(payload)
    return _MAGIC + digest.digest()


def put(name: str, payload: bytes, kind: str = "code") -> bool:
    """Keep bytes under a key; False, with one warning a process, if that is not possible."""
    if not enabled() or len(payload) > private_files.LARGEST - _HEADER:
        return False
    data = _header(kind, name, payload) + payload
    try:
        private_files.make(str(folder()))
        if _refused():
            return False
        try:
            _write(_path(name), data)
        except FileNotFoundError:  # another process emptied the cache just now
            _write(_path(name), data)
    except OSError as error:
        _warn(
            f"compiled code cannot be kept in {folder()}: {error}. Programs will be compiled anew "
            "in each process; set FNX_CACHE_DIR to a folder that can be written, or FNX_CACHE=0."
        )
        return False
    _sweep_sometimes()
    return True


def _write(path: Path, data: bytes) -> None:
    """Write a file aside and rename it, so that nobody sees half of it."""
    private_files.make(str(path.parent))
    temporary = path.parent / f"{_ASIDE}{os.getpid()}-{next(_serial)}-{time.time_ns():x}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        try:
            os.replace(temporary, path)
        except IsADirectoryError:
            os.rmdir(path)  # never ours; if there is something in it, it stays
            os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


_serial = itertools.count()
_state = {"warned": False, "writes": 0}


def _warn(text: str) -> None:
    if not _state["warned"]:
        _state["warned"] = True
        warnings.warn(text, CacheWarning, stacklevel=3)


def _refused() -> bool:
    """Whether others may have put code into the folder; looked at once a process, if it is there."""
    place = _place()
    why = _problems.get(place)
    if why is None:
        try:
            why = _problems[place] = private_files.problem(place)
        except OSError:
            return False
    if why:
        _warn(
            f"compiled code in {place} is not used: {why}, and whoever can write there could have "
            "this process run code of theirs. Programs will be compiled anew in each process; let "
            "this user alone write to the folder, set FNX_CACHE_DIR to one that is so, or FNX_CACHE=0."
        )
    return bool(why)


_problems: dict[str, str] = {}  # of folders that were looked at


# --- size --------------------------------------------------------------------------------------


def _sweep_sometimes() -> None:
    _state["writes"] += 1
    if _state["writes"] % _SWEEP_EVERY == 1:
        sweep()


def _files() -> list[tuple[float, int, str]]:
    """Time of last use, bytes and path of each file of the cache, half-written ones included."""
    found = []
    for shard in [] if _refused() else _list(_place(), _SHARD):
        if shard.is_symlink():  # leads to what is not ours
            continue
        for file in _list(shard.path, _FILE):
            with contextlib.suppress(OSError):  # others may remove it meanwhile
                about = file.stat(follow_symlinks=False)
                if not stat.S_ISDIR(about.st_mode):
                    found.append((about.st_mtime, about.st_size, file.path))
    return found


def _is_aside(path: str) -> bool:
    """Whether a file is half-written."""
    return os.path.basename(path).startswith(_ASIDE)


_ASIDE = ".tmp-"
_SHARD = r"[0-9a-f]{2}"
_FILE = rf"[0-9a-f]{{{2 * _DIGEST}}}|\.tmp-.*"


def _list(place: str, pattern: str) -> list[os.DirEntry[str]]:
    """What lies in a folder under a name of ours."""
    ours = re.compile(pattern).fullmatch
    try:
        with os.scandir(place) as entries:
            return [entry for entry in entries if ours(entry.name)]
    except OSError:
        return []


def sweep(bound: int | None = None) -> int:
    """Remove the entries that were used longest ago until `bound` bytes are left; their number."""
    bound = limit() if bound is None else bound
    files = sorted(_files())
    total = sum(size for _, size, _ in files)
    # Down to nine tenths, so that a full cache is not swept at every write.
    target = bound if total <= bound else bound * 9 // 10
    removed = 0
    for when, size, path in files:
        abandoned = _is_aside(path) and time.time() - when > 3600
        if total <= target and not abandoned:
            continue
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += 1
        total -= size
    return removed


def info() -> Info:
    """The state of the cache on disk."""
    sizes = [size for _, size, path in _files() if not _is_aside(path)]
    return Info(folder(), len(sizes), sum(sizes), limit(), enabled() and not _refused())


def clear() -> int:
    """Remove all entries; their number. Programs already loaded stay loaded."""
    removed = 0
    for _, _, path in _files():
        with contextlib.suppress(OSError):
            os.unlink(path)
            removed += not _is_aside(path)
    for shard in _list(_place(), _SHARD):
        with contextlib.suppress(OSError):
            os.rmdir(shard.path)
    return removed
