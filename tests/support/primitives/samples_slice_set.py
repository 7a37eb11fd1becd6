"""Samples of slice_set."""

from samples import Sample, data, integers

from fnx.ops.structure.slice_set import SliceSet

SAMPLES = [
    Sample(SliceSet((1, 0), (4, 3), (2, 1)), (data(5, 3), data(2, 3, seed=1)), "biufc"),
    Sample(SliceSet((1, 1), (3, 3)), (data(4, 3), data(2, 2, seed=1)), "biufc"),
    Sample(SliceSet((0,), (7,), (3,)), (integers(7), integers(3, seed=1))),
]
