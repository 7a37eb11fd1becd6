"""Random nestings of transformations: compiled as evaluated, and with FNX_FUZZ as JAX has them.

FNX_FUZZ=2000 compares that many with JAX, where it is installed: values, dtypes and weak types.
"""

import importlib
import os
from types import SimpleNamespace

import numpy as np
import pytest
from programs_corners import Corners
from programs_nested import Nested
from programs_wider import Wider

import fnx
import fnx.numpy as jnp
from fnx import lax

FUZZ = int(os.environ.get("FNX_FUZZ", "0"))
START = int(os.environ.get("FNX_FUZZ_FROM", "0"))
FNX = SimpleNamespace(api=fnx, jnp=jnp, lax=lax)
SAMPLE = {Nested: 40, Wider: 40, Corners: 12}
# Of larger numbers sines and differences are noise, which no two libraries share.
LARGEST = 1e5


def leaves(tree) -> list[tuple]:
    found = [jnp.asarray(x) if isinstance(x, float) else x for x in fnx.tree_util.tree_leaves(tree)]
    return [(np.asarray(x), fnx.typeof(x).weak_type) for x in found]


def agree(found: list[tuple], expected: list[tuple], names: list[str]) -> None:
    for (a, weak), (b, wanted) in zip(found, expected, strict=True):
        assert (a.shape, a.dtype, weak) == (b.shape, b.dtype, wanted), names
    if any([np.abs(b[np.isfinite(b)]).max(initial=0) > LARGEST for b, _ in expected if b.size]):
        return
    for (a, _), (b, _) in zip(found, expected, strict=True):
        # Values that went through float32 have its digits, whatever dtype they are in.
        narrow = "narrow" in names or a.dtype in (np.float32, np.complex64)
        tolerance = 2e-4 if narrow else 1e-8
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance, err_msg=str(names))


@pytest.mark.parametrize(
    ("kind", "seed"), [(kind, START + k) for kind, count in SAMPLE.items() for k in range(count)]
)
def test_compiled_nestings_are_what_evaluated_ones_are(kind, seed):
    made = kind(seed)
    run = made.program()
    with fnx.disable_jit():
        expected = leaves(run(FNX))
    try:
        found = leaves(fnx.jit(lambda: run(FNX))())
    except fnx.errors.UnexpectedTracerError:
        pytest.skip(
            "a custom_jvp rule that closes over a value of a loop's body, which JAX refuses too"
        )
    agree([(x, False) for x, _ in found], [(x, False) for x, _ in expected], made.names)


@pytest.mark.skipif(not FUZZ, reason="compares with JAX where FNX_FUZZ asks for it")
@pytest.mark.parametrize("kind", SAMPLE)
@pytest.mark.parametrize("seed", range(START, START + FUZZ))
def test_nestings_are_what_jax_has(kind, seed):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    oracle = importlib.import_module("jax_oracle")
    numpy, jlax = (importlib.import_module(f"jax.{name}") for name in ("numpy", "lax"))
    made = kind(seed)
    run = made.program()
    try:
        expected = oracle.results(lambda: run(SimpleNamespace(api=jax, jnp=numpy, lax=jlax)))
    except (jax.errors.UnexpectedTracerError, jax.errors.TracerArrayConversionError):
        pytest.skip("a rule that closes over a value of a body, which JAX loses and fnx may know")
    except NotImplementedError as error:
        pytest.skip(f"JAX has no rule: {error}")
    except (TypeError, ValueError) as error:
        with pytest.raises(type(error)):
            run(FNX)
        return
    except AttributeError as error:
        if "TypedFloat" not in str(error):  # JAX's own mistake about numbers in jitted functions
            raise
        return
    agree(leaves(run(FNX)), expected, made.names)
