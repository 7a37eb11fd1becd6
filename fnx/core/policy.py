"""Every threshold of policy, by the room that asks for it, each with its unit and its reason.

Policy is what is decided alike whatever the machine. What was measured on a processor, or is asked of it,
is a `Machine` (`backend.py`), and for the CPU in `lowering/cpu/processor/thresholds.py`.
"""

# interpreters/analysis/cost_model.py
# bytes, of small matrix products; large ones reach the speed of BLAS, but are not small
BYTES_PER_FLOP = 0.25
ITERATION_BYTES = 0.5  # bytes at least, of an equation in a loop
REGISTER_BYTES = 64  # bytes that stay in registers
RECOMPUTED_ELEMENTS = 64  # elements up to which what is free or cheap lives in registers
RECOMPUTED_BYTES = 0.25  # bytes an element up to which that is so

# interpreters/analysis/value_ranges.py
RANGE_ELEMENTS = 1 << 16  # elements of a constant that are looked through
RANGE_EQUATIONS = 64  # equations that are gone back over to find what made a tracer

# interpreters/passes
COPIED_ELEMENTS = 16  # of a carry that is handed on: so few stay in registers, and need no copy
COLUMN_TOUCHES = 4  # times that each column is touched, on average, for a layout by columns
COLUMN_LENGTH = 16  # numbers in such a column, and in a row
SELECTED_ELEMENTS = 64  # elements up to which a select over an array is no trouble, and stays one
PREDICATED_PART = 4  # predicated updates write at most one part in so many of their array
SUNK_UPDATES = 8  # updates of one array that sink out of a branch, at most,
SUNK_INDICES = 16  # and integers that say where each goes
# times over a jaxpr: without dead parts of loops, more around them may be equal, or dead
SIMPLIFICATIONS = 3
# times that an array is repeated from which on a transpose of it costs little
TRANSPOSED_SPREAD = 4
# updates that become one concatenation, at most, of which one is most of the array
CONCATENATED = 4
CUT_SUMS = 1.25  # times an array that is added up: so much may slices of it hold together

# interpreters/primitives
# elements of a batch element's values from which on it is worth a branch of its own
BRANCH_ELEMENTS = 64
BRANCH_WORK = 1024  # elements that the branch computes, likewise
# equations of an eager scan, of all iterations, that are evaluated sooner than compiled
EAGER_EQUATIONS = 400
# of an eager while loop that are interpreted before a compiled one takes over
EAGER_ITERATIONS = 20

# interpreters/reverse/checkpoint_blocks.py
BLOCKED_ITERATIONS = 48  # iterations of a scan from which on checkpoints are worth it
BLOCKED_STATE = 1 << 9  # bytes stored for each iteration, likewise
# times the states that are kept: so many are worth blocks after which carries are where they began
ODD_BLOCKS = 1.125
SHORT_BLOCKS = 1.125  # times the least bytes: so many are worth blocks that stay in nearer caches
BLOCKED_RECOMPUTING = 1.5  # bytes of computing again, for a byte stored, at most,
NEAR_RECOMPUTING = 0.45  # and where there is memory for all that would be stored
BLOCKED_ROWS = 1 << 22  # bytes of the rows of a block, at most, likewise

# interpreters/reverse/checkpoint_online.py, checkpoint_while.py, trip_count.py
ONLINE_LARGEST_BASE = 1024  # checkpoints of one distance, at most,
ONLINE_LEAST_BASE = 8  # and at least
ONLINE_BYTES = 1 << 24  # bytes of all checkpoints of one distance, unless the base is the least
ONLINE_WORK = 1 << 44  # bytes of states of all iterations; more takes longer than anybody waits
ONLINE_ITERATIONS = 1 << 20  # iterations that are possible whatever the state
# iterations of a bounded while loop: a row for each of them is never too much
ROWS_ALWAYS = 1 << 12
ROW_BYTES = 1 << 27  # bytes of rows for all iterations, if they are more
VIRTUAL_ROW_BYTES = 1 << 31  # bytes of rows of which most are never touched
BLOCK_LEAST = 16  # iterations of a block, at least,
BLOCK_MOST = 1 << 10  # and at most
BLOCK_ROW_BYTES = 1 << 24  # bytes of rows for the iterations of a block
# iterations from which on a stack of something for each would be too large
COUNTED_ITERATIONS = 1 << 20

# interpreters/reverse/rank_k_sums.py, low_rank_updates.py
RANK_K_ITERATIONS = 4  # iterations from which on outer products become one product,
RANK_K_MATRIX = 4  # where the matrix is so many times its two vectors at least,
# and bytes of more stacks are at most that, unless the loop reads as much anyway
RANK_K_STACKS = 1 << 18
# bytes of all states of a matrix from which on its updates are kept instead,
LOW_RANK_BYTES = 1 << 20
LOW_RANK_STACKS = 4  # where the stacks of their vectors are at most so many times the matrix

