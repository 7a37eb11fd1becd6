"""Samples of integrals, Bessel and hypergeometric functions."""

import numpy as np
from samples import Sample, cdata, data

from fnx.ops.elementwise import integrals as i
from fnx.ops.elementwise import parameter_derivatives as d

POSITIVE = data(3, 4, low=0.4, high=2.5)
X = data(3, 4, low=-1.5, high=1.5)
UNIT = data(3, 4, low=0.1, high=0.9)
ORDER = np.full((3, 4), 2.0)
ONE, TWO = np.full((3, 4), 1.5), np.full((3, 4), 2.5)

SAMPLES = [
    *[Sample(p, (data(3, 4, seed=3), POSITIVE), "fc") for p in (i.xlogy, i.xlog1py)],
    Sample(i.ndtri, (UNIT,), "f", tolerance=10),
    Sample(i.erfcx, (X,), "f", tolerance=10),
    Sample(i.dawsn, (X,), "fc", tolerance=10),
    Sample(i.wofz, (cdata(3, 4),), "c", tolerance=10),
    Sample(i.owens_t, (X, POSITIVE), "f", tolerance=10),
    *[Sample(p, (POSITIVE,), "f", tolerance=10) for p in (i.expi, i.spence, i.cosine_integral)],
    *[
        Sample(p, (X,), "f", tolerance=10)
        for p in (i.sine_integral, i.fresnel_sine, i.fresnel_cosine)
    ],
    *[Sample(p, (ORDER, POSITIVE), "f", (False, True), tolerance=10) for p in (i.expn, i.bessel_j)],
    Sample(i.hyp1f1, (ONE, TWO, X), "f", tolerance=10, smooth=1),
    Sample(i.hyp2f1, (ONE, TWO, POSITIVE, 0.5 * UNIT), "f", tolerance=10, smooth=1),
    *[
        Sample(p, (ONE, TWO, X), "f", tolerance=1e3, smooth=0)
        for p in (d.hyp1f1_grad_a, d.hyp1f1_grad_b)
    ],
    *[
        Sample(p, (ONE, TWO, POSITIVE, 0.5 * UNIT), "f", tolerance=1e3, smooth=0)
        for p in (d.hyp2f1_grad_a, d.hyp2f1_grad_b, d.hyp2f1_grad_c)
    ],
    *[
        Sample(p, (POSITIVE, POSITIVE + 1, (UNIT + 1) / 2), "f", tolerance=1e3, smooth=0)
        for p in (d.beta_grad_a, d.beta_grad_b)
    ],
    Sample(d.zeta_grad_s, (POSITIVE + 1.5, POSITIVE + 1), "f", tolerance=1e3, smooth=0),
]
