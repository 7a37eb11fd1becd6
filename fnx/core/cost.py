"""What an element of a primitive's result costs: the unit of all decisions on fusion and recomputation.

A cost is an estimate for ordinary processors, not a measurement of one: a storing and loading of a
float64 takes about as long as a dozen fused additions or one exponential.
"""

from math import inf
from typing import NamedTuple


class Cost(NamedTuple):
    """The cost of one element of a result."""

    operations: int = 1
    """How many simple operations it takes."""
    worth: float = inf
    """Bytes that are worth storing to save it; infinite: never compute it a second time."""
    of_operand: bool = False
    """Whether `worth` is that of an element of the operand, as in reductions."""
    transcendental: bool = False
    """Whether it is counted as a transcendental function instead of floating point operations."""


UNKNOWN = Cost()
FREE = Cost(0, 0.0)  # views, casts: a part of the instruction that reads
SELECTION = Cost(1, 0.0)  # of values that are there
SIMPLE = Cost(1, 0.25)  # an instruction
PRODUCTS = Cost(2, 0.25)  # a few instructions
INDIRECT = Cost(0, 1.0)  # a load from a computed place
QUOTIENT = Cost(4, 1.0)
REMAINDER = Cost(6, 1.0)
ROOT = Cost(4, 1.0, transcendental=True)
RECIPROCAL_ROOT = Cost(6, 1.0, transcendental=True)
ELEMENTARY = Cost(20, 4.0, transcendental=True)  # a polynomial and a reduction of its argument
SPECIAL = Cost(20, inf, transcendental=True)  # erf, lgamma: several branches of those
LIBRARY = Cost(200, inf)  # a call for each element
REDUCTION = Cost(1, 0.25, of_operand=True)
