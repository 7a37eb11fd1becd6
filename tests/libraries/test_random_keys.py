"""Typed keys, their types where nothing is computed, and the generators rbg and unsafe_rbg.

Numbers expected are those of JAX 0.10.2 on a CPU.
"""

import copy
import pickle

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax, random
from fnx.extend import random as random_extend

STATE = np.array([1, 2, 0xFFFFFFFE, 4], np.uint32)
FRY = lax.RandomAlgorithm.RNG_THREE_FRY


def words(keys):
    return random.key_data(keys).tolist()


def test_types_of_keys_stand_for_keys():
    key = random.key(0)
    one = fnx.ShapeDtypeStruct((), key.dtype)
    assert repr(one) == "ShapeDtypeStruct(shape=(), dtype=key<fry>)"
    assert fnx.eval_shape(random.split, one) == fnx.ShapeDtypeStruct((2,), key.dtype)
    assert fnx.eval_shape(lambda k: {"k": k}, key)["k"].dtype is key.dtype
    assert fnx.eval_shape(random.uniform, one).dtype == np.float64
    compiled = fnx.jit(random.uniform).lower(one).compile()
    assert compiled(key) == random.uniform(key)
    assert str(fnx.typeof(random.split(key, 3))) == "key<fry>[3]"
    shape = fnx.make_jaxpr(random.split, return_shape=True)(one)[1]
    assert (shape.shape, str(shape.dtype)) == ((2,), "key<fry>")


def test_keys_print_as_in_jax():
    assert (
        repr(random.key(3)) == str(random.key(3)) == "Array((), dtype=key<fry>) overlaying:\n[0 3]"
    )
    assert repr(random.key(3, impl="rbg").dtype) == "key<rbg>"


def test_keys_are_created_by_dtype():
    dtype = random.key(0).dtype
    assert words(jnp.zeros((2,), dtype)) == words(jnp.empty(2, dtype=dtype)) == [[0, 0]] * 2
    assert (
        words(jnp.ones(2, dtype))
        == words(jnp.ones_like(random.split(random.key(0))))
        == [[1, 1]] * 2
    )
    assert words(lax.full_like(random.split(random.key(0)), 0)) == [[0, 0]] * 2


@pytest.mark.parametrize(
    "bad",
    [
        lambda k: k == 1,
        lambda k: k != jnp.zeros(2, "uint32"),
        lambda k: k == random.key(0, impl="rbg"),
        lambda k: jnp.concatenate([k[None], jnp.zeros(2)]),
        lambda k: jnp.where(True, k, 1),
        lambda k: random.split(k).at[0].set(1),
        lambda k: jnp.stack([k, random.key(0, impl="rbg")]),
        lambda k: random.wrap_key_data(jnp.zeros(2, "uint32"), impl="rbg"),
    ],
)
def test_keys_are_not_mixed_with_others(bad):
    with pytest.raises(TypeError):
        bad(random.key(0))


def test_keys_have_no_more_axes_than_their_shape():
    for index in [(None, slice(None)), 0, (0,), (Ellipsis, 0)]:
        with pytest.raises(IndexError):
            random.key(0)[index]


DRAWN = [
    ((5,), "uint32", 0, [1, 2, 0, 5], [3396751987, 1329782938, 4239702414, 3512349795, 2160442090]),
    (
        (3,),
        "uint64",
        0,
        [1, 2, 0, 5],
        [5711374232885547635, 15085427505877006734, 2776764309702032106],
    ),
    ((6,), "uint16", 0, [1, 2, 0, 5], [21107, 57498, 47502, 13411, 47850, 3181]),
    ((3,), "uint32", FRY, [1, 2, 0, 5], [3245475131, 4052128534, 1659226264]),
    ((2, 3), "uint8", FRY, [1, 2, 1, 5], [[59, 152, 134], [22, 249, 180]]),
    ((2,), "uint64", FRY, [1, 2, 0, 5], [17403759535963899195, 7285525645447514264]),
    ((), "uint32", FRY, [1, 2, 0xFFFFFFFF, 4], 3245475131),
]


