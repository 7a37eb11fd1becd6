"""What may happen to the files of a cache: each function here spoils one of them, or two."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random

Damage = Callable[[Random, Path, Path], None]  # an entry, and another


def bits(rng: Random, path: Path, other: Path) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 3, 50))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    with path.open("r+b") as file:  # in place: somebody may be reading
        file.write(data)


def shorter(rng: Random, path: Path, other: Path) -> None:
    os.truncate(path, rng.randrange(path.stat().st_size))


def longer(rng: Random, path: Path, other: Path) -> None:
    with path.open("ab") as file:
        file.write(rng.randbytes(rng.randrange(1, 5000)))


def noise(rng: Random, path: Path, other: Path) -> None:
    path.write_bytes(rng.randbytes(rng.randrange(100000)))


def sparse(rng: Random, path: Path, other: Path) -> None:
    os.truncate(path, 1 << rng.randrange(20, 40))


def swapped(rng: Random, path: Path, other: Path) -> None:
    aside = path.with_name("aside")
    path.rename(aside)
    other.rename(path)
    aside.rename(other)


def copied(rng: Random, path: Path, other: Path) -> None:
    path.write_bytes(other.read_bytes())


def renamed(rng: Random, path: Path, other: Path) -> None:
    path.rename(other)


def hard_link(rng: Random, path: Path, other: Path) -> None:
    path.unlink()
    path.hardlink_to(other)


def link(rng: Random, path: Path, other: Path) -> None:
    path.unlink()
    path.symlink_to(rng.choice((str(other), "nowhere", path.name, "/dev/zero", "/", "/dev/tty")))


def pipe(rng: Random, path: Path, other: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(rng: Random, path: Path, other: Path) -> None:
    path.unlink()
    path.mkdir()
    if rng.random() < 0.3:
        (path / "notes.txt").write_text("mine")


def removed(rng: Random, path: Path, other: Path) -> None:
    path.unlink()


def mode(rng: Random, path: Path, other: Path) -> None:
    path.chmod(rng.choice((0, 0o666, 0o620, 0o400)))


def old(rng: Random, path: Path, other: Path) -> None:
    when = path.stat().st_mtime - rng.uniform(0, 1e7)
    os.utime(path, (when, when))


def no_shard(rng: Random, path: Path, other: Path) -> None:
    shutil.rmtree(path.parent)
    if rng.random() < 0.3:
        path.parent.write_text("a file in the place of a folder")


def linked_shard(rng: Random, path: Path, other: Path) -> None:
    aside = path.parent.with_name(f"{path.parent.name}-aside-{rng.random()}")
    path.parent.rename(aside)
    path.parent.symlink_to(aside)


ALL: list[Damage] = [
    *(bits, shorter, longer, noise, sparse, swapped, copied, renamed, hard_link, link, pipe),
    *(folder, removed, mode, old, no_shard, linked_shard),
]


def some(rng: Random, cache: Path) -> str:
    """Spoil some entry of a cache; the name of what was done, or "" if it came to nothing."""
    names = [Path(place, name) for place, _, files in os.walk(cache) for name in files]
    files = sorted(p for p in names if len(p.name) == 40 and 0 <= _size(p) < 1 << 22)
    if len(files) < 2:
        return ""
    damage, chosen = rng.choice(ALL), rng.sample(files, 2)
    if rng.random() < 0.5:  # entries of alike sizes are most easily taken for each other
        size = _size(chosen[0])
        chosen[1] = min(
            [path for path in files if path != chosen[0]], key=lambda path: abs(_size(path) - size)
        )
    try:
        damage(rng, *chosen)
    except (OSError, ValueError):  # it is gone, or empty, by now
        return ""
    return damage.__name__


def _size(path: Path) -> int:
    """The bytes of a file; -1 where there is none, but a link, say, or a pipe, which would make us wait."""
    try:
        about = path.lstat()
    except OSError:
        return -1
    return about.st_size if stat.S_ISREG(about.st_mode) else -1
