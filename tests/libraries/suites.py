"""The libraries whose own test suites are run on fnx: where their tests are, and what does not count."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Suite:
    """A library: its repository, its tests in there, what these need, and what fails for a reason.

    A `tag` is a version of the repository other than the newest; `plugin` one of pytest's in this folder,
    which gives the tests on fnx what they ask for beside their library. `uncounted` names tests by a part
    of their name or error, with the reason why they cannot be asked of fnx, and `known` those that fail,
    with what is known about them.
    """

    name: str
    repository: str
    tests: tuple[str, ...] = ("tests",)
    needs: tuple[str, ...] = ()
    files: str = "test_*.py"
    tag: str = ""
    plugin: str = ""
    uncounted: dict[str, str] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)


_KIDGER = "https://github.com/patrick-kidger"
_DEEPMIND = "https://github.com/google-deepmind"
_XLA = {
    "hlo": "looks at XLA's text",
    "stablehlo": "looks at XLA's text",
    "mlir": "looks at XLA's text",
    "onnx": "translates XLA's text",
}
_LAST_BIT = "asks that numbers drawn inside and outside of jit are equal to their last bit"
_MADE_OF = "asks for the very primitives that JAX's functions are made of"
_PRINTED = "asks that structures of trees print as PyTreeDef"
_EPSILONS = "asks that numbers that two ways give, or that are zero, differ by less than 1e-15"
_SUITES = (
    Suite(
        "jax",
        "https://github.com/jax-ml/jax",
        needs=("absl-py", "hypothesis", "mpmath", "scipy", "opt-einsum"),
        files="*_test.py",
        tag="jax-v0.10.2",
        plugin="private_jax",
        uncounted=_XLA
        | {
            "private to jax": "uses what is private to JAX",
            "tests.pallas.": "writes kernels with Pallas",
            "tests.mosaic.": "writes kernels with Mosaic",
            "tests.multiprocess.": "starts processes of JAX's own",
            "stringrepresentation": _PRINTED,
            "testoptionalflatten": _PRINTED,
            "testflattendictkeyorder": _PRINTED,
            "test_buffer_protocol": "takes an array as a buffer, which classes in Python are from 3.12 on",
        },
    ),
    Suite(
        "equinox",
        f"{_KIDGER}/equinox",
        needs=("beartype", "optax", "psutil"),
        uncounted=_XLA
        | {
            "test_noinline.test_complicated": "makes a lowering to MLIR",
            "test_noinline.test_num_traces": "makes a lowering to MLIR",
        },
        known={"test_make_jaxpr.test_struct": _MADE_OF},
    ),
    Suite("diffrax", f"{_KIDGER}/diffrax", ("test",), ("optax", "scipy", "tqdm"), uncounted=_XLA),
    Suite(
        "optimistix",
        f"{_KIDGER}/optimistix",
        needs=("optax", "scipy", "pytest-benchmark"),
        uncounted=_XLA,
        known={
            "test_least_squares[rosenbrock-minimum1-init1-args1-solver13]": "Adam bounces in a "
            "valley, and last bits decide where it ends: with JAX too, 11 of 100 starts 1e-14 apart miss",
        },
    ),
    Suite("lineax", f"{_KIDGER}/lineax", uncounted=_XLA),
    Suite(
        "jaxtyping",
        f"{_KIDGER}/jaxtyping",
        ("test",),
        ("equinox", "beartype", "typeguard<3"),
        known={"test_messages.test_return": "asks that structures of trees print as PyTreeDef"},
    ),
    Suite(
        "optax",
        f"{_DEEPMIND}/optax",
        ("optax",),
        ("flax", "scikit-learn"),
        files="*_test.py",
        uncounted=_XLA,
    ),
    Suite("chex", f"{_DEEPMIND}/chex", ("chex",), ("dm-tree", "cloudpickle"), files="*_test.py"),
    Suite(
        "flax",
        "https://github.com/google/flax",
        needs=("optax",),
        files="*_test.py",
        uncounted=_XLA | {"test_module_reuse": "looks at XLA's count of operations"},
        known={
            "test_jit_with_setup_helpers": _LAST_BIT,
            "test_jit_rng_equivalance": _LAST_BIT,
            "test_fp8_": "makes a dtype of its own, or asks for its sums",
            "nnx.spmd_test": "looks where eager results lie, or at meshes in types, of several devices",
            "nnx.integration_test": "its file imports orbax, which asks for more of JAX than there is",
            "hijax": "hands values of a library's own types to jitted functions and loops",
            "mutable_hitypes": "hands values of a library's own types to jitted functions and loops",
            "_exclusion": "asks which frames of a library JAX's own filter leaves in a traceback",
        },
    ),
    Suite(
        "dm-haiku",
        f"{_DEEPMIND}/dm-haiku",
        ("haiku",),
        ("dm-tree",),
        files="*_test.py",
        uncounted=_XLA,
        known={
            "test_prng_sequence": _LAST_BIT,
            "doctesttest.test_doctest_haiku": "runs the example in the docstring of JAX's `lax.cond`, for "
            "which fnx has its own",
            "test_rank_promotion_exception": "asks for the words of JAX's error",
        },
    ),
    Suite(
        "distrax",
        f"{_DEEPMIND}/distrax",
        ("distrax",),
        ("tfp-nightly",),
        files="*_test.py",
        known={
            "test_von_mises_sample_uniform_ks_test": "draws with `jax_threefry_partitionable` off, "
            "which fnx does not have: other numbers, of which one set in twenty fails",
        },
    ),
    Suite(
        "jaxopt",
        "https://github.com/google/jaxopt",
        needs=("scikit-learn",),
        files="*_test.py",
        known={
            "eq_qp_test.equalityconstrainedqptest.test_projection_hyperplane": _EPSILONS,
            "test_handling_pytrees": _EPSILONS,
        },
    ),
    Suite(
        "blackjax",
        "https://github.com/blackjax-devs/blackjax",
        needs=("chex",),
        known={
            "test_posterior_matches_ncp_nuts": "compares two chains of random numbers that depend on "
            "the day; its authors say that it fails now and then",
        },
    ),
    Suite(
        "numpyro",
        "https://github.com/pyro-ppl/numpyro",
        ("test",),
        ("optax", "flax", "funsor", "graphviz", "pyro-api"),
        known={
            "test_binary_cross_entropy_with_logits_at_boundary": "asks that inf * False is 0, which "
            "XLA's compiler makes of it where shapes are equal, and NaN where one is broadcast",
        },
    ),
    Suite("tinygp", "https://github.com/dfm/tinygp"),
    Suite("jaxlie", "https://github.com/brentyi/jaxlie", needs=("hypothesis",)),
    Suite("jax-cfd", "https://github.com/google/jax-cfd", ("jax_cfd",), files="*_test.py"),
    Suite(
        "e3nn-jax",
        "https://github.com/e3nn/e3nn-jax",
        ("tests",),
        files="*_test.py",
        known={
            "sh_test.test_normalize": "numbers of float32 that cancel, to 1e-5 of what is left: last bits "
            "decide, with JAX too, where 3 of its 24 cases fail",
        },
    ),
    Suite(
        "quax",
        "https://github.com/nstarman/quax",
        needs=("beartype", "pytest-benchmark"),
        known={
            "test_typed_": "makes JAX's own Python numbers with a dtype, for which fnx has arrays",
            "rng_uniform": "`lax.rng_uniform`, numbers of a state, is not there",
            "qdwh": "`lax.linalg.qdwh` is not there",
            "test_numpy_functions": _MADE_OF,
            "test_linalg_functions": _MADE_OF,
            "test_lax_functions": _MADE_OF,
            "test_integer_pow_exponentiates_array": _MADE_OF,
            "test_structure_matrix.test_matmul": _MADE_OF,
        },
    ),
    Suite("interpax", "https://github.com/f0uriest/interpax"),
    Suite("evosax", "https://github.com/RobertTLange/evosax"),
    Suite("tree-math", "https://github.com/google/tree-math", ("tree_math",), files="*_test.py"),
    Suite("mctx", f"{_DEEPMIND}/mctx", ("mctx",), files="*_test.py"),
    Suite("rlax", f"{_DEEPMIND}/rlax", ("rlax",), ("dm-env",), files="*_test.py"),
    Suite("jraph", f"{_DEEPMIND}/jraph", ("jraph",), files="*_test.py"),
    Suite("kfac-jax", f"{_DEEPMIND}/kfac-jax", needs=("immutabledict", "optax")),
    Suite("gymnax", "https://github.com/RobertTLange/gymnax", needs=("gymnasium", "seaborn")),
    Suite("dynamax", "https://github.com/probml/dynamax", ("dynamax",), files="*_test.py"),
    Suite("flowjax", "https://github.com/danielward27/flowjax"),
    Suite("ott-jax", "https://github.com/ott-jax/ott", files="*_test.py"),
    Suite("gpjax", "https://github.com/JaxGaussianProcesses/GPJax"),
    Suite("quadax", "https://github.com/f0uriest/quadax"),
    Suite("orthax", "https://github.com/f0uriest/orthax"),
    Suite("sympy2jax", "https://github.com/google/sympy2jax"),
    Suite("jax-cosmo", "https://github.com/DifferentiableUniverseInitiative/jax_cosmo"),
    Suite("s2fft", "https://github.com/astro-informatics/s2fft"),
    Suite("pytreeclass", "https://github.com/ASEM000/pytreeclass"),
    Suite("coordax", "https://github.com/neuralgcm/coordax", ("coordax",), files="*_test.py"),
    Suite("dinosaur", "https://github.com/neuralgcm/dinosaur", ("dinosaur",), files="*_test.py"),
    Suite("penzai", f"{_DEEPMIND}/penzai", files="*_test.py"),
    Suite("jax-md", "https://github.com/jax-md/jax-md", files="*_test.py"),
)
SUITES = {suite.name: suite for suite in _SUITES}