# interpreters/reverse/residuals.py
# times the arrays of a loop: so much may be kept of the loops in it without being dear
RESIDUAL_BYTES = 2
RESIDUAL_PRICE = 4  # how dear it is then, against running them again
RESIDUAL_REGISTERS = 16  # elements of an array that is not in memory
# of its bytes, the price of a carry that each iteration writes anyway: into rows of a stack
CARRY_ROW_PRICE = 0.3

# interpreters/reverse/linear_scales.py: of a value, so that fewer products with numbers are felt: loops
# over 3 elements take 1.02 of their time with them, over 10 elements 0.92
SCALED_ELEMENTS = 8

# interpreters/primitives/masked_loop.py, interpreters/primitives/write_out.py
MEMBERS = 8  # batch elements from which on each may run a loop of its own,
MEMBER_VALUE = 64  # if no value of a step of one has more elements,
MEMBER_WORK = 4096  # and a step computes no more elements in all
MASKS = 4  # carries that are tried as masks
WRITTEN_INDEX = 8  # elements of an index whose value is looked for, at most
WRITTEN_ITERATIONS = 32  # iterations of a loop that are written out, at most,
WRITTEN_OUT = 2048  # and equations that they become

# lowering/planning, lowering/pipeline.py
SMALL = 16  # an array of at most so many elements lives in registers, its operations unrolled
UNROLLED_WORK = 512  # a reduction over at most so many points, with small results, is unrolled
UNROLLED_IN_ALL = 1024  # real points of reductions that are unrolled in one program,
OUTLINED = 16  # after which those with more points than this are functions of their own
DEEP = 64  # operations after one another, after which a number in registers gets a name
UNROLLED_AXIS = 8  # a trailing axis up to this is unrolled where that resolves choices by index
CHEAP = 8  # operations an element up to which a value is computed again at each use,
CHEAP_USES = 2  # and at how many uses; the less it costs, the more
FAR_WORK = 64  # operations an element, over all uses, up to which a far array is computed again,
FAR_SOURCES = 2  # of so many other arrays at most
SPREAD = 8  # times that a small array is repeated from which on it is stored before a carry goes
UNROLLED_ROW = 16  # terms of a reduction up to which they are written out for each result
CHAIN = 4  # terms of one that are written out one after the other; more make several chains
INTERLEAVED = 4  # terms side by side up to which vectors hold one of each of several results
WIDE_ROW = 64  # elements of such rows, at least,
HEAVY_ROWS = 128  # and operations of an element of all of them, at most
FEW_LANES = 4  # results along the last axis from which on they are the lanes of a vector
PROBLEM = 64  # elements of a value of one problem, whose operations are written out, at most,
PROBLEM_TERMS = 256  # terms of one of its reductions,
PROBLEM_NODES = 3000  # and operations of a problem in one loop over problems
NEST_NODES = 1500  # operations of an element in one nest: LLVM's time grows with their square,
PULLED = 600  # and those of a value that is computed where it is read
VECTOR_ROW = 8  # elements from which on rows of products with a shared matrix are vectors instead
# equations that go with a reduction: elementwise, and spreading what is smaller
SIBLING_EQUATIONS = 8
WINDOWS_AT_ONCE = 1 << 24  # bytes of windows side by side, in convolutions of NumPy's
DONATION_TRIES = 100  # pairs of a result and a donated input that are looked at

# lowering/generate
REGION_ELEMENTS = 16  # elements along an axis from which on its inside is worth a loop of its own
REGION_PIECES = 4  # of a concatenation that are loops of their own, at most
CHOSEN_PIECES = 8  # of an array whose elements choose by index, at most: inside a frame it has five
CHOSEN_SIZE = 1 << 20  # elements of such an array up to which launches take longer than operations
REGION_CUTS = 8  # of an axis, at most
SCATTER_BLOCK = 256  # updates whose positions are computed together
REGISTER_UPDATES = 256  # choices (updates times elements) up to which registers are updated

# lowering/routines
SORTED_BLOCK = 4  # elements that a network sorts before merging begins
SORTED_BY_NETWORK = 8  # elements that a network sorts without more
SORTED_BY_SELECTION = 32  # up to so many largest elements are kept sorted while the others go by
UNROLLED_ORDER = 8  # rows of a factorization that is written out, at most
UNROLLED_PIVOTED = 4  # rows of one with exchanges of rows,
UNROLLED_LU = 8  # rows of one whose loops over columns are not written out

