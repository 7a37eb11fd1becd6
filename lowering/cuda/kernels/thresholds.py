"""Every number on which a choice for a GPU depends, each with its unit and its reason.

What the sizes of a machine suggest; programs with them were measured on an H200 (docs/benchmarks.md).
"""

from dataclasses import replace

from fnx.core.backend import PORTABLE, Machine
from fnx.core.fast_dataclasses import dataclass

GPU: Machine = replace(
    PORTABLE,
    stack_bytes=1 << 10,  # of local memory a thread: more spills out of the caches
    far_bytes=1 << 62,  # reading again is what a GPU does best: nothing is far
    far_read=1 << 62,
)


@dataclass(frozen=True)
class Limits:
    """How work is laid out over blocks and threads."""

    threads: int = 256  # of a block: eight warps, which hide most latencies
    blocks: int = 2048  # of a grid, at most: several a multiprocessor; each strides on from there
    tile: tuple[int, int] = (32, 8)  # threads of a block along the last axis and the one before it
    staged: int = 4  # squares of shared memory of a block, at most: 8 KiB each of float64
    shared: int = 40 << 10  # bytes of tiles with their surroundings, at most: blocks have 48 KiB
    reach: int = 8  # elements between neighbours that one tile has, at most
    neighbours: int = 5  # loads of an array in a plane from which on tiles of it are staged
    points: int = 1 << 18  # of a stencil from which on: eight tiles for each of 132 multiprocessors
    elements: int = 4  # of a thread at a time, at most: more make long code
    under_way: int = 48  # bytes of loads of a thread that hide the time of one, where it has few
    short: int = 130  # operations of all elements of a thread at a time, at most
    again: int = 32  # operations on scalars that all threads do rather than one before them
    parallel: int = 64  # iterations from which on a loop is a kernel: two warps
    row: int = 256  # terms of a reduction from which on the threads of a block share it
    lanes: int = 32  # threads of a warp: they share a row of few terms, where there are many rows
    few: int = 1 << 10  # terms of such a row, at most: 32 a thread
    rows: int = 1 << 14  # results from which on each has a thread of its own
    split: int = 1 << 13  # terms from which on a reduction with few results is made in two stages
    strip: int = 8  # terms of a thread in the first stage, at least: as many loads are under way
    parts: int = 512  # of ordered updates that are made in copies, at most
    copies: int = 64  # parts from which on ordered updates are made in copies: else they are sorted
    scan: int = 32  # elements of a row from which on threads share a cumulative reduction
    scan_items: int = 17  # elements of a thread side by side in it: 256 threads have a row of 4,096
    scan_rows: int = 512  # from which on each is one block's: four for each of 132 processors
    scan_part: int = 32  # elements of a thread's part of a column in it, at least
    scan_parts: int = 8  # of a column from which on they are scanned apart: that reads it twice
    per_place: int = 4  # updates of a place by a block from which on it has a copy of all places
    together: int = 4  # updates of a thread that are loaded before the first of them is made
    product: int = 1 << 15  # multiplications from which on a product of matrices is cuBLAS's
    sorted: int = 32  # elements of a row from which on threads share it: one sorts fewer
    sort_items: int = (
        9  # elements of a thread in a tile that a block sorts: 36 KiB of float64, twice
    )
    kept: int = (
        3  # calls whose launches are kept: results of a loop's program lie in two places by turns
    )
    graph: int = 1 << 10  # launches of a graph, at most: a launch in it takes a microsecond less
    ahead: int = 16  # rounds, or launches of branches, before the host asks whether they are wanted
    rounds: int = 4  # of a loop from which on recording its launches pays
    ordered: int = 1 << 24  # elements of all copies of an array for ordered updates, at most


LIMITS = Limits()
# For the simulator: sizes at which small arrays take every way, blocks of a few threads.
SIMULATED = Limits(
    threads=8, blocks=3, tile=(4, 2), parallel=2, row=6, rows=40, split=20, strip=2, parts=4, copies=2,
    ahead=8, scan=5, scan_items=3, scan_rows=9, scan_part=3, scan_parts=3, points=1, sort_items=3,
    together=2, per_place=1, lanes=4, few=20,
)  # fmt: skip