@pytest.mark.parametrize(("shape", "dtype", "algorithm", "after", "expected"), DRAWN)
def test_bits_are_those_of_xla(shape, dtype, algorithm, after, expected):
    draw = lambda s: lax.rng_bit_generator(s, shape, dtype, lax.RandomAlgorithm(algorithm))
    for f in (draw, fnx.jit(draw)):
        state, bits = f(STATE)
        assert (state.tolist(), bits.tolist(), bits.dtype) == (after, expected, np.dtype(dtype))


def test_the_counter_of_philox_goes_on_into_the_words_of_the_key():
    last = np.full(4, 0xFFFFFFFF, np.uint32)
    expected = [
        1083123565,
        1103641358,
        2718681030,
        1834242557,
        1923381001,
        356992825,
        2671882271,
        578394714,
    ]
    for f in (lax.rng_bit_generator, fnx.jit(lax.rng_bit_generator, static_argnums=1)):
        state, bits = f(last, (8,))
        assert (state.tolist(), bits.tolist()) == ([0xFFFFFFFF, 0xFFFFFFFF, 1, 0], expected)


def test_the_first_state_of_a_batch_draws_for_all():
    states = jnp.arange(8, dtype="uint32").reshape(2, 4)
    after, bits = fnx.vmap(lambda s: lax.rng_bit_generator(s, (2,)))(states)
    assert after.tolist() == [[0, 1, 3, 3], [4, 5, 6, 7]]
    assert bits.tolist() == [[895509795, 3230209149], [3834998268, 2007387529]]


def test_states_of_two_words_of_64_bits():
    wide = STATE.view(np.uint64)
    state, bits = lax.rng_bit_generator(wide, (5,))
    assert bits.tolist() == DRAWN[0][4]
    assert np.asarray(state).view(np.uint32).tolist() == DRAWN[0][3]


@pytest.mark.parametrize(
    "bad",
    [
        lambda: lax.rng_bit_generator(STATE[:3], (2,)),
        lambda: lax.rng_bit_generator(STATE, (2,), "int32"),
        lambda: lax.rng_bit_generator(STATE.astype(np.int32), (2,)),
    ],
)
def test_what_rng_bit_generator_refuses(bad):
    with pytest.raises(TypeError):
        bad()


