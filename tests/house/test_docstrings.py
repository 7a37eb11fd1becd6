"""Docstrings: every public name has an example, and the examples run."""

import doctest
import importlib
from functools import cache

import numpy as np
import pytest
from module_graph import modules
from pages_of_docs import load

import fnx
import fnx.numpy as jnp
from fnx import lax

OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
NAMES = {"np": np, "fnx": fnx, "jnp": jnp, "lax": lax}
# Not those of fnx.jax, which changes what `import jax` means for the rest of the process: their tests are
# in tests/libraries/test_jax_line.py.
ELSEWHERE = ("fnx.demo", "fnx.interpreters", "fnx.jax", "fnx.lowering")
MODULES = sorted(m for m in modules() if not m.startswith(ELSEWHERE) and m != "fnx")


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_modules(name):
    """Those that users do not see as well, with the names of their module."""
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for example in doctest.DocTestFinder().find(importlib.import_module(name), extraglobs=NAMES):
        if example.docstring not in docstrings_of_faces():
            runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


# What users name: packages, and the modules that JAX has, too.
FACES = (
    "fnx ad_checkpoint api_util custom_derivatives debug dtypes extend.backend extend.core "
    "extend.linear_util extend.source_info_util image lax lax.linalg nn nn.initializers numpy numpy.fft "
    "numpy.linalg profiler random scipy.cluster.vq scipy.fft scipy.integrate scipy.interpolate "
    "scipy.linalg scipy.ndimage scipy.optimize scipy.signal scipy.sparse.linalg scipy.special sharding "
    "test_util tree tree_util typing"
).split()
FACES += [
    m.removeprefix("fnx.")
    for m in MODULES
    if m.startswith(("fnx.scipy.stats.", "fnx.experimental."))
]
REFERENCE = load("reference")
FACES = [f for f in FACES if not f.startswith(REFERENCE.PARTS)]
public = REFERENCE.public


@cache
def docstrings_of_faces():
    """What `test_examples_run_as_users_copy_them` runs, with fewer names."""
    return {value.__doc__ for face in FACES for value in public(face).values()}


@pytest.mark.parametrize("face", FACES)
def test_every_public_name_has_an_example(face):
    lacking = [n for n, v in public(face).items() if ">>>" not in (v.__doc__ or "")]
    assert lacking == []


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_examples_run_as_users_copy_them(face):
    # With no more than the names of NAMES: a module's own names, which doctest adds, are not there.
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for name, value in public(face).items():
        runner.run(doctest.DocTestParser().get_doctest(value.__doc__, dict(NAMES), name, None, 0))
    assert runner.summarize(verbose=False).failed == 0


# Examples that themselves mix dtypes, which then raises, as in JAX.
MIXED = "add array_equal csd eig fft promote_types rfft welch".split()


@pytest.mark.parametrize("face", [f for f in FACES if not f.startswith("scipy.stats.")])
def test_functions_mix_no_dtypes_of_their_own(face):
    """Where promotion is forbidden, it is to users' operands alone."""
    runner = doctest.DocTestRunner(optionflags=OPTIONS, verbose=False)
    for name, value in public(face).items():
        if name not in MIXED:
            with fnx.numpy_dtype_promotion("strict"):
                example = doctest.DocTestParser().get_doctest(
                    value.__doc__, dict(NAMES), name, None, 0
                )
                runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def passes():
    """The modules of all passes: those in lists, and those that others call."""
    from fnx.interpreters.passes import simplify
    from fnx.lowering.cpu.target import CpuTarget

    listed = [*simplify.OPTIMIZATIONS, *CpuTarget.passes]
    own = {f.__module__ for f in listed} - {simplify.__name__}
    rooms = {
        "fnx.interpreters.passes": "dce value_numbering transpose_sinking "
        "one_hot_updates predicated_updates sink_updates loop_vectorize pivot_row row_dependence",
        "fnx.lowering.planning": "equation_order horizontal_fusion input_output_aliases",
        "fnx.lowering.transform": "array_contraction buffer_assignment index_set_splitting "
        "reduction_factoring trim_loops",
        "fnx.lowering.generate": "accumulators boundary_reductions boundary_regions buffer_reuse "
        "consumer_fusion slice_update_fusion small_problems",
        "fnx.lowering.cpu.schedule": "blocked_reductions lane_refill loop_distribution "
        "register_tiling tiling",
    }
    return sorted(
        own | {f"{room}.{name}" for room, names in rooms.items() for name in names.split()}
    )


@pytest.mark.parametrize("name", passes())
def test_a_pass_says_when_it_is_legal_and_when_it_pays(name):
    text = importlib.import_module(name).__doc__
    for label in ("Input:", "Output:", "Legal when:", "Pays when:", "Costs:"):
        assert f"\n{label} " in text, (name, label)
