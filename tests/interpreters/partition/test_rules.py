"""Rules of sharding: every primitive on parts of its operands gives what it gives on the whole."""

from collections import Counter

import numpy as np
import pytest
from samples import Sample, all_samples, data

from fnx.core import dtypes
from fnx.core.array import as_array
from fnx.core.jaxpr import Eqn, Jaxpr, Var
from fnx.interpreters.partition.partitioner import Grid, rule_of
from fnx.interpreters.primitives.members import Members
from fnx.interpreters.trace import trace_closed
from fnx.ops.linalg.factorizations import LUPivotsToPermutation
from fnx.ops.linalg.triangular import TriangularSolve
from fnx.ops.linalg.tridiagonal import TridiagonalSolve
from fnx.ops.reduction import pooling
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicSliceAdd, DynamicUpdateSlice
from fnx.ops.structure.slice import SliceAdd
from fnx.ops.structure.slice_set import SliceSet

_PLAIN = ((0, 0), (1, 2))  # padding
_WINDOWS = (1, 2), (1, 2), _PLAIN, (1, 1), (1, 1)
MORE = [  # samples with axes that are cut
    Sample(pooling.ReduceWindowSum(*_WINDOWS), (data(5, 6),)),
    Sample(pooling.ReduceWindowMax(*_WINDOWS), (data(5, 6),)),
    Sample(
        TriangularSolve(True, True, False, False, False),
        (data(4, 3, 3) + 3 * np.eye(3), data(4, 3, 2)),
    ),
    Sample(DynamicSlice((2, 6)), (data(5, 6), np.asarray(2), np.asarray(0))),
    Sample(DynamicSliceAdd(), (data(5, 6), data(2, 6), np.asarray(2), np.asarray(0))),
    Sample(DynamicUpdateSlice(), (data(5, 6), data(2, 6), np.asarray(2), np.asarray(0))),
    Sample(LUPivotsToPermutation(3), (np.zeros((4, 3), np.int32),)),
    Sample(TridiagonalSolve(), (data(4, 3), data(4, 3) + 4, data(4, 3, seed=1), data(4, 3, 2))),
    Sample(SliceSet((1, 0), (6, 6)), (data(7, 6), data(5, 6))),
    Sample(SliceAdd((2, 1), (6, 6)), (data(9, 6), data(4, 5))),
]
SAMPLES = [s for s in [*MORE, *all_samples()] if s.args and not s.prim.effects]


def cuts_of(sample: Sample) -> list[tuple[int, int]]:
    """The operands and axes that a rule may leave cut, or that `along` takes."""
    avals = [as_array(np.asarray(a)).aval for a in sample.args]
    rule = sample.prim.sharding(*avals) if hasattr(sample.prim, "sharding") else None
    if rule is None:
        return []
    moving = hasattr(sample.prim, "along")
    return [
        (k, axis)
        for k, (a, factors) in enumerate(zip(avals, rule.operands, strict=True))
        for axis, f in enumerate(factors)
        if a.shape[axis] > 1 and (f is not None or moving)
    ]


CASES = [(s, k, axis) for s in SAMPLES for k, axis in cuts_of(s)]


def in_parts(prim, args, k, axis, parts):
    """The primitive by members of an axis "i", of whom each has a part of operand k."""
    avals = [a.aval for a in args]
    inputs = [Var(a) for a in avals]
    outs = [Var(a) for a in prim.abstract(*avals)]
    jaxpr = Jaxpr(inputs, [Eqn(prim, inputs, outs)], outs)
    grid = Grid({"i": parts})

    def member(*xs):
        given = [grid.part(x, x.shape, ((),) * x.ndim) for x in xs]
        cut = tuple([("i",) if d == axis else () for d in range(xs[k].ndim)])
        given[k] = grid.lay(given[k], cut)
        found = grid.evaluate(jaxpr, given)
        return [grid.gathered(p).x for p in found]

    local = trace_closed(member, avals)
    whole = lambda some: tuple([((),) * a.ndim for a in some])
    return Members(local, (("i", parts),), whole(avals), whole(local.out_avals)).apply(*args)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sample", "k", "axis"), CASES, ids=[f"{s.id}-{k}-{axis}" for s, k, axis in CASES]
)
def test_parts_give_what_the_whole_gives(sample, k, axis):
    args = [as_array(np.asarray(a)) for a in sample.args]
    expected = sample.prim.apply(*args)
    for parts in (2, 3):
        found = in_parts(sample.prim, args, k, axis, parts)
        for a, b in zip(found, expected, strict=True):
            close(a, b, sample.tolerance)


