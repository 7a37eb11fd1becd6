"""Samples of random bits and of the samplers that reject."""

import numpy as np
from samples import Sample

from fnx.ops.random.counters import RngBits, RngState
from fnx.ops.random.prng import RandomBits, RandomSplit, random_fold_in
from fnx.ops.random.sampling import GAMMA_OF_KEYS, RandomGamma, RandomPoisson, random_binomial

_KEY = np.array([1, 2], np.uint32)
_KEYS = np.arange(6, dtype=np.uint32).reshape(3, 2)

_STATE = np.array([1, 2, 0xFFFFFFFE, 4], np.uint32)

SAMPLES = [
    # Of a batch of states the first one draws for all: tests/libraries/test_random_keys.py
    Sample(RngBits("philox", 32, (5, 3)), (_STATE,), batched=False),
    Sample(RngBits("philox", 64, (3,)), (_STATE,), batched=False),
    Sample(RngBits("threefry", 16, (5, 3)), (_STATE,), batched=False),
    Sample(RngBits("threefry", 64, ()), (_STATE,), batched=False),
    Sample(RngState("philox", 64, (5,)), (_STATE,), batched=False),
    *(Sample(RandomBits(n, (3, 4)), (_KEY,)) for n in (8, 16, 32, 64)),
    Sample(RandomBits(32, ()), (_KEY,)),
    Sample(RandomBits(64, (20,)), (_KEYS,)),
    Sample(RandomBits(32, (0,)), (_KEY,)),
    Sample(RandomSplit((2,)), (_KEY,)),
    Sample(RandomSplit((2, 7)), (_KEYS,)),
    Sample(random_fold_in, (_KEY, np.uint32(5))),
    Sample(random_fold_in, (_KEYS, np.array([1, 2, 1], np.uint32))),
    # Finite differences of samples mean nothing where a draw is accepted or not: no derivatives here.
    Sample(RandomGamma(False), (_KEY, np.array([0.5, 2.0, 30.0])), diff=(False, False)),
    Sample(RandomGamma(True), (_KEY, np.array([[0.01, 2.0]])), diff=(False, False)),
    Sample(
        GAMMA_OF_KEYS[False],
        (np.array([0.5, 2.0, 30.0]), *np.arange(6, dtype=np.uint32).reshape(2, 3)),
        diff=(False,) * 3,
    ),
    Sample(
        RandomPoisson(np.dtype(np.int32)), (_KEY, np.array([0.0, 3.0, 50.0])), diff=(False, False)
    ),
    Sample(random_binomial, (_KEY, np.full(3, 20.0), np.array([0.1, 0.5, 0.9])), diff=(False,) * 3),
]
