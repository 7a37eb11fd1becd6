"""Docstrings: the examples in them run, and the most used public names have one."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MODULES = sorted(
    m.name
    for m in pkgutil.walk_packages(fnx.__path__, "fnx.")
    if not m.name.startswith("fnx.demo") and not m.name.endswith("numba_runtime")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    module = importlib.import_module(name)
    names = {"np": np, "fnx": fnx, "jnp": jnp, "lax": lax}
    result = doctest.testmod(module, extraglobs=names, optionflags=OPTIONS)
    assert result.failed == 0


MOST_USED = {
    fnx: "grad jacfwd jacrev jit jvp value_and_grad vjp vmap",
    jnp: "abs all allclose any arange argmax argmin argsort array asarray broadcast_to concatenate cos "
    "cumsum diag dot einsum exp expand_dims eye full hstack isfinite isnan linspace log logical_and "
    "matmul max maximum mean meshgrid min minimum moveaxis ones ones_like repeat reshape roll shape "
    "sign sin split sqrt square squeeze stack sum take tanh tile transpose vstack where zeros zeros_like",
    lax: "cond fori_loop scan stop_gradient while_loop",
    fnx.random: "bernoulli key normal permutation split uniform",
    fnx.tree: "leaves map reduce structure unflatten",
}


@pytest.mark.parametrize("module", MOST_USED, ids=lambda m: m.__name__)
def test_the_most_used_names_have_an_example(module):
    docs = {n: getattr(module, n).__doc__ for n in MOST_USED[module].split()}
    assert [n for n, doc in docs.items() if ">>>" not in doc] == []