def close(a, b, tolerance):
    assert a.aval == b.aval
    if dtypes.is_inexact(a.dtype):
        wide = np.complex128 if dtypes.is_complex(a.dtype) else np.float64
        x, y = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
        eps = {2: 2e-2, 4: 1e-5, 8: 1e-5 if a.dtype.kind == "c" else 1e-11}
        tol = eps.get(a.dtype.itemsize, 1e-11) * tolerance
        np.testing.assert_allclose(
            x, y, rtol=tol, atol=tol * max(1.0, np.abs(y[np.isfinite(y)]).max(initial=0))
        )
    else:
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


# Their results depend on all numbers drawn before, or they run what a user wrote: operands are gathered.
WITHOUT = "pure_callback random_binomial random_gamma random_poisson rng_bit_generator rng_state"


def test_primitives_have_a_rule():
    missing = {s.prim.name for s in SAMPLES if not hasattr(s.prim, "sharding")}
    assert missing == set(WITHOUT.split())


def test_rules_name_an_axis_of_each_operand():
    for s in SAMPLES:
        args = [as_array(np.asarray(a)) for a in s.args]
        rule = rule_of(s.prim, args)
        if rule is not None:
            assert [len(f) for f in rule.operands] == [a.ndim for a in args], s.id
            outs = s.prim.abstract(*[a.aval for a in args])
            assert [len(f) for f in rule.results] == [a.ndim for a in outs], s.id


# Who gathers operands that samples have along an axis in two even parts, if no exchange makes it whole.
GATHERED = {
    "matrices": "eig geqrf lu pinv qr svd",
    "words of a key, or all that was drawn before": "random_binomial random_bits random_fold_in "
    "random_gamma random_poisson random_split rng_bit_generator rng_state",
    "a filter, or groups of the batch": "conv_general_dilated",
    "windows with padding, of which an element is chosen": "select_and_gather_add "
    "select_and_scatter_add window_pick",
    "an update beside an operand that is whole": "dynamic_slice_add dynamic_update_slice slice_add "
    "slice_set",
    "what has no other even axis": "fft reduce reshape sort",
    "the shorter of two": "concatenate",
}


def test_what_is_gathered():
    found, seen = set(), Counter()
    for sample in SAMPLES:
        seen[sample.prim.name] += 1
        if seen[sample.prim.name] > 6:
            continue
        avals = [as_array(np.asarray(a)).aval for a in sample.args]
        inputs = [Var(a) for a in avals]
        outs = [Var(a) for a in sample.prim.abstract(*avals)]
        jaxpr = Jaxpr(inputs, [Eqn(sample.prim, inputs, outs)], outs)
        for place in [(k, d) for k, a in enumerate(avals) for d in range(a.ndim)]:
            cuts = [
                tuple([("i",) if (k, d) == place else () for d in range(a.ndim)])
                for k, a in enumerate(avals)
            ]
            if avals[place[0]].shape[place[1]] % 2 == 0 and avals[place[0]].size:
                grid = Grid({"i": 2})
                grid.body(jaxpr, cuts)
                if any("all_gather" in note for note in grid.notes):
                    found.add(sample.prim.name)
    assert found == {name for names in GATHERED.values() for name in names.split()}
