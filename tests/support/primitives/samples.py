"""Samples: primitives with operands on which all of their rules are checked.

Each family has a file `samples_<family>.py` with a list `SAMPLES`; `all_samples` joins them.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fnx.core.primitive import Primitive


@dataclass(frozen=True, eq=False)
class Sample:
    """A primitive, operands, and what is to be checked of it.

    `kinds` are the kinds of dtypes ('b', 'i', 'u', 'f', 'c') that the primitive takes in place of
    the first inexact operand's (the first operand's, if none is inexact); operands of that dtype
    change together. Empty: the dtypes are as given. `smooth` says that derivatives exist, up to the
    order given, and `diff` in which operands (None: all inexact ones). `lane` makes another operand
    that is valid, for batching. `tolerance` multiplies what is usual.
    """

    prim: Primitive
    args: tuple
    kinds: str = ""
    diff: tuple[bool, ...] | None = None
    smooth: int = 2
    tolerance: float = 1.0
    batched: bool = True
    native: bool = True
    lane: Callable[[np.ndarray], np.ndarray] | None = None
    note: str = field(default="")

    @property
    def differentiated(self) -> list[bool]:
        """In which operands derivatives are checked: those of double precision."""
        double = [np.asarray(a).dtype in (np.float64, np.complex128) for a in self.args]
        single = any(np.asarray(a).dtype in (np.float32, np.complex64) for a in self.args)
        if single or not self.smooth:
            return [False] * len(double)
        return double if self.diff is None else list(self.diff)

    @property
    def id(self) -> str:
        shapes = ",".join("x".join(map(str, np.shape(a))) or "()" for a in self.args)
        return f"{self.prim.name}-{self.note or shapes}"


def data(*shape: int, low: float = -1.0, high: float = 1.0, seed: int = 0) -> np.ndarray:
    """Numbers between low and high, no two equal, none 0."""
    rng = np.random.default_rng(seed + 7 * len(shape))
    size = int(np.prod(shape))
    steps = (rng.permutation(size) + rng.uniform(0.25, 0.75, size)) / max(size, 1)
    return (low + (high - low) * steps).reshape(shape)


def cdata(*shape: int, seed: int = 0, **range_: Any) -> np.ndarray:
    """Complex numbers."""
    return data(*shape, seed=seed, **range_) + 1j * data(*shape, seed=seed + 1, **range_)


def integers(*shape: int, low: int = -9, high: int = 10, seed: int = 0) -> np.ndarray:
    """Integers of dtype int64."""
    return np.random.default_rng(seed).integers(low, high, shape)


def all_samples() -> list[Sample]:
    """The samples of all families."""
    files = sorted(Path(__file__).parent.glob("samples_*.py"))
    modules = [importlib.import_module(f.stem) for f in files]
    return [s for m in modules for s in m.SAMPLES]
