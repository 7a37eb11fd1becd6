"""Calls of every public function with ordinary numbers and those at the edges of what it is defined for."""

import inspect
import itertools
import random
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx import lax, nn
from fnx.scipy import linalg, special, stats

_DISTRIBUTIONS = {
    f"stats.{name}": module
    for name, module in vars(stats).items()
    if inspect.ismodule(module) and name not in ("common", "summary", "kde")
}
ROOMS: dict[str, list] = {
    "numpy": [jnp, jnp.linalg, jnp.fft],
    "special": [special],
    "stats": [stats, *_DISTRIBUTIONS.values()],
    "linalg": [linalg],
    "nn": [nn],
    "lax": [lax],
    "random": [fnx.random],
}
# They read and write files, or tell how arrays print.
_OTHER = {"save", "savez", "load", "fromfile", "frombuffer", "set_printoptions", "printoptions"}

_NUMBERS = [-1.0, 0.0, 0.5, 1.0, 2.0, 30.0, 800.0, -2.5]
_ARRAYS = [
    [3.0, 0.0, -1.0, 2.0], [0.0] * 4, [1.0] * 4, [0.0] * 3, [1.0],
    [[2.0, 1.0], [1.0, 3.0]], [[0.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [2.0, 4.0]],
    [[1.0, 0.0], [0.0, 1.0]], [[800.0, 800.0], [800.0, 800.0]],
    [-np.inf, 0.0, 2.0, 0.5], [1e300, 1e-300, 1.0, -1.0],
]  # fmt: skip
_SIZES = [0, 1, 2]
_MOST = 5  # arguments


def functions(room: str) -> Iterator[tuple[str, FunctionType]]:
    """The public functions of a room, with the names of their modules."""
    for module in ROOMS[room]:
        for name, f in sorted(vars(module).items()):
            own = (
                room != "stats" or getattr(f, "__module__", "") == module.__name__
            )  # they import helpers
            if type(f) is FunctionType and name[0] != "_" and name not in _OTHER and own:
                yield f"{module.__name__}.{name}", f


def calls(name: str, f: FunctionType, few: int) -> Iterator[tuple]:
    """Arguments for a function, some of which it refuses; a key first where it takes one."""
    chance = random.Random(name)
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except ValueError:
        return
    placed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keyed = bool(placed) and placed[0].name == "key"
    placed = placed[keyed:]
    least = sum(p.default is p.empty for p in placed)
    numbers, arrays = [jnp.asarray(x) for x in _NUMBERS], [jnp.array(x) for x in _ARRAYS]
    for n in range(max(least, not keyed), min(len(placed), _MOST) + 1):
        found: list[Any] = []
        for pool in (numbers, arrays, _SIZES, [*numbers, *arrays, *_SIZES]):
            choices = list(itertools.islice(itertools.product(pool, repeat=n), 5000))
            found += chance.sample(choices, min(few, len(choices)))
        for args in found:
            yield (fnx.random.key(0), *args) if keyed else args


def has(test: Any, tree: Any) -> bool:
    """Whether a number in a tree passes a test of NumPy's."""
    for x in fnx.tree.leaves(tree):
        if isinstance(x, (fnx.Array, np.ndarray, np.generic, float)):
            kind = getattr(getattr(x, "dtype", None), "kind", "f")  # those of keys have none
            if kind in ("f", "c") and test(np.asarray(x)).any():
                return True
    return False
