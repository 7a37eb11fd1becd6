"""Arrays that were put on a device decide where programs run; those of two devices do not mix."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core import config
from fnx.errors import InvalidValue, MixedDevices


@pytest.fixture
def devices():
    with config.num_devices(2):
        yield fnx.devices()


def test_arrays_know_their_device(devices):
    for d in devices:
        x = fnx.device_put(np.arange(3.0), d)
        assert (x.device, x.devices(), x.sharding.device_set) == (d, {d}, {d})
        np.testing.assert_array_equal(x, np.arange(3.0))


def test_results_are_on_the_device_of_the_arguments(devices):
    x = fnx.device_put(np.arange(3.0), devices[1])
    f = fnx.jit(lambda x, y: {"sum": x + y, "max": x.max()})
    for _ in range(3):  # the first call, and those that go the short way
        found = f(x, np.ones(3))
        assert {v.device for v in found.values()} == {devices[1]}
        np.testing.assert_array_equal(found["sum"], [1.0, 2.0, 3.0])
    assert f(np.ones(3), np.ones(3))["sum"].device == devices[0]
    np.testing.assert_allclose(fnx.grad(lambda x: jnp.sum(f(x, x)["sum"]))(x), 2 * np.ones(3))
    np.testing.assert_allclose(fnx.vmap(lambda a: f(a, a)["sum"])(x[:, None]), 2 * x[:, None])


def test_donated_arrays_are_gone_and_results_lie_where_they_lay(devices):
    f = fnx.jit(lambda x: x + 1, donate_argnums=0)
    for place in (*devices[:2], *devices[:2]):  # also those that go the short way
        x = fnx.device_put(np.ones(64), place)
        found = f(x)
        assert (found.device, x.is_deleted()) == (place, True)
        np.testing.assert_array_equal(found, 2 * np.ones(64))


def test_what_was_put_nowhere_goes_everywhere(devices):
    x = jnp.arange(3.0)
    y = fnx.device_put(np.ones(3), devices[1])
    assert fnx.jit(lambda x, y: x * y)(x, y).device == devices[1]
    assert fnx.device_put(x).device == devices[0]
    assert fnx.jit(lambda x, y: x * y)(fnx.device_put(x), y).device == devices[1]


def test_mixing_devices_names_both_arrays_and_their_lines(devices):
    x = fnx.device_put(np.ones(3), devices[0])
    y = fnx.device_put(np.ones((2, 3), np.float32), devices[1])

    @fnx.jit
    def model(x, tree, scale=1.0):
        return x + tree["w"][0] * scale

    with pytest.raises(MixedDevices) as raised:
        model(x, {"w": y})
    text = str(raised.value)
    assert "model got arrays of different devices" in text
    assert "x, float64[3] on CpuDevice(id=0) (put there at" in text
    assert "tree['w'], float32[2,3] on CpuDevice(id=1) (put there at" in text
    assert text.count("test_committed.py") >= 2
    with pytest.raises(MixedDevices, match="scale, float64"):
        model(x, {"w": x[None]}, scale=fnx.device_put(np.ones(3), devices[1]))
    with pytest.raises(MixedDevices, match=r"id=0\).*id=1\)"):
        x + fnx.device_put(np.ones(3), devices[1])
    across = fnx.device_put(np.ones(4), fnx.NamedSharding(fnx.make_mesh((2,), ("x",)), fnx.P("x")))
    with pytest.raises(MixedDevices, match=r"x, float64.*id=0\).*the devices of Mesh\('x': 2,"):
        fnx.jit(lambda x, y: x + y[:3])(x, across)
    moved = fnx.device_put(y, x.device)
    np.testing.assert_array_equal(model(x, {"w": moved}), 2 * np.ones(3))


def test_closed_over_arrays_count(devices):
    w = fnx.device_put(np.ones(3), devices[1])
    f = fnx.jit(lambda x: x * w)
    assert f(np.ones(3)).device == devices[1]
    with pytest.raises(MixedDevices, match="an array that it closes over"):
        f(fnx.device_put(np.ones(3), devices[0]))


def test_jit_may_be_told_a_device(devices):
    np.testing.assert_array_equal(fnx.jit(lambda x: x + 1, device=devices[0])(np.ones(2)), [2, 2])
    with pytest.raises(InvalidValue, match="expected a device"):
        fnx.jit(lambda x: x, device="cpu:0")
    with pytest.raises(InvalidValue, match="one of both"):
        fnx.jit(lambda x: x, device=devices[0], backend="cpu")


def test_deleted_arrays_say_so(devices):
    x = fnx.device_put(np.ones(3), devices[1])
    x.delete()
    with pytest.raises(RuntimeError, match="deleted"):
        fnx.jit(lambda x: x + 1)(x)


def test_arrays_of_rank_0_keep_their_rank(devices):
    x = fnx.device_put(1, devices[1])
    assert (np.asarray(x).shape, x.shape) == ((), ())
    found = fnx.jit(lambda x, y: (x, x + y))(x, jnp.asarray(2))
    assert [(int(v), v.shape, v.device) for v in found] == [
        (1, (), devices[1]),
        (3, (), devices[1]),
    ]


def test_donated_arrays_are_deleted_when_they_are_put(devices):
    x, y, z = (jnp.ones(2) for _ in range(3))
    found = fnx.device_put([x, {"y": y}, z], devices[1], donate=[True, True, False])
    assert [a.is_deleted() for a in (x, y, z)] == [True, True, False]
    np.testing.assert_array_equal(found[1]["y"], np.ones(2))
    with pytest.raises(TypeError, match="unexpected"):
        fnx.device_put(z, devices[1], copy=False)