GENERATORS = {
    "rbg": (
        [[3716834203, 3481239269] * 2, [1946498123, 2217676430] * 2],
        [2647473427, 4234374204] * 2,
        [89, 79, 2, 75, 71],
        [5, 4, 2, 1, 0, 3],
        [[68, 69], [72, 44]],
    ),
    "unsafe_rbg": (
        [
            [3146934739, 3391003311, 1891301882, 1478358120],
            [1089363569, 1607244725, 1190331783, 2650401737],
        ],
        [2104303640, 250182024, 1106406590, 1983638453],
        [5, 23, 0, 66, 20],
        [3, 1, 5, 4, 0, 2],
        [[29, 65], [99, 84]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("impl", GENERATORS)
def test_generators_draw_as_in_jax(impl):
    key = random.key(3, impl=impl)
    halves, folded, integers, order, mapped = GENERATORS[impl]
    assert words(key) == random.PRNGKey(3, impl=impl).tolist() == [0, 3, 0, 3]
    assert words(random.split(key)) == words(fnx.jit(random.split)(key)) == halves
    assert words(random.fold_in(key, 7)) == folded
    assert random.randint(key, (5,), 0, 100).tolist() == integers
    assert random.permutation(key, 6).tolist() == order
    draw = fnx.vmap(lambda k: random.randint(k, (2,), 0, 100))
    assert draw(random.split(key, 2)).tolist() == mapped
    np.testing.assert_allclose(
        random.uniform(key, (2,)), [0.7895294837031286, 0.3442070727330522], rtol=1e-15
    )


@pytest.mark.parametrize("impl", GENERATORS)
def test_keys_of_generators_go_everywhere(impl):
    key = random.key(3, impl=impl)
    assert random.key_impl(key) == impl
    assert (key.itemsize, key.dtype.name in repr(key)) == (16, True)
    walk = lambda k: lax.scan(lambda k, _: (random.split(k)[0], random.bits(k)), k, length=3)
    last, bits = fnx.jit(walk)(key)
    assert last.dtype is key.dtype
    assert bits.tolist() == walk(key)[1].tolist()
    again = random.wrap_key_data(random.key_data(key), impl=random.key_impl(key))
    for other in (
        again,
        pickle.loads(pickle.dumps(key)),
        copy.deepcopy(key),
        jnp.stack([key, key])[1],
    ):
        assert bool(other == key)


def test_generators_that_are_not_there():
    with pytest.raises(ValueError, match="threefry2x32, rbg, unsafe_rbg"):
        random.key(0, impl="philox")


@pytest.mark.slow
@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_samplers_that_reject_take_keys_of_every_generator(impl):
    keys = random.split(random.key(8, impl=impl), 2)
    for draw, mean, variance in (
        (lambda k: random.gamma(k, 3.0, (4000,)), 3, 3),
        (lambda k: random.poisson(k, 4.0, (4000,)), 4, 4),
        (lambda k: random.binomial(k, 10, 0.3, (4000,)), 3, 2.1),
    ):
        both = np.asarray(fnx.vmap(draw)(keys), float)
        np.testing.assert_allclose(draw(keys[0]), fnx.jit(draw)(keys[0]), rtol=1e-14)
        assert abs(np.corrcoef(both)[0, 1]) < 0.06
        np.testing.assert_allclose(both.mean(), mean, atol=5 * (variance / both.size) ** 0.5)
        np.testing.assert_allclose(both.var(), variance, rtol=0.1)


def test_keys_have_their_own_dtype_alone():
    key = random.key(0)
    for convert in (jnp.astype, lax.convert_element_type, lambda k, dtype: k.astype(dtype)):
        assert bool(convert(key, key.dtype) == key)
        assert fnx.jit(lambda k, f=convert: f(k, k.dtype))(key).dtype is key.dtype
        for other in (jnp.float32, random.key(0, impl="rbg").dtype):
            with pytest.raises(ValueError, match="cannot convert key<fry> to"):
                convert(key, other)


@pytest.mark.parametrize("impl", ["rbg", "unsafe_rbg"])
def test_the_generator_of_keys_of_which_none_is_named(impl):
    kind = fnx.jit(lambda: random.key(3))
    assert random.key_impl(kind()) == "threefry2x32"
    first = {
        "rbg": [1832780943, 270669613] * 2,
        "unsafe_rbg": [2620864722, 2991908441, 282133475, 2589630650],
    }
    many = {
        "rbg": [0.95074908, 0.20923598, 0.85283614],
        "unsafe_rbg": [0.25864742, 0.78970682, 0.83692102],
    }
    third = {"rbg": 3134548294, "unsafe_rbg": 56543296}
    with fnx.default_prng_impl(impl):
        assert fnx.config.jax_default_prng_impl == impl
        key = random.PRNGKey(42)
        assert key.tolist() == [0, 42, 0, 42]
        assert random.key_impl(key) == random.key_impl(random.key(1)) == impl
        assert random.key_impl(kind()) == impl
        keys = random.split(key)
        assert keys.dtype == np.uint32
        assert keys[0].tolist() == first[impl]
        assert random.fold_in(key, 3)[0] == third[impl]
        drawn = random.normal(key, (2,))
        np.testing.assert_allclose(drawn, [0.51466939, 0.26097828], rtol=1e-7)
        np.testing.assert_array_equal(fnx.jit(random.normal, static_argnums=1)(key, (2,)), drawn)
        each = fnx.vmap(random.uniform)(random.split(key, 3))
        np.testing.assert_allclose(each, many[impl], rtol=1e-7)
        with pytest.raises(TypeError, match="random key"):
            random.normal(jnp.zeros(3, "uint32"))
    assert random.key_impl(kind()) == "threefry2x32"
    with pytest.raises(TypeError, match="random key"):
        random.normal(key)
    with pytest.raises(ValueError, match="does not exist"), fnx.default_prng_impl("none"):
        random.key(0)


def counting(calls):
    """A generator whose keys have three words, a sum and how often it was split and folded."""
    bump = lambda words, k, by=1: words + jnp.zeros(3, "uint32").at[k].set(by)

    def split(words, shape):
        calls.append(("split", shape))
        n = int(np.prod(shape))
        new = words + jnp.arange(n, dtype="uint32")[:, None] * jnp.array([10, 0, 0], "uint32")
        return bump(new, 1).reshape(*shape, 3)

    return random_extend.define_prng_impl(
        key_shape=(3,),
        seed=lambda seed: jnp.array([1, 0, 0], "uint32") * seed.astype("uint32"),
        split=split,
        random_bits=lambda w, n, shape: jnp.full(shape, w[0] << (n - 8), f"uint{n}"),
        fold_in=lambda words, data: bump(words, 2, data),
        name="counting",
        tag="count",
    )


def test_generators_of_a_programs_own():
    calls = []
    kind = counting(calls)
    key = random.key(64, impl=kind)
    assert repr(key.dtype) == "key<count>"
    assert words(key) == [64, 0, 0]
    assert words(random.split(key, (2, 1))) == [[[64, 1, 0]], [[74, 1, 0]]]
    assert calls == [("split", (2, 1))]
    assert words(random.fold_in(key, 5)) == [64, 0, 5]
    assert random.key_impl(key) is kind
    assert random.wrap_key_data(random.key_data(key), impl=kind) == key
    draw = lambda k: random.uniform(random.fold_in(k, 1), (2,), "float32")
    for f in draw, fnx.jit(draw):
        assert f(key).tolist() == [0.25, 0.25]
    assert fnx.vmap(draw)(random.split(key)).tolist() == [[0.25] * 2, [74 / 256] * 2]
    assert fnx.jit(lambda k: jnp.stack([k, k]))(key).dtype is kind
    assert bool(
        jnp.isfinite(random.gamma(key, 2.0))
    )  # drawn by Threefry, with two words of the key's
    assert copy.deepcopy(key) == key
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(key)
    with pytest.raises(ValueError, match="one axis"):
        random_extend.define_prng_impl(
            key_shape=(2, 2), seed=None, split=None, random_bits=None, fold_in=None
        )
    bad = random_extend.define_prng_impl(
        key_shape=(1,),
        seed=lambda s: jnp.zeros(1, "uint32"),
        split=None,
        random_bits=lambda w, n, shape: jnp.zeros(3, "uint8"),
        fold_in=None,
    )
    with pytest.raises(ValueError, match=r"gave uint8\[3\]; expected uint64\[2\]"):
        random.uniform(random.key(0, impl=bad), (2,))


def test_keys_of_a_given_generator():
    for made in random_extend.random_seed(7, "rbg"), random_extend.seed_with_impl("rbg", 7):
        assert made == random.key(7, impl="rbg")
    assert random_extend.threefry_prng_impl.key_shape == (2,)


def test_functions_of_one_key_are_vectorized():
    keys = random.split(random.key(0), (2, 3))
    drawn = jnp.vectorize(lambda k, x: random.normal(k) + x)(keys, jnp.zeros(3))
    assert drawn.tolist() == fnx.vmap(fnx.vmap(random.normal))(keys).tolist()
    drawn = jnp.vectorize(lambda k: random.normal(k, (2,)), signature="()->(2)")(keys[:1])
    assert drawn.tolist() == fnx.vmap(lambda k: random.normal(k, (2,)))(keys[0])[None].tolist()
    split = jnp.vectorize(lambda k: random.split(k, 2), signature="()->(n)")(keys)
    assert words(split) == words(fnx.vmap(fnx.vmap(random.split))(keys))
