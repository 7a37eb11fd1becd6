"""Operations outside of jit, on arrays of a GPU: computed there, with the results of the host's."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

X = np.array([0.5, -1.25, 3.0, 2.0])
OPERATIONS = {
    "arithmetic": lambda x: 2 * x + x / 3 - x % 2,
    "comparisons": lambda x: (x > 0, (x == 3.0) | (x < 1)),
    "functions": lambda x: jnp.sin(x) + jnp.std(x),
    "reductions": lambda x: (x.sum(), x.max(), x.argmin(), jnp.cumsum(x)),
    "dtypes": lambda x: (x.astype("float32"), x.astype(int), x + 1j, x.astype("bfloat16")),
    "shapes": lambda x: (x.reshape(2, 2).T, x[None], jnp.concatenate([x, x]), jnp.stack([x, x])),
    "indices": lambda x: (x[1:3], x[-1], x[jnp.array([0, 2])], x[x.argsort()], x[::-1]),
    "updates": lambda x: (x.at[1].set(7.0), x.at[jnp.array([0, 0])].add(1.0)),
    "choices": lambda x: jnp.where(x > 0, x, 0.0),
    "loops": lambda x: lax.scan(lambda c, t: (c + t, c * t), 0.0, x),
    "whiles": lambda x: lax.while_loop(lambda c: c.sum() < 50, lambda c: c * 2, x),
    "branches": lambda x: lax.cond(x[0] > 1, lambda v: v, lambda v: -v, x),
    "gradients": fnx.grad(lambda x: jnp.sum(x**3)),
    "members": fnx.vmap(lambda t: t * t),
    "products": lambda x: (x @ x, jnp.outer(x, x)),
    "random": lambda x: x + fnx.random.uniform(fnx.random.key(1), (4,)),
    "empty": lambda x: x[:0] + 1,
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_stay_on_the_device(gpu, name):
    (device,) = fnx.devices("gpu")
    found = fnx.tree.leaves(OPERATIONS[name](fnx.device_put(X, device)))
    wanted = fnx.tree.leaves(OPERATIONS[name](jnp.asarray(X)))
    for a, b in zip(found, wanted, strict=True):
        assert (a.device, a.shape, a.dtype, a.weak_type) == (device, b.shape, b.dtype, b.weak_type)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)


def test_a_second_operation_of_a_type_compiles_nothing(gpu):
    (device,) = fnx.devices("gpu")
    x, y = fnx.device_put(X, device), fnx.device_put(X + 1, device)
    np.testing.assert_array_equal(x * y, X * (X + 1))
    del gpu.calls[:]
    np.testing.assert_array_equal(y * x, X * (X + 1))
    assert len(gpu.made("launch")) == 1
    assert not gpu.made("cubin")


def test_numbers_come_to_the_host_when_they_are_asked_for(gpu):
    (device,) = fnx.devices("gpu")
    x = fnx.device_put(X, device)
    assert (float(x[2]), bool(x[0] > 1), x.tolist(), len(x)) == (3.0, False, X.tolist(), 4)
    assert str(x) == str(jnp.asarray(X))
    assert (np.asarray(x) + 1).sum() == X.sum() + 4


def test_arrays_that_nobody_put_anywhere_are_brought(gpu):
    (device,) = fnx.devices("gpu")
    x = fnx.device_put(X, device)
    for y in (X, jnp.asarray(X), 2.0, True):
        assert (
            (x + y).device == (y + x if not isinstance(y, np.ndarray) else x + y).device == device
        )


def test_operations_of_arrays_of_two_devices(gpu):
    (device,) = fnx.devices("gpu")
    x, y = fnx.device_put(X, device), fnx.device_put(X, fnx.devices()[0])
    with pytest.raises(
        fnx.errors.MixedDevices, match=r"GpuDevice.*test_operations.*CpuDevice.*test_op"
    ):
        x + y
    with pytest.raises(fnx.errors.MixedDevices):
        jnp.concatenate([y, x])
