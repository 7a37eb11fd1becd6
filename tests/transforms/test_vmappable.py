"""vmap of types that are registered with rules of their own, under JAX's names."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.interpreters import batching


@fnx.tree_util.register_pytree_node_class
class Cloud:
    """Positions, one set a member, and masses that all members share."""

    def __init__(self, x, masses):
        self.x, self.masses = x, masses

    @property
    def shape(self):
        return self.x.shape

    def tree_flatten(self):
        return (self.x, self.masses), None

    @classmethod
    def tree_unflatten(cls, _, children):
        return cls(*children)


@pytest.fixture(autouse=True)
def registered():
    batching.register_vmappable(
        Cloud,
        int,
        int,
        lambda each, _, cloud, axis: Cloud(each(cloud.x, axis), cloud.masses),
        lambda each, size, cloud, axis: Cloud(each(size, cloud.x, axis), cloud.masses),
        None,
    )
    yield
    batching.unregister_vmappable(Cloud)


X, MASSES = np.arange(6.0).reshape(3, 2), np.arange(5.0)


def moved(cloud, by, scale=1.0):
    assert cloud.x.ndim == 1
    assert cloud.masses.shape == (5,)
    return Cloud(cloud.x * scale + by, cloud.masses), by + 1


def test_its_own_rules_say_what_has_a_batch_axis():
    cloud, more = fnx.vmap(moved)(Cloud(jnp.array(X), jnp.array(MASSES)), jnp.arange(3.0))
    np.testing.assert_array_equal(cloud.x, X + np.arange(3.0)[:, None])
    np.testing.assert_array_equal(cloud.masses, MASSES)
    np.testing.assert_array_equal(more, [1, 2, 3])


def test_axes_of_arguments_and_results():
    mapped = fnx.vmap(moved, in_axes=(-1, None), out_axes=(1, None))
    cloud, more = mapped(Cloud(jnp.array(X), jnp.array(MASSES)), 2.0)
    np.testing.assert_array_equal(cloud.x, X + 2)
    assert cloud.masses.shape == (5,)
    assert float(more) == 3


def test_results_alone_and_keywords():
    made = fnx.vmap(lambda x: [Cloud(x * jnp.ones(2), jnp.ones(5)), None])(jnp.arange(3.0))[0]
    assert made.x.shape == (3, 2)
    assert made.masses.shape == (5,)
    cloud, _ = fnx.vmap(moved, in_axes=(0, None))(made, 1.0, scale=jnp.full(3, 2.0))
    np.testing.assert_array_equal(cloud.x, made.x * 2 + 1)


def test_nested_and_under_other_transformations():
    @fnx.jit
    def squares(x):
        twice = fnx.vmap(fnx.vmap(lambda c: Cloud(c.x**2, c.masses)))
        return twice(Cloud(x, jnp.array(MASSES)))

    np.testing.assert_array_equal(squares(X).x, X**2)
    np.testing.assert_array_equal(fnx.grad(lambda x: squares(x).x.sum())(X), 2 * X)


def test_what_cannot_be_mapped_is_refused():
    with pytest.raises(ValueError, match=r"inconsistent sizes.*4 of args\[1\]"):
        fnx.vmap(moved)(Cloud(jnp.array(X), jnp.array(MASSES)), jnp.ones(4))
    four = Cloud(jnp.ones((4, 2)), jnp.array(MASSES))
    with pytest.raises(ValueError, match=r"inconsistent sizes for axes of Cloud.*\[3, 4\]"):
        fnx.vmap(lambda a, b: a.x)(Cloud(jnp.array(X), jnp.array(MASSES)), four)
    with pytest.raises(ValueError, match=r"axis_size: \[4, 5\]"):
        fnx.vmap(lambda a: a.x, axis_size=5)(four)
    with pytest.raises(NotImplementedError, match="axes of type str"):
        batching.register_vmappable(Cloud, str, int, moved, moved, None)


def test_a_type_that_is_forgotten_is_a_pytree():
    batching.unregister_vmappable(Cloud)
    cloud = Cloud(jnp.array(X), jnp.arange(3.0))
    assert fnx.vmap(lambda c: c.x + c.masses)(cloud).shape == (3, 2)
