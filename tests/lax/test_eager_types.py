"""Dtypes that a function refuses when it is traced it refuses at once, too, where NumPy would take them."""

import numpy as np
import pytest

import fnx
import fnx.nn
import fnx.numpy as jnp
import fnx.scipy.special
from fnx import lax

ROOMS = {"lax": lax, "linalg": lax.linalg, "numpy": jnp, "special": fnx.scipy.special, "nn": fnx.nn}
DTYPES = ("bool", "int8", "uint8", "int64", "float16", "float64", "complex128")
FURTHER = {"argmax": (0, "int32"), "argmin": (0, "int32"), "top_k": (1,), "integer_pow": (2,)}
FURTHER |= {f"reduce_{op}": ((0,),) for op in ("sum", "prod", "max", "min", "and", "or", "xor")}
FURTHER |= {"reduce_precision": (5, 5), "triangular_solve": (np.eye(2),)}


def functions(room):
    for name in sorted(dir(room)):
        f = getattr(room, name)
        plain = callable(f) and not isinstance(f, type) and name.islower() and name[0] != "_"
        if plain and not name.endswith("_p") and not name.startswith("save"):
            further = FURTHER.get(name, ()) if room in (lax, lax.linalg) else ()
            yield name, lambda x, f=f, further=further: f(x, *further)


@pytest.mark.parametrize("name", ROOMS)
def test_what_is_refused_when_traced_is_refused_at_once(name):
    numbers, refused, let_in = np.array([[2, 1], [1, 3]]), 0, []
    for dtype in DTYPES:
        x = jnp.asarray(numbers).astype(dtype)
        for name_of, f in functions(ROOMS[name]):
            try:
                fnx.eval_shape(f, x)
            except fnx.errors.TypeMismatch as error:
                if isinstance(error, fnx.errors.ConcretizationTypeError):
                    continue
            except Exception:
                continue
            else:
                continue
            refused += 1
            try:
                given = fnx.tree_util.tree_leaves(f(x))
            except Exception:
                continue
            if any(isinstance(y, fnx.Array) for y in given):
                let_in.append(f"{name_of} of {dtype}")
    assert refused >= 5 or name == "nn"
    assert not let_in
