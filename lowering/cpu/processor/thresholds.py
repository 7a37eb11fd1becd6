"""Every number that was measured on CPUs, by the room that asks for it, each with its unit and its reason.

What generation and transformations ask of any machine is a `Machine`; policy that no machine changes is in
`fnx/core/policy.py`.
"""

from dataclasses import replace

from fnx.core.backend import Machine

from . import features

CPU = Machine(
    line=64,
    way=1 << 12,
    stagger=25 * 64,  # of 64 lines: multiples of it are spread evenly over a way
    vector=64,
    vector_bits=128,
    side_by_side=4,
    far_bytes=1 << 20,
    far_read=1 << 11,
    near_bytes=1 << 18,
    streamed_bytes=1 << 19,
    stack_bytes=3 << 16,
    window_bytes=1 << 15,
    windows_bytes=3 << 15,
    window_gain=1 << 15,
    rows_at_once=4,
    batch_sums=640,
    far_batch=1 << 19,
    nest_work=1 << 20,
    parallel_work=1 << 18,
    parallel_reduction=1 << 19,
    parts=64,
    strip_parts=16,
    least_strips=8,
)

# lowering/cpu/schedule
SHORT_ROW = 20  # bytes of a trailing axis, of 4 elements at least, whose rows are vectors;
COSTLY_ROW = 48  # bytes of one of which costly functions are computed, unless it is long
# consecutive elements of a problem's row from which on blocks of problems go row by row,
PACKED_ROW = 4
PACKED_WRITE = 8  # where problems are so many elements apart that LLVM does not do it itself:
PACKED_READ = 6  # writing, and reading
TILED = 400  # cache lines from which on transposed access goes tile by tile
TILE = (64, 16)  # elements of a tile: along what is read contiguously, and across
LINE = 64  # bytes of a line of the caches
CACHE_SETS = 64  # of the nearest cache
POLLED_WORK = 1 << 30  # operations of a loop, about a second, in which Ctrl-C should be heard
LEAST_ELEMENTS = 4  # batch elements from which on their loops run side by side,
SLOTS = (32, 16)  # at most so many, for a light step and a heavy one
HEAVY_STEP = 64  # operations of a step from which on it is heavy
FLATTENED = 8  # times the operations of a loop inside a step that may be around it
REFILL = 192  # operations a slot, as long as giving new elements to free ones, beside their own
ELEMENTS_PER_SLOT = 8  # batch elements of a piece for each slot, about: at its end slots are free
REDUCED_STACK = 1 << 16  # bytes of a strip's arrays
LONGEST_STRIP = 128  # iterations of a strip, at most,
SHORTEST_STRIP = 32  # and at least
TILE_ROWS = 12  # of a register tile at most, each of one or two vectors
CACHE_WAYS = 6  # lines of a set of the nearest cache that stay there
LONG_TILES = 4  # tiles along an axis from which on one more costs little
TILE_CHAINS = 4  # rows from which on sums need not wait for each other

# lowering/cpu/llvm
POLL_WORK = 1 << 24  # operations between two questions whether to stop: some milliseconds
# lines of a mathematical function, fewer than most have, that becomes part of a loop
INLINED_LINES = 19
CALLED_LINES = 76  # from which on none does
MANY_CALLS = 100  # of kernels, from which on a program is compiled quickly
UNROLLED_TAIL = 16  # elements up to which loops are left to LLVM, which unrolls most of them
IN_PLACE_ROW = 64  # elements up to which a row of choices, read where it is written, gains by that
COSTLY_TAIL = 4  # elements of which a vector of a costly function is made at least
LONG_LOOP = 1 << 12  # elements from which on the rest of a loop of costly functions does not matter
WAITING = 12  # other operations after one another from which on a core waits for them,
APART = 3  # unless an iteration has so many times more of them
CROWDED = 40  # operations of an iteration from which on registers do for one vector of them
WIDE_ITERATIONS = 16  # that a loop has at least, if they are long
# numbers carried around a loop up to which LLVM may make several iterations side by side
INTERLEAVED_CARRIES = 4
GRAIN_WORK = 1 << 17  # operations worth a task of their own: a few microseconds
PREFETCHED_BUFFER = 1 << 22  # bytes of a buffer of which nothing stays in a core's caches,
ROW_ENDS = 16  # elements between one such row and the next, at most,
PREFETCHED_ROW = (4, 256)  # and lines of rows asked for at once, a third of the nearest one
PREFETCHED_AHEAD = (4, 1 << 13)  # rows, and bytes, that are asked for before they are read, at most
REGISTER_OPERATIONS = 3  # for each number, if what a loop needs registers for is numbers

# lowering/cpu/jit
STRAIGHT_LINES = 3000  # lines from which on code without loops is compiled quickly
LONG_BLOCK = 2000  # instructions of a block whose order is chosen quickly
STRAIGHT_BLOCK = 1000  # instructions of a block of such code
PART_CHARACTERS = 12_000  # characters of a part that is compiled by itself: some ten milliseconds
PARTS = 8  # of a program at most: several a thread, since of equal ones some take twice as long
COMPILE_THREADS = 4  # threads of a crew that compiles, at most
ASK_AGAIN = 1e-3  # seconds until a thread asks again whether LLVM has the options that it needs
LOADED_PROGRAMS = 1024  # programs that stay loaded though nobody may use them any more

