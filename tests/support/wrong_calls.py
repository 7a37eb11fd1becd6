"""Tables of wrong calls, `tests/data/wrong_calls`: an expression, the errors that it must be, words of it.

A line reads `expression  ->  TypeError ValueError: words`; spaces within words are left out. Arguments are
`x` f64[3,4], `v` f64[3], `i` i64[3], `c` c128[3,4] and `s` f64[]; `key` is a random key.
"""

import builtins
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import fnx
import fnx.experimental.ode
import fnx.flatten_util
import fnx.image
import fnx.numpy as jnp
import fnx.scipy
from fnx import lax

TABLES = sorted((Path(__file__).parent.parent / "data" / "wrong_calls").glob("*.txt"))
INNER = re.compile(r"\b(?:\w+Tracer|ConcreteArray|_Pull|_Push)\b|object at 0x")  # no words of users


class WrongCall(NamedTuple):
    expression: str
    kinds: list[type]
    words: list[str]


def calls(table: Path) -> Iterator[WrongCall]:
    """The lines of a table."""
    for line in table.read_text().splitlines():
        expression, expected = line.rsplit("  ->  ", 1)
        kinds, words = expected.split(": ", 1)
        yield WrongCall(expression, [getattr(builtins, k) for k in kinds.split()], words.split())


def vjp_of(fwd: Callable, bwd: Callable) -> Callable:
    """The identity with a rule of its own for reverse mode."""
    f = fnx.custom_vjp(lambda q: q)
    f.defvjp(fwd, bwd)
    return f


def jvp_of(rule: Callable) -> Callable:
    """The identity with a rule of its own for forward mode."""
    f = fnx.custom_jvp(lambda q: q)
    f.defjvp(rule)
    return f


def _arguments() -> dict[str, fnx.Array]:
    x = jnp.ones((3, 4))
    return {"x": x, "v": x[:, 0], "i": jnp.arange(3), "c": x + 1j, "s": jnp.asarray(2.0)}


def _grad(f: Callable, given: dict) -> None:
    def loss(x: fnx.Array, v: fnx.Array) -> fnx.Array:
        f(**{**given, "x": x, "v": v})
        return 0.0 * x[0, 0]

    fnx.grad(loss)(given["x"], given["v"])


MODES: dict[str, Callable] = {
    "eager": lambda f, given: f(**given),
    "jit": lambda f, given: fnx.jit(lambda a: f(**a))(given),
    "grad": _grad,
    "vmap": lambda f, given: fnx.vmap(lambda a: f(**a))(
        {k: jnp.stack([a, a]) for k, a in given.items()}
    ),
}


def complaint(call: WrongCall, mode: str) -> str:
    """What is wrong with the error of a call; nothing if it is as it must be."""
    names = {"fnx": fnx, "jnp": jnp, "np": np, "lax": lax, "vjp_of": vjp_of, "jvp_of": jvp_of}
    names["key"] = fnx.random.key(0)
    f = eval(f"lambda x, v, i, c, s: ({call.expression})", names)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            MODES[mode](f, _arguments())
    except Exception as error:
        text = str(error)
        told = isinstance(error, fnx.errors.FnxError) and all(
            isinstance(error, k) for k in call.kinds
        )
        missing = [w for w in call.words if w not in "".join(text.split())]
        if told and not missing and not INNER.search(text):
            return ""
        return f"{call.expression}: {type(error).__name__} {text}; lacks {missing}"
    return f"{call.expression}: accepted"
