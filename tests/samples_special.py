"""Samples of the rarer special functions, and of slice_set."""

import numpy as np
from samples import Sample, data, integers

from fnx.ops import special_functions as f
from fnx.ops.slice_set import SliceSet

X = data(3, 4)
P = data(3, 4, low=0.2, high=2.5)

SAMPLES = [
    Sample(f.ndtri, (data(3, 4, low=0.05, high=0.95),), "f"),
    *[Sample(p, (X,), "f") for p in (f.log_ndtr, f.dawsn, f.erfcx, f.fresnel_s, f.fresnel_c)],
    *[Sample(p, (P,), "f") for p in (f.expi, f.exp1, f.sine_integral, f.cosine_integral, f.spence)],
    Sample(f.expn, (np.array(3.0), P), diff=(False, True)),
    Sample(f.hyp1f1, (P, P + 1, X), diff=(False, False, True)),
    Sample(f.hyp2f1, (P, P + 1, P + 2, X / 2), diff=(False, False, False, True)),
    Sample(SliceSet((1, 0), (4, 3), (2, 1)), (data(5, 3), data(2, 3, seed=1)), "biufc"),
    Sample(SliceSet((1, 1), (3, 3)), (data(4, 3), data(2, 2, seed=1)), "biufc"),
    Sample(SliceSet((0,), (7,), (3,)), (integers(7), integers(3, seed=1))),
]