# lowering/transform, lowering/ir
FAR_STRIDE = 8  # elements: a longer stride leaves the cache line
HALVES = 4  # halves of double buffers that positions depend on, at most
UNKNOWN_EXTENT = 64  # iterations that a loop is taken to have if nobody knows
CALL_WORK = 4096  # operations that a library or host call is taken for
POLLED_WORK = 1 << 22  # operations, about a millisecond, between two looks for signals
HOST_PRODUCT = 1 << 15  # multiplications from which on a call of NumPy's, 10 us, is quicker
SPLIT_ITERATIONS = 64  # iterations from which on a loop is cut
TABLE_ELEMENTS = 4  # elements up to which choices cost no more than a load
TABLE_WORK = 16  # operations for each element of an array from which on a nest is worth the stores
COALESCED_ITERATIONS = 64  # from which on threads' shares of the outer loop are equal enough
# operations of an iteration from which on two divisions for its indices do not matter
COALESCED_WORK = 64
LONG_ROW = 32  # elements of a row from which on single numbers a row may be computed in between
FUSED_NESTS = 32  # nests that become one: its code, and the time to make it, grow with them
FUSION_HOPS = 16  # statements between two nests that may be jumped over
WINDOW_LAYER = 16  # elements of a layer of a window, at least: its loops are those of vectors
WINDOW_SCALAR_PART = 16  # parts of all work, of which a loop that loses its vectors has one at most
STENCIL_NESTS = 32  # of a slab, at most: code, and the time to make it, grow with them
STENCIL_STRIPS = 10  # at least, for threads to share, where a strip may have several columns:
STENCIL_COLUMNS = 8  # at most so many
STENCIL_SIDE_PART = 16  # parts of all work, of which a nest on a side of the grid has one at most
# ways of the nearest cache in a buffer from which on some lines after it are few,
STAGGERED_WAYS = 4
WAY_PART = 1 / 8  # and of a way, the part by which its size is a multiple of it, or nearly so
STRIP_WORK = 1 << 28  # operations of a strip, at most: nobody asks meanwhile whether to stop
STRIPS_WORK = 1 << 30  # and of strips that are made between two such questions
FEW_STRIPS = 8  # strips beside which another one counts
STRIP_COLUMNS = 512  # columns of a strip, at most
STRIP_TRIES = 6  # ways of seeing columns in a loop that are tried
INNERMOST_ITERATIONS = 16  # iterations that make an innermost loop long enough
STACK_ROW = 1 << 15  # bytes of a row that are kept on the stack, at most
ROW_RESULTS = 4  # reductions of a row that one loop makes: each has an accumulator, and addresses
STACK_ROWS = 8  # rows of a nest, at most: threads of others may have small stacks

# fnx/ops/linalg
FOLDED_PRODUCT = 512  # multiplications, and
# results, up to which a product is a reduction that fuses with what it is made of
FOLDED_RESULTS = 16
FOLDED_CONVOLUTION = 512  # products of a convolution that are not worth the tiles of a large nest
LONG_SUM = 32  # terms of each of a few sums from which on the lanes of vectors are terms, not sums
TANGENT_ORDER = 8  # up to this order, the tangent of a factor is made of systems and products

# fnx/transforms
SHARED_FUNCTIONS = 1024  # functions whose programs wait for their next jit; some hold arrays

# fnx/observe/displays
SUMMARISED_ELEMENTS = 1 << 18  # of an array that are all looked at, which takes milliseconds
SAMPLED_ELEMENTS = 1 << 16  # of a larger one: each is a page of memory to itself
STRIP_CELLS = 96  # of a heat strip of one axis
GRID_CELLS = 24, 48  # of one of two axes: a path of a dozen characters each
STRIP_COLOURS = 24  # more cannot be told apart
PRINTED_ELEMENTS = 1000  # that are printed in full, as NumPy does; of more, corners,
PRINTED_RANK = 4  # which grow with the rank: six an axis
UNFOLDED_ELEMENTS = 100  # of an array whose values are seen at once
DISPLAYED_CHARACTERS = 20_000  # of one text: a notebook keeps them all
DISPLAYED_EQUATIONS = 200  # of one jaxpr, nested ones included: several screens
NOTED_LINES = 6  # of the user's, above one statement of a source
DISPLAYED_PARAMETER = 120  # characters of a parameter of an equation
DISPLAYED_ROWS = 30  # arguments that are listed: a screen
DISPLAYED_LOWERINGS = 300  # equations up to which a display makes code to show, in a second
DISPLAYED_SPECIALISATIONS = 6  # of a jitted function, the last ones
DRAWN_EQUATIONS = 80  # of a graph, nested ones included: more than a screen
DISPLAYED_LEAVES = 200  # of a pytree: several screens
DRAWN_DEVICES = 256  # of a mesh: so many numbers can be read

# fnx/distributed
PATIENCE_WITH_RANKS = 30.0  # seconds of waiting in one exchange after which a rank says so
LOOK_FOR_RANKS = 1e-3  # seconds between looks for a rank that asks for an item
