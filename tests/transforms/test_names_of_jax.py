"""Names of JAX's that are about processes and places: kinds of devices, profiles, environment."""

import logging

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import memory, sharding


def test_memory_spaces_are_places():
    assert repr(memory.Space.Host) == "MemorySpace.Host"
    assert fnx.device_put(jnp.ones(2), memory.Space.Device).tolist() == [1.0, 1.0]


def test_kinds_of_devices_and_of_axes():
    device = sharding.AbstractDevice("cpu", 2, "cpu")
    assert repr(device) == "AbstractDevice(device_kind=cpu, num_cores=2, platform=cpu)"
    kind = sharding.ManualAxisType(varying={"x"})
    assert kind == sharding.ManualAxisType().update(varying={"x"})
    assert (hash(kind) == hash(kind.update()), kind == sharding.ManualAxisType()) == (True, False)
    one = fnx.devices()[0]
    assert sharding.make_single_device_sharding(one) == sharding.SingleDeviceSharding(one)


def test_profiles_of_memory(tmp_path):
    x = jnp.ones((3, 5, 7))
    fnx.profiler.save_device_memory_profile(tmp_path / "memory")
    text = (tmp_path / "memory").read_text()
    assert f"{x.nbytes}       1 f64[3,5,7]" in text
    with pytest.raises(NotImplementedError, match=r"profiler\.trace"):
        fnx.profiler.start_server(9999)


def test_environment_in_words(capsys):
    fnx.print_environment_info()
    assert f"numpy: {np.__version__}" in capsys.readouterr().out
    for name, expected in (("host_id", 0), ("host_count", 1), ("host_ids", [0])):
        with pytest.warns(UserWarning, match="has become process"):
            assert getattr(fnx, name)() == expected


def test_debug_log_goes_into_the_log(caplog):
    with caplog.at_level(logging.INFO, logger="fnx.debug"):
        fnx.jit(lambda x: fnx.debug.log("x is {x}", x=x))(3.0)
    assert caplog.messages == ["x is 3.0"]
