"""The cache of compiled code on disk: what it holds, and how to empty it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fnx.lowering.cpu.jit.disk_cache import Info


def info() -> "Info":
    """Its folder, number of entries, bytes, the bound on bytes, and whether it is used."""
    from fnx.lowering.cpu.jit import disk_cache

    return disk_cache.info()


def clear() -> int:
    """Remove all entries; their number. Programs already loaded stay loaded."""
    from fnx.lowering.cpu.jit import disk_cache

    return disk_cache.clear()


def sweep(bound: int | None = None) -> int:
    """Remove the entries that were used longest ago until `bound` bytes are left; their number."""
    from fnx.lowering.cpu.jit import disk_cache

    return disk_cache.sweep(bound)
