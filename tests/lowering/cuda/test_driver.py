"""What the host asks of a GPU's driver, call by call, of a GPU that is recorded and fake."""

import os
import sys

import numpy as np
import pytest
from fake_gpu import CUDAError

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.core.errors import JaxRuntimeError, MissingPackage

X = np.random.default_rng(0).normal(size=(6, 50))


def smoothed(u):
    return lax.fori_loop(0, 9, lambda i, v: v + 0.1 * (jnp.roll(v, 1) - v) / jnp.max(v), u)


def on_gpu(f, **options):
    return fnx.jit(f, backend="cuda", **options)


PROGRAMS = {
    "elementwise": (lambda x: jnp.sin(x) * 2 + 1, [X]),
    "reductions": (lambda x: (x.sum(0), x.sum(1), x.max(), fnx.nn.softmax(x)), [X]),
    "counted": (lambda i: jnp.zeros(7, "int64").at[i].add(1), [np.arange(40) % 7]),
    "added": (lambda i: jnp.zeros(7).at[i].add(0.5), [np.arange(40) % 7]),
    "cumulative": (lambda x: jnp.cumsum(x, 1), [X]),
    "bool": (lambda x: (x > 0).any(1), [X]),
    "loop of launches": (smoothed, [X[0]]),
    "while over arrays": (
        lambda x: lax.while_loop(lambda v: v.max() > 0.1, lambda v: v / 2, x),
        [X[0]],
    ),
    "host": (lambda x: jnp.linalg.solve(x[:, :6] @ x[:, :6].T + jnp.eye(6), x[:, 0]), [X]),
    "gradient": (fnx.grad(lambda x: jnp.log(jnp.exp(x).sum())), [X]),
    "empty": (lambda x: x[:0] * 2, [X]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(gpu, name):
    f, args = PROGRAMS[name]
    found, wanted = fnx.tree.leaves(on_gpu(f)(*args)), fnx.tree.leaves(f(*args))
    for a, b in zip(found, wanted, strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert gpu.made("launch") or name == "empty"
    assert {stream for _, stream in gpu.made("copy")} <= {7}  # all on the one stream


def test_calls_in_order(gpu):
    f = on_gpu(lambda x: x * 2 + 1)
    y = f(X)
    first = "device set_current allocate copy sync allocate cubin load launch".split()
    assert [c[0] for c in gpu.calls] == first
    del gpu.calls[:]
    z = f(y)  # nothing comes to the host, nothing is compiled
    assert [c[0] for c in gpu.calls] == ["launch"]  # in memory that the argument of before has left
    del gpu.calls[:]
    np.testing.assert_array_equal(z, (X * 2 + 1) * 2 + 1)
    assert [c[0] for c in gpu.calls] == ["copy", "sync"]


def functions_of(call):
    """The functions of Python's that a call enters, those of the fake driver left out."""
    entered = []

    def look(frame, event, _):
        if event == "call" and "support" not in frame.f_code.co_filename:
            entered.append(frame.f_code.co_qualname)

    sys.setprofile(look)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_a_later_call_enters_few_functions(gpu):
    """On the host a call takes microseconds, which functions that are entered make up."""
    f = on_gpu(lambda x: x * 2 + 1)
    x = f(f(X))
    found = functions_of(lambda: f(x))
    # What allocates, launches and makes the result, and lets go of the result's memory.
    assert len(found) <= 24, found


def test_buffers_of_results_are_their_own(gpu):
    f = on_gpu(lambda x: (x + 1, x * 2))
    (a, b), (c, d) = f(X), f(X + 1)
    np.testing.assert_array_equal(a, X + 1)
    np.testing.assert_array_equal([b, c, d], [X * 2, X + 1 + 1, (X + 1) * 2])
    assert len({id(v._value.memory) for v in (a, b, c, d)}) == 4


def test_calls_return_before_kernels_have_run(gpu):
    y = on_gpu(lambda x: x + 1)(X)
    assert gpu.made("launch")
    assert gpu.waiting
    y.block_until_ready()
    assert not gpu.waiting


def test_one_workspace_a_call(gpu):
    f = on_gpu(lambda x: (jnp.sin(x).sum(0) + x[0]).sum())
    f(X)
    (device,) = fnx.devices("gpu")
    before = device.memory_stats()["num_allocs"]
    del gpu.calls[:]
    f(X)
    # The argument, the result and the workspace, all of them where those of the call before lay.
    assert device.memory_stats()["num_allocs"] == before + 3
    assert not gpu.made("allocate")


def test_blocks_are_kept_by_size(gpu):
    from fnx.lowering.cuda.device_memory import Blocks

    f = on_gpu(lambda x: x + 1)
    sizes = [1, 31, 32, 33, 300, 1000, 1500]
    for n in sizes * 2:
        np.testing.assert_array_equal(f(np.arange(float(n))), np.arange(n) + 1)
    asked = [n for (n,) in gpu.made("allocate")]
    assert set(asked) == {Blocks.rounded(8 * n) for n in sizes}
    assert len(asked) == 2 * len(set(asked))  # argument and result, of the first call of a size
    assert all(8 * n <= Blocks.rounded(8 * n) <= 8 * n + max(n, 256) for n in sizes)
    many = [f(np.arange(300.0)) for _ in range(9)]
    del many
    assert len(gpu.made("free")) == 9 + 1 - Blocks.MOST  # the results, an argument's


def test_large_blocks_go_back(gpu):
    f = on_gpu(lambda x: x + 1)
    x = np.arange(6000.0)
    assert x.nbytes > gpu.limit >> 10
    np.testing.assert_array_equal(f(x), x + 1)
    assert len(gpu.made("free")) == 2


def test_kept_blocks_are_given_up_where_memory_does_not_suffice(gpu):
    f = on_gpu(lambda x: x + 1)
    f(np.ones(3))
    gpu.limit = 1 << 18
    arrays = [f(np.arange(1500.0 - 100 * k)) for k in range(8)]
    del arrays
    held = sum(n for (n,) in gpu.made("allocate")) - sum(n for (n,) in gpu.made("free"))
    assert held > 100_000
    wanted = (gpu.limit - held // 2) // 8
    assert on_gpu(lambda x: x[0] * jnp.ones(wanted))(np.ones(3)).size == wanted


@pytest.mark.slow
def test_calls_whose_arrays_lie_as_before_are_one_graph(gpu):
    f = on_gpu(lambda x: (x.sum(0), x.sum(1), x.max() + jnp.cumsum(x, 1)))
    x = on_gpu(lambda x: x * 1.0)(X)
    f(x)
    launches = len(gpu.made("launch"))
    assert launches > 3
    y = f(x)
    for _ in range(6):
        y = f(x)  # in turns in two places
        for a, b in zip(y, (X.sum(0), X.sum(1), X.max() + np.cumsum(X, 1)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)
    assert 1 <= len(gpu.made("graph")) <= 2
    del gpu.calls[:]
    y = f(x)
    assert [c[0] for c in gpu.calls] == ["launch graph"]
    z = [f(x * k) for k in (2.0, 3.0)]  # arrays elsewhere
    for k, found in zip((2, 3), z, strict=True):
        np.testing.assert_allclose(found[2], k * (X.max() + np.cumsum(X, 1)), rtol=1e-12)


def test_memory_goes_back(gpu):
    f = on_gpu(lambda x: x * 2)
    for _ in range(50):
        y = f(X)
    y.block_until_ready()
    (device,) = fnx.devices("gpu")
    stats = device.memory_stats()
    assert stats["bytes_in_use"] <= 2 * X.nbytes
    assert X.nbytes <= stats["peak_bytes_in_use"] <= 4 * X.nbytes
    assert stats["num_allocs"] == 100
    assert stats["bytes_limit"] == gpu.limit
    del y
    assert device.memory_stats()["bytes_in_use"] == 0


def test_donated_memory_is_taken_over(gpu):
    given = on_gpu(lambda x: x + 1)(X)
    memory = given._value.memory
    del gpu.calls[:]
    made = on_gpu(lambda x: x * 2, donate_argnums=0)(given)
    assert given.is_deleted()
    assert made._value.memory is memory
    assert not gpu.made("allocate")
    np.testing.assert_allclose(made, 2 * X + 2)


# --- graphs ---------------------------------------------------------------------------------------


def test_loops_of_launches_are_graphs(gpu):
    f = on_gpu(smoothed)
    found = f(X[0])
    ((nodes,),) = gpu.made("graph")
    assert nodes > 1
    assert gpu.made("launch graph") == [(nodes,)] * 8  # the first round loads the kernels
    np.testing.assert_allclose(found, smoothed(X[0]), rtol=1e-12)


def test_short_loops_are_launched_one_by_one(gpu):
    on_gpu(lambda u: lax.fori_loop(0, 3, lambda i, v: v / jnp.max(v) + i, u))(X[0])
    assert not gpu.made("graph")
    assert len(gpu.made("launch")) >= 6


def test_loops_with_calls_of_the_host_are_no_graphs(gpu):
    shape = fnx.ShapeDtypeStruct((50,), "float64")
    step = lambda i, v: fnx.pure_callback(lambda a: np.asarray(a) + 1, shape, v) * 0.5
    found = on_gpu(lambda u: lax.fori_loop(0, 6, step, u))(X[0])
    assert not gpu.made("graph")
    np.testing.assert_allclose(found, lax.fori_loop(0, 6, step, X[0]))


@pytest.mark.slow
def test_inner_loops_are_in_the_graph_of_the_outer_one(gpu):
    inner = lambda i, v: v + 0.1 * (jnp.roll(v, 1) - v) / jnp.max(v)
    f = lambda u: lax.fori_loop(0, 5, lambda k, v: lax.fori_loop(0, 4, inner, v) * 0.5, u)
    np.testing.assert_allclose(on_gpu(f)(X[0]), f(X[0]), rtol=1e-12)
    assert len(gpu.made("graph")) == 1
    assert len(gpu.made("launch graph")) == 4


# --- errors ---------------------------------------------------------------------------------------


def failing(name="f"):
    def f(x):
        return jnp.sin(x).sum() + x

    f.__name__ = name
    return on_gpu(f)


def test_errors_of_kernels_name_the_program(gpu):
    y = failing("my_model")(X)
    gpu.fails["sync"] = CUDAError("CUDA_ERROR_INVALID_VALUE: bad")
    with pytest.raises(JaxRuntimeError, match=r"CUDA_ERROR_INVALID_VALUE.*my_model: k1"):
        np.asarray(y)
    np.testing.assert_allclose(y, np.sin(X).sum() + X)  # that was no error for ever


def test_a_launch_that_fails_names_the_program(gpu):
    gpu.fails["launch"] = CUDAError("CUDA_ERROR_INVALID_CONFIGURATION: no")
    with pytest.raises(JaxRuntimeError, match=r"launch of my_model: k1.*INVALID_CONFIGURATION"):
        failing("my_model")(X)


def test_a_lost_device(gpu):
    from fnx.lowering.cuda.gpu_driver import DeviceLost

    f = failing("my_model")
    y = f(X)
    gpu.fails["sync"] = CUDAError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal access")
    with pytest.raises(DeviceLost, match=r"my_model: k1.*lost.*goes on with the CPU"):
        y.block_until_ready()
    with pytest.raises(DeviceLost, match=r"failed earlier .*ILLEGAL_ADDRESS.*after my_model"):
        f(X)
    with pytest.raises(DeviceLost, match="not possible"):
        fnx.devices("gpu")[0].memory_stats()
    del y  # nothing is raised where memory goes
    np.testing.assert_allclose(fnx.jit(lambda x: x + 1)(X), X + 1)


def test_memory_that_does_not_suffice(gpu):
    from fnx.lowering.cuda.gpu_driver import OutOfMemory

    gpu.limit = 1 << 18
    kept = on_gpu(lambda x: x * 2)(X)
    large = on_gpu(lambda x: jnp.outer(x, x))(np.arange(110.0))
    with pytest.raises(OutOfMemory) as raised:
        on_gpu(lambda x: x[:, None] + jnp.zeros((50, 46)).sum() + jnp.ones(110))(np.arange(250.0))
    text = str(raised.value)
    assert "220000 bytes" in text  # what was asked for
    assert "float64[110,110] (96800 bytes)" in text  # the largest that there is
    assert "Nothing is lost" in text
    np.testing.assert_allclose(kept, X * 2)
    assert float(large[3, 4]) == 12.0
    del large, raised
    assert on_gpu(lambda x: jnp.outer(x, x))(np.arange(110.0)).shape == (110, 110)


def test_memory_in_circles_is_found_before_that_is_said(gpu):
    gpu.limit = 1 << 18
    big = on_gpu(lambda x: jnp.outer(x, x))(np.arange(160.0))
    circle = [big]
    circle.append(circle)
    del big, circle
    again = on_gpu(lambda x: jnp.outer(x, x))(np.arange(160.0))
    assert float(again[2, 3]) == 6.0


def test_donated_arrays_stay_where_memory_does_not_suffice(gpu):
    from fnx.lowering.cuda.gpu_driver import OutOfMemory

    given = on_gpu(lambda x: x + 1)(X)
    f = on_gpu(lambda x: (x * 2, jnp.outer(x.ravel(), jnp.ones(9000))), donate_argnums=0)
    with pytest.raises(OutOfMemory):
        f(given)
    assert not given.is_deleted()
    np.testing.assert_allclose(given, X + 1)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks are POSIX's")
def test_a_fork_after_the_driver_started(gpu):
    f = on_gpu(lambda x: x + 1)
    y = f(X)
    y.block_until_ready()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        text = "nothing was raised"
        try:
            f(X)
        except JaxRuntimeError as error:
            text = str(error)
        os.write(write, text.encode())
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(read, 1000).decode()
    os.close(read)
    os.close(write)
    assert "forked" in said
    assert "spawn" in said


def test_no_driver(gpu):
    from fnx.lowering.cuda.gpu_driver import NoDevice

    gpu.fails["device"] = CUDAError("CUDA_ERROR_NO_DEVICE")
    with pytest.raises(NoDevice, match=r"NO_DEVICE.*nvidia-smi"):
        on_gpu(lambda x: x)(X)
    np.testing.assert_allclose(fnx.jit(lambda x: x + 1)(X), X + 1)
    np.testing.assert_allclose(on_gpu(lambda x: x + 1)(X), X + 1)  # once there is one


def test_too_old_a_driver(gpu):
    from fnx.lowering.cuda.gpu_driver import NoDevice

    gpu.version = 12040
    with pytest.raises(NoDevice, match=r"CUDA 12\.4, too old.*580"):
        fnx.devices("gpu")


def test_no_extra(monkeypatch):
    from fnx.lowering.cuda import backend

    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    backend.drivers.clear()
    with pytest.raises(MissingPackage, match=r"pip install 'fnx\[cuda\]'"):
        on_gpu(lambda x: x + 1)(X)
    np.testing.assert_allclose(fnx.jit(lambda x: x + 1)(X), X + 1)


# --- where programs run ---------------------------------------------------------------------------


def test_arrays_on_the_gpu_take_programs_there(gpu):
    (device,) = fnx.devices("gpu")
    x = fnx.device_put(X, device)
    assert (x.device, x.devices()) == (device, {device})
    y = fnx.jit(lambda x: x * 2 + 1)(x)
    assert y.device == device
    assert len(gpu.made("launch")) == 1
    np.testing.assert_allclose(y, X * 2 + 1)
    back = fnx.device_put(y, fnx.devices()[0])
    assert back.device == fnx.devices()[0]
    np.testing.assert_allclose(fnx.jit(lambda x: x - 1)(back), X * 2)
    assert len(gpu.made("launch")) == 1


def test_jit_is_told_the_gpu(gpu):
    (device,) = fnx.devices("gpu")
    assert fnx.jit(lambda x: x + 1, device=device)(X).device == device


def test_the_default_device(gpu):
    (device,) = fnx.devices("gpu")
    f = fnx.jit(lambda x: x + 1)
    with fnx.default_device(device):
        assert f(X).device == device
    assert f(X).device == fnx.devices()[0]
    with fnx.default_device(fnx.devices()[0]):
        assert f(X).device == fnx.devices()[0]


def test_mixing_the_gpu_with_the_cpu(gpu):
    (device,) = fnx.devices("gpu")
    x, y = fnx.device_put(X, device), fnx.device_put(X, fnx.devices()[0])
    with pytest.raises(fnx.errors.MixedDevices) as raised:
        fnx.jit(lambda a, b: a + b)(x, y)
    text = str(raised.value)
    assert "a, float64[6,50] on GpuDevice(id=0) (put there at" in text
    assert "b, float64[6,50] on CpuDevice(id=0) (put there at" in text
    assert text.count("test_driver.py") >= 2
    with config.num_devices(2), pytest.raises(fnx.errors.MixedDevices, match="an operation of"):
        x + fnx.device_put(X, fnx.devices()[1])
