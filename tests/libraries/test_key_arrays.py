"""Arrays of keys: moved, indexed and compared as other arrays are."""

import copy
import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, random

KEY = random.PRNGKey(42)


MOVES = {
    "transpose": lambda ks: ks.T,
    "stack": lambda ks: jnp.stack([ks, ks[::-1]], axis=-1),
    "concatenate": lambda ks: jnp.concatenate([ks, ks], axis=1),
    "where": lambda ks: jnp.where(jnp.array([True, False, True, True]), ks, ks[0, 0]),
    "select": lambda ks: lax.select(jnp.eye(3, 4, dtype=bool), ks, ks[::-1]),
    "reshape": lambda ks: jnp.reshape(ks, (4, 3)),
    "expand_dims": lambda ks: jnp.expand_dims(ks, -1),
    "broadcast_to": lambda ks: jnp.broadcast_to(ks[0], (2, 4)),
    "repeat": lambda ks: jnp.repeat(ks, 2, axis=0),
    "dynamic_slice": lambda ks: lax.dynamic_slice_in_dim(ks, 1, 2),
    "dynamic_update_slice": lambda ks: lax.dynamic_update_slice_in_dim(ks, ks[:1], 1, 0),
    "take": lambda ks: jnp.take(ks, jnp.array([1, 0]), axis=-1),
    "roll": lambda ks: jnp.roll(ks, 1, 0),
    "squeeze": lambda ks: jnp.squeeze(ks[:1]),
    "nan_to_num": lambda ks: jnp.real(jnp.nan_to_num(ks)),
    "jnp.select": lambda ks: jnp.select([jnp.eye(3, 4, dtype=bool)], [ks], ks[::-1]),
    "choose": lambda ks: jnp.choose(jnp.array([0, 1, 1, 0]), [ks[0], ks[1]]),
    "block": lambda ks: jnp.block([[ks], [ks[:1]]]),
    "dstack": lambda ks: jnp.dstack(jnp.array_split(lax.collapse(ks, 0), 3)),
    "meshgrid": lambda ks: jnp.meshgrid(ks[0], ks[:, 1])[1],
    "put_along_axis": lambda ks: jnp.put_along_axis(
        ks, jnp.array([[1]]), ks[:1, :1], 1, inplace=False
    ),
    "apply_along_axis": lambda ks: jnp.apply_along_axis(lambda row: row[2], 1, ks),
    "moveaxis": lambda ks: jnp.moveaxis(ks, 0, 1),
    "array": lambda ks: jnp.array([ks[0, 0], ks[1, 1]]),
    "set": lambda ks: ks.at[0, 1:].set(ks[2, 3]),
    "get": lambda ks: ks.at[jnp.array([2, 0])].get(),
    "last axis": fnx.vmap(lambda k: k, in_axes=-1, out_axes=-1),
    "to the last axis": fnx.vmap(lambda k: k, out_axes=-1),
}


@pytest.mark.parametrize("name", MOVES)
def test_keys_move_as_numbers_do(name):
    """Each key goes where its number goes."""
    keys, numbers = random.split(random.key(0), (3, 4)), jnp.arange(12).reshape(3, 4)
    move = MOVES[name]
    expected = random.key_data(keys.ravel())[move(numbers)]
    for moved in move(keys), fnx.jit(move)(keys):
        np.testing.assert_array_equal(random.key_data(moved), expected)


def test_what_else_arrays_of_keys_do():
    keys = random.split(random.key(0), (3, 4))
    assert [k.shape for k in jnp.split(keys, 3)] == [(1, 4)] * 3
    assert (keys == keys[0]).tolist() == [[True] * 4] + [[False] * 4] * 2
    assert not np.any(keys != keys)
    assert jnp.isfinite(keys).all()
    assert not (jnp.isnan(keys) | jnp.isinf(keys)).any()
    assert (keys.nbytes, keys.itemsize, keys.T.shape) == (96, 8, (4, 3))
    assert jnp.issubdtype(keys.dtype, fnx.dtypes.prng_key)
    assert random.permutation(random.key(1), keys).shape == (3, 4)
    chosen = random.choice(random.key(1), keys.ravel(), (5,))
    assert np.all(np.any(chosen[:, None] == keys.ravel(), axis=1))
    assert np.all(random.key_data(jnp.zeros_like(keys)) == 0)
    assert np.all(random.key_data(keys.at[7].get(mode="fill")) == 2**32 - 1)
    for bad in (
        lambda: jnp.sin(keys),
        lambda: np.asarray(keys),
        lambda: bool(keys),
        lambda: keys + 1,
    ):
        with pytest.raises(TypeError):
            bad()
    with pytest.raises(ValueError, match="3, 4"):
        jnp.concatenate([keys, keys.T])