# lowering/cpu/runtime, lowering/cpu/loader
KEPT_BYTES = 1 << 13  # outputs of so many bytes live in blocks that are kept for the next call
# blocks of so many bytes are kept rather than those that have waited longest
COSTLY_BLOCK = 1 << 17
KEPT_BLOCKS = 64  # blocks that may wait for their next use
BLOCK_STEP = 1 << 10  # bytes by which sizes of blocks differ at least
HUGE_BLOCK = 1 << 22  # blocks of so many bytes ask the system for huge pages
BLAS_WORK = 1 << 21  # multiplications below which one thread of BLAS works
POLL_MILLISECONDS = 50  # between two looks at whether Python has a signal for us
BETWEEN_POLLS = 50_000_000  # ns that a caller sleeps until it asks whether to stop
LOOKS = 16  # at a word, some 0.5 us, between two offers of the CPU to others
OFFERS = 80  # before sleeping: about 50 us, since to be woken costs 10 us and more
WORTH_WAKING = 4  # grains; of fewer, threads are woken only for one that follows another
SOON = 25_000  # ns from such a loop to the next; woken threads look out for longer than that
FINER = 4  # pieces of a grain, at most
PIECES_PER_THREAD = 8  # with few, a late or slow thread holds up the others
SHARES = 16  # with more threads, several begin with the same share
TEAM = 200_000  # operations that a team saves, some 40 us, from which on it is worth waking
EXCHANGE = 5_000  # operations that an exchange takes as long as, 1 us,
CROWDED_EXCHANGE = 100_000  # and where members have no processor of their own
COMBINED = 2048  # numbers, half of an L1, that a member adds up before all get them
WITHOUT_GIL = 1 << 17  # programs on more bytes than this run without the GIL

# lowering/cpu/kernels, lowering/cpu/routines
TRIANGLE = 32  # where one triangle of a product is wanted, up to this size all is computed
FFT_PLANS = 1 << 26  # bytes of plans that are remembered for programs to come
FFT_GRAIN = 1 << 14  # numbers whose transforms, some 100 us, are worth a thread's while
FFT_SHORT = 64  # length of rows up to which several are transformed together
FFT_OWN = 1 << 23  # bytes of work memory that each thread may take for itself
FFT_BLOCK = 1 << 18  # bytes of columns that are transformed together, at most, if there are several
GEMM_DEPTH = 256  # indices that are summed over before the sums are added to C
# of a row of a block of B: with the depth, what fits into half of a second-level cache
GEMM_VECTORS = 27
# bytes of B for each row of a tile, which read it at once: more of them are packed
GEMM_NEAR = 1 << 15
GEMM_FAR = 1 << 24  # bytes of B from which on it is best read once, in order
# rows of tiles, by the bits of a vector, for which B is not worth packing: narrow tiles read each line
# twice, and not from few sets of a cache
GEMM_FEW = {512: 4, 256: 1}
GEMM_TILES = 8  # below each other, of one call
GEMM_PIECE = 1 << 18  # multiplications that are worth a task of their own
GEMM_GROUP = 128  # bytes of a column of A that are copied at once: few lines are then read twice
PACKED_AHEAD = 4  # rows of B, or columns of A, that are asked for before they are copied
PACKED_ROWS = 16  # rows of B that a thread packs, or several times as many
PACKED_PIECE = 1 << 15  # elements whose packing is worth a task of its own
GEMV_COLUMNS = 8  # added at a time
GEMV_STRIP = 1 << 14  # bytes of y
GEMV_PIECE = 1 << 17  # multiplications that are worth a thread's while
GEMV_GRAIN = 1 << 19  # bytes of A that are worth a task of their own
# bytes of a column, at most, where lines of the next columns are asked for before they are added;
GEMV_NEAR = 1 << 12
GEMV_FAR = 1 << 20  # bytes of A from which on memory is far:
GEMV_LONG = 1 << 10  # then, in columns of so many bytes, lines further down are asked for,
GEMV_AHEAD = 1 << 9  # by so many bytes
GEMV_RUNS = 16  # of columns that are added up apart, at most
GEMV_EVEN = 4  # their number is a multiple of that, so that threads get as many
GEMV_PAIR = 1 << 16  # bytes of A from which on two products with it are made in one pass,
GEMV_PAIR_ROWS = 1 << 20  # of rows that are read again at once, at most: they are still near;
GEMV_PAIR_RUN = 128  # rows, at least, that have a result of their own
GEMV_NARROW = 32  # vectors of columns that are worth a task of their own
# multiplications of a product that loops do in the time of a call of a library: of rows that are long
# enough for vectors,
INLINED_ROWS = 4096
INLINED_SEVERAL = {"float32": 2048, "float64": 1024}  # of rows of several vectors of AVX-512,
INLINED_RAGGED = 512  # of rows that end within a vector, without AVX-512, element by element,
INLINED = 1024  # of others,
INLINED_VECTOR = 256  # and of a matrix and a vector, for which there is a routine of fnx's own
PRODUCT_ROW = 8  # elements of a row of the result that is long enough for vectors
PRODUCT_TERMS = 16  # terms up to which a sum of products is one expression
PRODUCT_COLUMNS = 8  # columns of a result, up to which each has a sum in a register
PRODUCT_REUSED = 4  # rows of the result from which on a better layout of the other operand pays

# iterations up to which LLVM makes no vectors of a loop; told how wide, it prints a remark of it
SHORT_LOOP = 16


def machine() -> Machine:
    """This CPU, with the width of its vectors."""
    return replace(CPU, vector_bits=features.vector_bits())
