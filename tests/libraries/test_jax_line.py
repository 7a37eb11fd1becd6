"""`import fnx.jax`: what programs for JAX import, what is missing, and how it is switched on.

Each test has a process of its own: in one that has the line, `jax` is fnx for good.
"""

import os
import subprocess
import sys

import numpy as np
import pytest


def run(*arguments, cwd, code=0, **environment):
    """What a fresh process prints; its errors where it fails, as it should."""
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=120,
    )
    assert (done.returncode != 0) == bool(code), done.stderr
    return done.stderr if code else done.stdout


def test_names_of_jax_are_modules_of_fnx(tmp_path):
    program = """
import fnx.jax
import sys
assert "fnx.numpy" not in sys.modules  # nothing is imported before it is asked for
import importlib.metadata
import jax, jax.numpy as jnp, jax.experimental.sparse, jax.scipy.linalg, jaxlib
from jax import lax, random
from jax.extend import linear_util
import jax.interpreters.ad
import fnx
assert jnp is fnx.numpy and lax is fnx.lax and jax.grad is fnx.grad
assert jax.scipy.linalg is fnx.scipy.linalg and jax.interpreters.ad is fnx.interpreters.ad
assert jax.__version__ == jaxlib.__version__ == importlib.metadata.version("jax")
assert jax.__version_info__ == tuple(map(int, jax.__version__.split(".")))
print(jax.jit(jax.grad(lambda x: jnp.sin(x) * x))(0.5))
assert not any(name.partition(".")[0] == "jax" and "site-packages/jax/" in str(module.__file__)
    for name, module in list(sys.modules.items()) if getattr(module, "__file__", None))
"""
    assert float(run("-c", program, cwd=tmp_path)) == pytest.approx(0.9182168195496902)


