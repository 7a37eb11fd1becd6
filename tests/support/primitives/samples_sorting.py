"""Samples of sort and top_k."""

import numpy as np
from samples import Sample

from fnx.ops.reduction.sorting import Sort, TopK

_rng = np.random.default_rng(9)


def _f(*shape):
    # Distinct elements, so that differences do not change their order.
    return _rng.permutation(np.linspace(-3, 3, int(np.prod(shape)))).reshape(shape)


SAMPLES = [
    Sample(Sort(0), (_f(6),)),
    Sample(Sort(1), (_f(3, 5),), kinds="biufc"),
    Sample(Sort(0, is_stable=False), (_f(5, 2),)),
    Sample(Sort(0, num_keys=1), (_f(5), np.arange(5))),
    Sample(Sort(1, num_keys=2), (np.array([[1, 0, 1, 0]] * 2), _f(2, 4), _f(2, 4))),
    Sample(Sort(0), (np.zeros((0, 3)),)),
    Sample(TopK(2, 1), (_f(3, 5),), kinds="biuf"),
    Sample(TopK(3, 0), (_f(5, 2),)),
    Sample(TopK(0, 0), (_f(5),)),
    Sample(TopK(3, 0), (np.array([3, 1, 3, 7, 3], np.uint8),)),
]
