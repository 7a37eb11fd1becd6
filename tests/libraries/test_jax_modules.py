"""Public modules of JAX under `import fnx.jax`: what they mean, and what they say of what is not there."""

import subprocess
import sys

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.experimental import sparse


def run(program, cwd):
    """What a fresh process prints with `jax` served."""
    done = subprocess.run(
        [sys.executable, "-c", "import fnx.jax\n" + program],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_functions_for_xla_are_registered_and_refused_when_called(tmp_path):
    program = """
import ctypes, jax
capsule = jax.ffi.pycapsule(ctypes.CFUNCTYPE(ctypes.c_int)(lambda: 0))
assert type(capsule).__name__ == "PyCapsule"
jax.ffi.register_ffi_target("square", capsule, platform="cpu", api_version=1)
jax.ffi.register_ffi_target_as_batch_partitionable("square")
def refused(f, *args, error=NotImplementedError):
    try:
        f(*args)
    except error as said:
        return str(said)
    raise AssertionError(f)
print(refused(jax.ffi.ffi_call, "square", jax.ShapeDtypeStruct((), float)))
assert "is registered" not in refused(jax.ffi.ffi_lowering, "cube")
assert "jaxlib" in refused(jax.ffi.include_dir, error=ImportError)
refused(jax.ffi.register_ffi_target_as_batch_partitionable, "cube", error=ValueError)
"""
    said = run(program, tmp_path)
    for word in ("'square'", "is registered", "pure_callback"):
        assert word in said


def test_modules_of_sharding_and_of_caches(tmp_path):
    program = """
import jax, jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache
from jax.experimental.custom_partitioning import custom_partitioning
from jax.experimental.shard_alike import shard_alike

compilation_cache.set_cache_dir("/nowhere")
assert jax.config.jax_compilation_cache_dir == "/nowhere"
compilation_cache.reset_cache()
assert jax.config.jax_compilation_cache_dir is None

@custom_partitioning
def cubed(x, n=3):
    return x ** n
try:
    cubed(2.0)
except ValueError as error:
    assert "def_partition" in str(error)
cubed.def_partition(lambda mesh, arg_shapes, result_shape: None, sharding_rule="i -> i")
assert jax.jit(jax.grad(lambda x: jnp.sum(cubed(x))))(jnp.array([2.0]))[0] == 12.0

x, y = jax.jit(shard_alike)({"a": jnp.ones(2)}, {"a": jnp.zeros(2)})
assert x["a"].sum() == 2 and y["a"].sum() == 0
for wrong in ((jnp.ones(2), jnp.ones(3)), ([jnp.ones(2)], jnp.ones(2))):
    try:
        shard_alike(*wrong)
    except ValueError:
        continue
    raise AssertionError(wrong)
"""
    run(program, tmp_path)


def test_modules_that_have_nothing_say_so(tmp_path):
    program = """
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel, splash_attention_mask
from jax.interpreters import pxla
try:
    splash_attention_kernel.make_splash_mha
except AttributeError as error:
    print(error)
try:
    from jax.experimental.pallas.ops import gpu
except ImportError as error:
    print(error)
"""
    first, second = run(program, tmp_path).splitlines()
    assert "fnx has no jax.experimental.pallas.ops.tpu.splash_attention" in first
    assert "gpu" in second


def test_names_of_sparse_stand_in_their_modules(tmp_path):
    program = """
from jax.experimental import sparse
from jax.experimental.sparse.ad import grad
from jax.experimental.sparse.bcoo import BCOO, bcoo_dot_general, bcoo_transpose
from jax.experimental.sparse.coo import COO, coo_matvec
from jax.experimental.sparse.csr import CSC, CSR
from jax.experimental.sparse.random import random_bcoo
from jax.experimental.sparse.transform import sparsify
from jax.experimental.sparse.util import SparseEfficiencyWarning
assert bcoo_dot_general is sparse.bcoo_dot_general and sparsify is sparse.sparsify
assert random_bcoo is sparse.random_bcoo and COO is sparse.COO
"""
    run(program, tmp_path)


def test_primitives_of_equations_have_their_names():
    from fnx.extend.core import primitives

    def primitive(f, *args):
        (eqn,) = [e for e in fnx.make_jaxpr(f)(*args).eqns if e.primitive.name != "symmetrize"][:1]
        return eqn.primitive

    key = fnx.random.PRNGKey(0)
    assert primitive(fnx.random.bits, key) is primitives.random_bits_p
    assert primitive(fnx.random.split, key) is primitives.random_split_p
    assert primitive(fnx.lax.linalg.lu, jnp.eye(2)) is primitives.lu_p
    assert primitive(fnx.checkpoint(jnp.sin), 1.0) is primitives.remat_p
    assert primitives.cholesky_p is fnx.lax.linalg.cholesky_p
    with pytest.raises(AttributeError, match="nothing_p"):
        _ = primitives.nothing_p


def test_smap_cuts_along_one_axis_of_the_mesh():
    with config.num_devices(4), fnx.set_mesh(fnx.make_mesh((2, 2), ("x", "y"))):
        x = jnp.arange(8.0).reshape(4, 2)
        rows = fnx.smap(
            lambda a, b: a.shape[0] * a - fnx.lax.psum((a * b).sum(0), "x"),
            in_axes=(0, None),
            out_axes=0,
            axis_name="x",
        )
        np.testing.assert_array_equal(rows(x, 3.0), 2 * x - 3 * x.sum(0))
        columns = fnx.smap(axis_name="y", in_axes=1, out_axes=1)(lambda a: a * a.shape[1])
        np.testing.assert_array_equal(columns(x), x)
    for wrong in ({"in_axes": -1, "axis_name": "x"}, {"in_axes": 0, "axis_name": ("x", "y")}):
        with pytest.raises(TypeError):
            fnx.smap(jnp.sin, out_axes=0, **wrong)


M = np.array([[0.0, 2.0, 0.0, 1.0], [3.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 5.0]])


@pytest.mark.parametrize("kind", [sparse.COO, sparse.CSR, sparse.CSC])
def test_matrices_of_three_arrays(kind):
    m = kind.fromdense(M)
    x, y = np.arange(4.0), np.arange(3.0)
    np.testing.assert_array_equal(m.todense(), M)
    np.testing.assert_array_equal(m.T.todense(), M.T)
    np.testing.assert_array_equal(m @ x, M @ x)
    np.testing.assert_array_equal(y @ m, y @ M)
    np.testing.assert_array_equal(m @ np.eye(4), M)
    np.testing.assert_array_equal(fnx.jit(lambda m, x: m.T @ x)(m, y), M.T @ y)
    slope = sparse.grad(lambda m: (m @ x) @ y)(m)
    assert type(slope) is kind
    np.testing.assert_array_equal(slope.todense(), np.outer(y, x) * (M != 0))
    np.testing.assert_array_equal(
        fnx.jit(lambda a: kind.fromdense(a, nse=8).todense())(M), M
    )  # with room to spare
    assert (m.nse, m.shape, len(fnx.tree.leaves(m))) == (5, (3, 4), 3)
    with pytest.raises(ValueError, match="matrix"):
        kind(m.tree_flatten()[0], shape=(12,))


def test_arrays_of_matrices_lie_as_their_names_say():
    csr, csc = sparse.CSR.fromdense(M), sparse.CSC.fromdense(M)
    np.testing.assert_array_equal(csr.indptr, [0, 2, 4, 5])
    np.testing.assert_array_equal(csr.indices, [1, 3, 0, 2, 3])
    np.testing.assert_array_equal(csc.indptr, [0, 1, 2, 3, 5])
    np.testing.assert_array_equal(csc.data, [3, 2, 4, 1, 5])
    coo = sparse.COO((jnp.array([1.0, 2.0]), jnp.array([1, 1]), jnp.array([0, 0])), shape=(2, 1))
    np.testing.assert_array_equal(coo.todense(), [[0.0], [3.0]])
    np.testing.assert_array_equal(sparse.coo_matvec(coo, jnp.ones(2), transpose=True), [3.0])


@pytest.mark.parametrize(
    ("shape", "to", "axes"),
    [
        ((3, 4), (3, 2, 4), (0, 2)),
        ((3, 1), (3, 5), (0, 1)),
        ((1, 4), (2, 3, 4), (1, 2)),
        ((), (2,), ()),
    ],
)
def test_sparse_arrays_are_broadcast(shape, to, axes):
    dense = np.ones(shape) if shape != (3, 4) else M
    m = sparse.BCOO.fromdense(dense, nse=dense.size + 1)
    found = sparse.bcoo_broadcast_in_dim(m, shape=to, broadcast_dimensions=axes).todense()
    np.testing.assert_array_equal(found, fnx.lax.broadcast_in_dim(jnp.asarray(dense), to, axes))


def test_elements_are_extracted_and_multiplied():
    m = sparse.BCOO.fromdense(M)
    other = jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(sparse.bcoo_extract(m, other).todense(), other * (M != 0))
    np.testing.assert_array_equal(sparse.bcoo_multiply_dense(m, other).todense(), other * M)
    twice = sparse.BCOO(
        (jnp.ones(2), jnp.zeros((2, 1), int)), shape=(3,)
    )  # one element, stored twice
    np.testing.assert_array_equal(
        sparse.bcoo_extract(twice, jnp.arange(5.0, 8.0)).todense(), [5.0, 0, 0]
    )
    with pytest.raises(ValueError, match="expected equal"):
        sparse.bcoo_extract(m, jnp.ones(3))
    assert sparse.bcoo_update_layout(m, n_batch=0) is m
    with pytest.raises(ValueError, match="batch"):
        sparse.bcoo_update_layout(m, n_batch=1)


def test_an_interpreter_of_jaxprs_as_in_documentation_of_jax(tmp_path):
    program = """
import jax, jax.numpy as jnp
from jax._src import util
from jax._src.util import safe_map, safe_zip

def evaluated(jaxpr, consts, *args):
    env = {}
    read = lambda v: v.val if type(v) is jax.extend.core.Literal else env[v]
    safe_map(env.__setitem__, jaxpr.invars, args)
    safe_map(env.__setitem__, jaxpr.constvars, consts)
    for eqn in jaxpr.eqns:
        outs = eqn.primitive.bind(*safe_map(read, eqn.invars), **eqn.params)
        safe_map(env.__setitem__, eqn.outvars, outs if eqn.primitive.multiple_results else [outs])
    return safe_map(read, jaxpr.outvars)

closed = jax.make_jaxpr(lambda x: jnp.exp(jnp.tanh(x)) * jnp.arange(3.0))(jnp.ones(3))
(found,) = evaluated(closed.jaxpr, closed.literals, jnp.ones(3))
assert jnp.allclose(found, jnp.exp(jnp.tanh(1.0)) * jnp.arange(3.0))
for wrong in (lambda: safe_map(max, [1], [1, 2]), lambda: safe_zip([1], [1, 2])):
    try:
        wrong()
    except ValueError:
        continue
    raise AssertionError
assert safe_zip([1, 2], "ab") == [(1, "a"), (2, "b")]
assert util.unzip2([(1, 2), (3, 4)]) == ((1, 3), (2, 4)) and util.unzip2([]) == ((), ())
assert util.split_list([1, 2, 3, 4], [1, 2]) == [[1], [2, 3], [4]]
marks = [True, False, True]
assert util.partition_list(marks, "abc") == (["b"], ["a", "c"])
assert util.merge_lists(marks, *util.partition_list(marks, "abc")) == ["a", "b", "c"]
assert util.canonicalize_axis(-1, 3) == 2
assert util.tuple_insert((1, 2), 1, 0) == (1, 0, 2) and util.tuple_delete((1, 2), 0) == (2,)
"""
    run(program, tmp_path)


def test_what_libraries_ask_of_private_modules(tmp_path):
    program = """
import sys
import jax, jax.numpy as jnp, numpy as np
from jax._src import source_info_util, traceback_util
from jax._src.nn.initializers import _complex_truncated_normal, _complex_uniform
from jax._src.numpy import lax_numpy
from jax._src.tree_util import BuiltInKeyEntry
assert lax_numpy.einsum is jnp.einsum
((path, _),) = jax.tree_util.tree_leaves_with_path({"a": [1]})
assert all(isinstance(key, BuiltInKeyEntry) for key in path)
assert jax.core.is_constant_dim(3) and not jax.core.is_constant_dim(jax.export.symbolic_shape("n")[0])

@jax.jit
def f(x):
    with jax.core.eval_context():
        return x if jnp.sqrt(4.0) == 2 else -x
assert f(1.0) == 1

def g(x):
    return jnp.sin(x)
(eqn,) = jax.make_jaxpr(g)(1.0).eqns
frame = source_info_util.user_frame(eqn.source_info)
assert frame.function_name == "g" and frame._replace(start_line=2).start_line == 2, frame

def user():
    jnp.reshape(jnp.ones(3), (2, 2))
try:
    user()
except TypeError as error:
    found = traceback_util.filter_traceback(error.__traceback__)
    names = []
    while found is not None:
        names.append(found.tb_frame.f_code.co_name)
        found = found.tb_next
assert names == ["<module>", "user"], names
assert traceback_util.filter_traceback(None) is None

key = jax.random.PRNGKey(0)
z = _complex_truncated_normal(key, 1.5, (2000,), np.dtype("complex128"))
assert 1.4 < abs(z).max() < 1.5 and abs(z.mean()) < 0.05
z = _complex_uniform(key, (2000,), np.dtype("complex128"))
assert 1.4 < abs(z).max() < 1.4143 and abs((abs(z) ** 2).mean() - 1) < 0.05
assert jnp.ones(2).platform() == "cpu"
"""
    run(program, tmp_path)


def test_functions_that_are_called_back_get_arrays(tmp_path):
    program = """
import jax, jax.numpy as jnp
from jax.experimental import io_callback
kinds = []
def seen(x, y=None):
    kinds.append(isinstance(x, jax.Array) and isinstance(y, (jax.Array, type(None))))
    return x.at[0].set(-1.0) if x.ndim else jnp.sin(x)
like = jax.ShapeDtypeStruct((3,), float)
f = lambda x: jax.pure_callback(seen, like, x, y=x, vmap_method="sequential")
print(f(jnp.ones(3)), jax.jit(f)(jnp.ones(3)), jax.vmap(f)(jnp.ones((2, 3))).sum())
jax.jit(lambda x: io_callback(seen, like, x))(jnp.zeros(3))
jax.jit(lambda x: jax.debug.callback(seen, x))(2.0)
jax.jit(lambda x: jax.debug.print("{x:.2f} {y}", x=x, y=jnp.arange(2)))(2.0)
jax.effects_barrier()
print(len(kinds), all(kinds))
"""
    said = run(program, tmp_path).splitlines()
    assert said == ["[-1.  1.  1.] [-1.  1.  1.] 2.0", "2.00 [0 1]", "6 True"]


def test_parts_of_jax_that_libraries_build_their_own_from(tmp_path):
    program = """
import jax, jax.numpy as jnp
from jax._src import config
from jax._src.basearray import Array
from jax._src.numpy.array_methods import _IndexUpdateHelper, _IndexUpdateRef
from jax._src.numpy.index_tricks import CClass, RClass
from jax._src.numpy import vectorize as v
from jax.extend.core.primitives import add_jaxvals_p
from jax.extend.source_info_util import summarize

assert Array is jax.Array
assert isinstance(jnp.r_, RClass) and isinstance(jnp.c_, CClass)
assert type("Own", (CClass,), {})()[jnp.ones(3), jnp.zeros(3)].shape == (3, 2)
assert isinstance(jnp.ones(2).at, _IndexUpdateHelper)
assert isinstance(jnp.ones(2).at[0], _IndexUpdateRef)
with config.numpy_rank_promotion("raise"):
    assert config.numpy_rank_promotion.value == "raise"

print(jax.grad(lambda x: add_jaxvals_p.bind(x, x * x))(3.0))
jaxpr = jax.make_jaxpr(lambda x: add_jaxvals_p.bind(x, x))(1.0)
assert jaxpr.eqns[0].primitive is add_jaxvals_p, jaxpr
print(summarize(jaxpr.eqns[0].source_info))

def scaled(x, n, *, by):
    return x * n * by
fun, args, kwargs = v._apply_excluded(scaled, {1, "by"}, (2.0, 3.0), {"by": 5.0})
assert list(args) == [2.0] and not kwargs and fun(2.0) == 30.0
ins, outs = v._parse_gufunc_signature("(n,m),(m)->(n)")
lead, sizes = v._parse_input_dimensions((jnp.ones((4, 3, 2)), jnp.ones(2)), ins)
assert lead == (4,) and sizes == {"n": 3, "m": 2}
product = v._check_output_dims(jnp.matmul, sizes, outs)
assert product(jnp.ones((3, 2)), jnp.ones(2)).shape == (3,)
try:
    v._check_output_dims(jnp.vdot, sizes, outs)(jnp.ones(2), jnp.ones(2))
except ValueError:
    print("refused")
"""
    gradient, line, refused = run(program, tmp_path).splitlines()
    assert gradient == "7.0"
    assert line == "<string>:21 (<lambda>)"
    assert refused == "refused"
