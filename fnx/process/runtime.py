"""The process at run time: compiled programs, threads, memory; what is asked of it or told to it."""


def compile_stats() -> dict[str, int]:
    """How many native programs this process compiled, read from the disk, and found in memory.

    `kernels_compiled` counts those that LLVM compiled.

    >>> sorted(fnx.compile_stats())
    ['disk_hits', 'kernels_compiled', 'memory_hits']
    """
    from fnx.lowering.cpu.jit import code_cache

    stats = code_cache.stats()
    return {
        "kernels_compiled": stats["compiled"],
        "disk_hits": stats["disk_hits"],
        "memory_hits": stats["memory_hits"],
    }


def set_num_threads(n: int) -> None:
    """How many threads a native program may use; ValueError below 1.

    >>> before = fnx.get_num_threads()
    >>> fnx.set_num_threads(1)
    >>> fnx.get_num_threads()
    1
    >>> fnx.set_num_threads(before)
    """
    from fnx.lowering.cpu.runtime import thread_pool

    thread_pool.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads a native program may use.

    >>> fnx.get_num_threads() >= 1
    True
    """
    from fnx.lowering.cpu.runtime import thread_pool

    return thread_pool.get_num_threads()


def release_memory() -> None:
    """Give the memory of freed arrays, which is kept for later ones, back to the system.

    >>> fnx.release_memory()
    """
    from fnx.lowering.cpu.loader import executable

    executable.release_memory()


def effects_barrier() -> None:
    """Nothing to wait for: effects have happened when a call returns.

    >>> fnx.effects_barrier()
    """