def test_typed_keys_are_arrays_to_isinstance():
    key = fnx.random.key(0)
    assert isinstance(key, fnx.Array)
    assert isinstance(key, jnp.ndarray)
    assert key.dtype.type.__name__ == "prng_key"
    again = pickle.loads(pickle.dumps(key))
    assert type(again) is type(key)
    assert bool(again == key)
    assert bool(copy.deepcopy(key) == key)
    for f in (lambda: key + 1, lambda: jnp.ones(2) + key, lambda: jnp.sin(key)):
        with pytest.raises(TypeError):
            f()


def test_keys_are_arrays_of_their_dtype():
    key = fnx.random.key(0)
    keys = fnx.random.split(key, 2)
    for made in (jnp.full(2, key, dtype=key.dtype), jnp.full_like(keys, key, dtype=key.dtype)):
        np.testing.assert_array_equal(made == key, [True, True])
    assert jnp.result_type(key, keys) is key.dtype
    with pytest.raises(TypeError):
        jnp.result_type(key, 1.0)
    with pytest.raises(TypeError):
        jnp.full(2, key, dtype=float)
    assert keys.devices() == {fnx.devices()[0]}
    assert not keys.is_deleted()
    keys.delete()
    assert keys.is_deleted()


def test_keys_are_compared_by_functions_too():
    keys = fnx.random.split(fnx.random.key(0), 3)
    turned = keys[::-1]
    same, other = [False, True, False], [True, False, True]
    for f, wanted in [
        (jnp.equal, same), (jnp.not_equal, other), (jnp.isclose, same), (lax.eq, same), (lax.ne, other),
        (fnx.vmap(jnp.array_equal), same), (fnx.jit(jnp.equal), same),
    ]:  # fmt: skip
        np.testing.assert_array_equal(f(keys, turned), wanted)
    np.testing.assert_array_equal(jnp.equal(keys, keys[0]), [True, False, False])
    for f in (jnp.array_equal, jnp.array_equiv, jnp.allclose):
        assert f(keys, keys)
        assert not f(keys, turned)
    assert not jnp.array_equal(keys, keys[:2])
    for bad in (lambda: jnp.equal(keys, 1), lambda: jnp.less(keys, keys)):
        with pytest.raises(TypeError):
            bad()


def test_none_in_the_place_of_a_key_is_no_leaf():
    keys = fnx.random.split(fnx.random.key(0), 3)
    assert fnx.tree.map(lambda _: None, {"key": keys, "x": 1.0}) == {"key": None, "x": None}


def test_keys_are_leaves_in_paths():
    tree = {"key": fnx.random.key(0), "x": 1.0}
    paths = [fnx.tree_util.keystr(path) for path, _ in fnx.tree.leaves_with_path(tree)]
    assert paths == ["['key']", "['x']"]


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_fetched_from_a_device_are_used_as_others(impl):
    key = fnx.random.key(0, impl=impl)
    fetched = fnx.device_get({"key": key})["key"]
    for use in (
        random.fold_in,
        lambda key, i: random.split(key)[i],
        lambda key, i: random.split(key).reshape(1, 2).T[i, 0],
    ):
        for wrap in (fnx.jit, fnx.vmap):
            run = wrap(lambda i: random.key_data(use(fetched, i)))  # noqa: B023 - called at once
            i = jnp.arange(2) if wrap is fnx.vmap else 1
            expected = wrap(lambda i: random.key_data(use(key, i)))(i)  # noqa: B023
            np.testing.assert_array_equal(run(i), expected)