def test_an_installed_jax_is_never_imported(tmp_path):
    for name in ("jax", "jaxlib"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise SystemExit('the real one')")
    program = "import fnx.jax, jax, jaxlib; print(jax.numpy.arange(3).sum())"
    assert run("-c", program, cwd=tmp_path) == "3\n"


def test_it_refuses_where_jax_is_loaded(tmp_path):
    (tmp_path / "jax.py").write_text("")
    said = run("-c", "import jax; import fnx.jax", cwd=tmp_path, code=1)
    assert "ImportError: the real jax is already loaded, from" in said
    assert "import fnx.jax before anything that imports JAX" in said


def test_what_is_missing_is_named_with_who_asks(tmp_path):
    (tmp_path / "somelib.py").write_text(
        "import jax\ndef solve():\n    return jax.numpy.no_such_function(1)\n"
        "def probe():\n    return hasattr(jax.lax, 'no_such_primitive')\n"
        "def late():\n    import jax._src.no_such_module\n"
        "def other():\n    from jax import no_such_name\n"
    )
    program = """
import fnx.jax, somelib
for call in (somelib.solve, somelib.late, somelib.other):
    try:
        call()
    except (AttributeError, ImportError) as error:
        print(error)
assert somelib.probe() is False
print(*[(m.name, m.library) for m in fnx.jax.report()])
"""
    solve, late, other, names = run("-c", program, cwd=tmp_path).splitlines()
    assert "jax.numpy.no_such_function" in solve
    assert "somelib.py:3" in solve
    assert "jax._src.no_such_module" in late
    assert "somelib.py:7" in late
    assert "no_such_name" in other
    for name in ("numpy.no_such_function", "_src.no_such_module", "lax.no_such_primitive"):
        assert f"('jax.{name}', 'somelib')" in names
    assert "('jax.no_such_name', 'somelib')" in names


SCRIPT = """
import subprocess, sys
import jax.numpy as jnp
def dtype(n):
    import jax
    return f"{jax.numpy.ones(n).dtype} in {jax.jit.__module__}"
if __name__ == "__main__":
    print(sys.argv[1:], jnp.zeros(2).dtype, type(jnp).__name__)
    if sys.argv[1] == "outer":
        print(subprocess.run([sys.executable, __file__, "inner"], capture_output=True, text=True).stdout)
        from multiprocessing import get_context
        with get_context("spawn").Pool(1) as pool:
            print(pool.apply(dtype, (3,)))
"""


@pytest.mark.slow
def test_a_script_and_the_processes_that_it_starts(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    said = run("-m", "fnx.jax", "script.py", "outer", cwd=tmp_path).split("\n")
    assert said[0] == "['outer'] float64 ServedModule"
    assert said[1] == "['inner'] float64 ServedModule"
    assert "float64 in fnx.transforms.jit" in said


def test_what_is_missing_in_parts_that_fnx_imports_for_itself_is_named_too(tmp_path):
    program = """
import fnx.jax, fnx.interpreters.batching
from jax.interpreters import batching
import jax.scipy, fnx.scipy.stats
for module in (batching, jax.scipy.stats):
    try:
        module.no_such_name
    except AttributeError as error:
        print(error)
print(*[m.name for m in fnx.jax.report()])
"""
    first, second, names = run("-c", program, cwd=tmp_path).splitlines()
    assert "fnx has no jax.interpreters.batching.no_such_name" in first
    assert "fnx has no jax.scipy.stats.no_such_name" in second
    assert names == "jax.interpreters.batching.no_such_name jax.scipy.stats.no_such_name"


def test_a_module_that_has_nothing_names_what_is_asked_for(tmp_path):
    program = """
import fnx.jax, jax._src.core
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
for ask in (lambda: pl.pallas_call, lambda: triton.CompilerParams):
    try:
        ask()
    except AttributeError as error:
        print(error)
"""
    first, second = run("-c", program, cwd=tmp_path).splitlines()
    assert "fnx has no jax.experimental.pallas.pallas_call" in first
    assert "fnx has no jax.experimental.pallas.triton.CompilerParams" in second


def test_modules_of_jax_are_found_under_their_paths(tmp_path):
    program = """
import fnx.jax
import jax.export, jax.distributed, jax.monitoring
from jax.example_libraries.stax import elu, softmax
from jax.extend.core import concrete_or_error
from jax._src import monitoring
import jax.numpy as jnp
print(jax.export.deserialize(jax.export.export(jax.jit(jnp.sin))(1.0).serialize()).call(0.0))
print(jax.distributed.is_initialized(), concrete_or_error(int, 2.5))
try:
    jax.jit(lambda x: concrete_or_error(int, x, "as a length"))(1)
except jax.errors.ConcretizationTypeError as error:
    print("as a length" in str(error))
heard = lambda *said, **more: print(*said, more)
monitoring.register_event_listener(heard)
jax.monitoring.register_event_duration_secs_listener(heard)
jax.monitoring.record_event("/seen", by="me")
monitoring.record_event_duration_secs("/took", 0.5)
jax.monitoring.unregister_event_listener(heard)
jax.monitoring.record_event("/unheard")
"""
    said = run("-c", program, cwd=tmp_path).splitlines()
    assert said == ["0.0", "False 2", "True", "/seen {'by': 'me'}", "/took 0.5 {}"]


def test_jax_s_variables_of_the_environment_are_followed(tmp_path):
    program = "import fnx.jax, jax; print(jax.numpy.ones(1).dtype, jax.config.jax_debug_nans)"
    program += "; print(jax.config.jax_numpy_rank_promotion, jax.device_count())"
    assert run("-c", program, cwd=tmp_path) == "float64 False\nallow 1\n"
    given = {"JAX_ENABLE_X64": "False", "JAX_DEBUG_NANS": "1", "JAX_NUMPY_RANK_PROMOTION": "raise"}
    given |= {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    assert run("-c", program, cwd=tmp_path, **given) == "float32 True\nraise 2\n"
    assert "JAX_DEBUG_NANS is 'maybe'" in run(
        "-c", program, cwd=tmp_path, code=1, JAX_DEBUG_NANS="maybe"
    )


def test_libraries_that_ask_for_the_module_of_an_array_call_jax(tmp_path):
    """opt_einsum and autoray do so; opt_einsum else computes with NumPy."""
    program = """
import fnx.jax, jax, jax.numpy as jnp, numpy as np, opt_einsum, pickle
x = jnp.arange(4.0).reshape(2, 2)
kinds = []
chain = lambda x: kinds.append(type(x).__module__) or opt_einsum.contract("ij,jk,kl->", x, x, x)
print(isinstance(chain(x), jax.Array), jax.grad(chain)(x).tolist())
jax.vmap(jax.jit(chain))(x[None])
print({name.partition(".")[0] for name in kinds}, pickle.loads(pickle.dumps(type(x))) is type(x))
print(pickle.loads(pickle.dumps(x)).tolist(), pickle.loads(pickle.dumps(jax.Array)) is jax.Array)
class Step(jnp.uint8):
    FIRST = jnp.uint8(0)
print(Step.FIRST.dtype, Step(3).dtype, isinstance(jnp.float32, type))
"""
    a = np.arange(4.0).reshape(2, 2)
    ones = np.ones(2)
    slope = sum(
        np.outer(left @ ones, right @ ones)
        for left, right in [(np.eye(2), a @ a), (a.T, a), (a.T @ a.T, np.eye(2))]
    )
    said = run("-c", program, cwd=tmp_path).splitlines()
    assert said[0] == f"True {slope.tolist()}"
    assert said[1] == "{'jax'} True"
    assert said[2] == "[[0.0, 1.0], [2.0, 3.0]] True"
    assert said[3] == "uint8 uint8 True"


def test_code(tmp_path):
    code = "import sys, pickle, jax\ndef f(): pass\nprint(sys.argv, pickle.loads(pickle.dumps(f)) is f)"
    assert run("-m", "fnx.jax", "-c", code, "a", cwd=tmp_path) == "['-c', 'a'] True\n"


def test_a_module(tmp_path):
    (tmp_path / "program.py").write_text(SCRIPT)
    said = run("-m", "fnx.jax", "-m", "program", "alone", cwd=tmp_path)
    assert said == "['alone'] float64 ServedModule\n"


@pytest.mark.slow
def test_another_sitecustomize_runs_too(tmp_path):
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "sitecustomize.py").write_text("print('customized')")
    (tmp_path / "script.py").write_text(SCRIPT)
    said = run(
        "-m", "fnx.jax", "script.py", "outer", cwd=tmp_path, PYTHONPATH=str(tmp_path / "place")
    )
    assert said.count("customized") >= 3  # the program's own process, and those that it starts


def test_without_a_program_it_says_how(tmp_path):
    usage = "usage: python -m fnx.jax (PROGRAM | -m module | -c code)"
    assert usage in run("-m", "fnx.jax", cwd=tmp_path, code=1)


@pytest.mark.slow
def test_pytest_has_it_by_a_plugin(tmp_path):
    (tmp_path / "test_it.py").write_text(
        "import jax, fnx\ndef test_it():\n    assert jax.numpy is fnx.numpy\n"
    )
    said = run("-m", "pytest", "-q", "-p", "fnx.jax", "-p", "no:cacheprovider", cwd=tmp_path)
    assert "1 passed" in said


def test_private_names(tmp_path):
    (tmp_path / "library.py").write_text(
        "import jax\nfrom jax._src import traceback_util\n"
        "traceback_util.register_exclusion(__file__)\n"
        "def add(x, y):\n    return jax.numpy.add(x, y)\n"
    )
    program = """
import fnx.jax, jax, jax.numpy as jnp, library, numpy as np
from jax._src import core, dispatch, tree_util
from jax._src.dtypes import TypePromotionError
from jax._src.flatten_util import ravel_pytree
from jax._src.interpreters.ad import CustomVJPException, Zero
from jax._src.public_test_util import check_close
try:
    library.add(jnp.ones(2), jnp.ones(3))
except Exception as error:
    assert "library.py" not in str(error).splitlines()[-1] and "<string>" in str(error), error
assert issubclass(CustomVJPException, ValueError)
assert jax._src.interpreters.ad.Zero is Zero and not hasattr(jax._src, "nothing")
from jaxlib import xla_client
assert isinstance(jax.devices()[0], xla_client.Device)
import jax._src.scipy.special, jax._src.checkify
assert jax._src.scipy.special.gammaln is jax.scipy.special.gammaln and jax._src.checkify.check
util = jax._src.numpy.util
assert [x.dtype.name for x in util.promote_dtypes_complex(np.ones(2, "f4"), 1)] == ["complex64"] * 2
for promoted, dtype in ((util.promote_dtypes, "int64"), (util.promote_dtypes_inexact, "float64")):
    assert {x.dtype.name for x in promoted(np.int8(1), np.arange(2))} == {dtype}
from jaxlib._jax import PjitFunction
assert isinstance(jax.jit(jnp.sin), PjitFunction)
with jax.debug_nans(True):
    assert core.trace_state_clean()
    jax.grad(lambda x: print("looked at", core.trace_state_clean()) or x)(1.0)
assert core.trace_state_clean()
jax.jit(lambda x: print("traced", core.trace_state_clean()))(1.0)
class Pair(tuple): pass
assert list not in tree_util._registry or tree_util._registry[list] and Pair not in tree_util._registry
jax.tree_util.register_pytree_node(Pair, lambda p: (list(p), None), lambda _, p: Pair(p))
children, data = tree_util._registry[Pair].to_iter(Pair((1, 2)))
assert tree_util._registry[Pair].from_iter(data, children) == Pair((1, 2))
dispatch.wait_for_tokens()
assert ravel_pytree({"a": jnp.ones(2), "b": 1.0})[0].shape == (3,)
check_close([1.0], [1.0 + 1e-16])
try:
    check_close([1.0], [1.001])
except AssertionError:
    print("not close")
"""
    assert run("-c", program, cwd=tmp_path) == "looked at False\ntraced False\nnot close\n"


@pytest.mark.slow
def test_devices_are_counted_when_they_are_first_asked_for(tmp_path):
    program = """
import os, sys
import fnx.jax, jax, jax._src.xla_bridge
assert jax._src.xla_bridge._backends == {}
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=" + sys.argv[1]
counts = [jax.device_count()]
assert list(jax._src.xla_bridge._backends) == ["cpu"]
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=7"
print(counts, len(jax.devices("cpu")), jax._src.xla_bridge._backends["cpu"].device_count())
"""
    flags = {"XLA_FLAGS": ""}
    assert run("-c", program, "3", cwd=tmp_path, **flags) == "[3] 3 3\n"
    assert run("-c", program, "3", cwd=tmp_path, FNX_NUM_DEVICES="2", **flags) == "[2] 2 2\n"


def test_modules_that_stand_elsewhere(tmp_path):
    program = """
import fnx.jax, jax, jax.lib, jax.numpy as jnp
from jax.experimental import hijax, multihost_utils
from jax._src.state.types import AbstractRef
from jax._src.tree_util import prefix_errors
assert jax.lib.__version__ == jax.__version__
assert jax.core.valid_jaxtype is jax.extend.core.valid_jaxtype and not hasattr(jax.core, "no_name")
assert isinstance(jax.typeof(jax.new_ref(jnp.ones(3))), AbstractRef)
assert multihost_utils.process_allgather({"a": 1.0})["a"].shape == (1,)
class Boxed(hijax.MutableHiType):
    pass
class Box:
    def __init__(self, x): self.x = x
    def cur_qdd(self): return jax.typeof(self.x)
    def __jax_array__(self): return self.x
class Make(hijax.HiPrimitive):
    def impl(self, x, times): return Box(x * times)
class Set(hijax.HiPrimitive):
    def impl(self, box, x): box.x = x; return []
hijax.register_hitype(Box, lambda box: Boxed())
box = Make("make").bind(jnp.ones(3), times=2)
assert type(jax.typeof(box)) is Boxed and jax.experimental.cur_qdd(box).shape == (3,)
Set("set").bind(box, jnp.zeros(2))
assert box.x.shape == (2,) and (jnp.sin(box) == 0.0).all()
assert jax.jit(lambda x: Make("make").bind(x, times=3).x)(2.0) == 6.0
for refused, kind in ((lambda: hijax.HiPrimitive("none").bind(1.0), NotImplementedError),
                      (lambda: jax.jit(lambda b: b.x)(box), TypeError),
                      (lambda: jax.lax.scan(lambda c, _: (c, 0.0), box, None, 3), TypeError)):
    try:
        refused()
    except kind as error:
        print("type Box" in str(error) or "Box:" in str(error))
why = lambda a, b: [str(e("in_axes")) for e in prefix_errors(a, b)]
assert why({"a": (1, 2)}, {"a": (3, [4])}) == []
for a, b, said in (((1, 2), (1,), "lengths 2"), ({"a": [1]}, {"a": (1,)}, "path in_axes['a']"),
                   ({"a": 1}, {"b": 1}, "metadata")):
    (error,) = why(a, b)
    assert said in error, error
"""
    assert run("-c", program, cwd=tmp_path) == "False\nTrue\nTrue\n"


def test_functions_of_numpy_are_numpys(tmp_path):
    """JAX's arrays are without NumPy's protocols; operators are theirs nevertheless."""
    program = """
import fnx.jax, jax, jax.numpy as jnp, numpy as np
x = jnp.arange(3.0)
made = np.zeros_like(x, dtype=int)
made[x > 1.0] = 7
assert made.tolist() == [0, 0, 7]
for y in np.sin(x), np.concatenate([x, x]), np.where(x > 1.0, x, 0.0), np.linalg.norm(x):
    assert isinstance(y, (np.ndarray, np.generic)), y
host = np.ones(3)
for y in host + x, x + host, np.float64(2.0) * x, host @ x, host < x, np.ones((2, 3)) @ x:
    assert isinstance(y, jax.Array), y
host += x
assert host.tolist() == [1, 2, 3]
try:
    jax.jit(np.sin)(x)
except jax.errors.TracerArrayConversionError:
    print("traced")
"""
    assert run("-c", program, cwd=tmp_path) == "traced\n"


def test_examples_of_its_docstrings(tmp_path):
    program = """
import doctest, fnx, fnx.jax.missing, fnx.jax.finder
for module in (fnx.jax, fnx.jax.missing, fnx.jax.finder):
    result = doctest.testmod(module, extraglobs={"fnx": fnx})
    assert result.failed == 0, result
    print(module.__name__, result.attempted)
"""
    said = run("-c", program, cwd=tmp_path)
    assert "fnx.jax 3" in said


# [jnp.array([1.0, 2.5]), jnp.asarray(3)], as JAX 0.10.2 pickles it in its 64-bit mode.
PICKLE = (
    "gASVJgEAAAAAAABdlCiMDmpheC5fc3JjLmFycmF5lIwSX3JlY29uc3RydWN0X2FycmF5lJOUKIwWbnVtcHkuX2Nv"
    "cmUubXVsdGlhcnJheZSMDF9yZWNvbnN0cnVjdJSTlIwFbnVtcHmUjAduZGFycmF5lJOUSwCFlEMBYpSHlChLAUsC"
    "hZRoB4wFZHR5cGWUk5SMAmY4lImIh5RSlChLA4wBPJROTk5K/////0r/////SwB0lGKJQxAAAAAAAADwPwAAAAAA"
    "AARAlHSUfZSMCXdlYWtfdHlwZZSJc3SUUpRoAyhoBmgJSwCFlGgLh5QoSwEpaA+MAmk4lImIh5RSlChLA2gTTk5O"
    "Sv////9K/////0sAdJRiiUMIAwAAAAAAAACUdJR9lGgYiHN0lFKUZS4="
)


def test_pickles_of_jaxs_arrays(tmp_path):
    program = f"""
import fnx.jax, base64, pickle
vector, number = pickle.loads(base64.b64decode({PICKLE!r}))
from fnx.core.array import ConcreteArray
print(type(vector) is ConcreteArray, repr(vector), repr(number))
print(repr(pickle.loads(pickle.dumps(number))))
"""
    number = "Array(3, dtype=int64, weak_type=True)"
    said = run("-c", program, cwd=tmp_path).splitlines()
    assert said == [f"True Array([1. , 2.5], dtype=float64) {number}", number]


def test_threads_that_import_at_the_same_time(tmp_path):
    program = """
import fnx.jax, importlib, threading
names = "jax.numpy jax.lax jax.experimental.sparse jax.scipy.linalg jax._src.core jax.random".split() * 3
start, results = threading.Barrier(len(names)), []
def work(name):
    start.wait()
    module = importlib.import_module(name)
    import jax
    value = jax.jit(lambda x: jax.numpy.sum(jax.numpy.sin(x) ** 2))(jax.numpy.ones(4))
    results.append((id(module), float(value)))
threads = [threading.Thread(target=work, args=(name,)) for name in names]
[t.start() for t in threads]
[t.join() for t in threads]
print(len(results), len({module for module, _ in results}), len({value for _, value in results}))
"""
    assert run("-c", program, cwd=tmp_path) == "18 6 1\n"
