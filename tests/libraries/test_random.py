"""Random numbers: the values that JAX gives for a key, distributions, keys under transformations."""

import numpy as np
import pytest
import scipy.stats
from numpy.testing import assert_allclose, assert_array_equal

import fnx
import fnx.numpy as jnp
from fnx import random

KEY = random.PRNGKey(42)


# --- values recorded from JAX 0.10 with 64-bit types, seed 42 ----------------------------------


def test_keys_are_those_of_jax():
    assert_array_equal(random.split(KEY), [[1832780943, 270669613], [64467757, 2916123636]])
    assert_array_equal(random.split(KEY, (2, 2))[1, 1], [3134548294, 894150801])
    assert_array_equal(random.fold_in(KEY, 7), [2547012911, 1371500959])
    assert_array_equal(random.PRNGKey(-1), [0xFFFFFFFF] * 2)
    assert_array_equal(random.PRNGKey(2**40 + 5), [256, 5])
    assert_array_equal(random.PRNGKey(np.int32(-5)), [0, 2**32 - 5])


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("bits", ((3,), "uint8"), [162, 217, 249]),
        ("bits", ((3,), "uint32"), [2098992034, 2919706841, 2646866425]),
        ("bits", ((2,), "uint64"), [7871734211187709741, 276886910877598708]),
        ("randint", ((5,), 0, 100), [85, 18, 3, 71, 5]),
        ("randint", ((4,), -3, 3, "int8"), [-3, -3, 0, -2]),
        ("randint", ((3,), 0, 256, "uint8"), [196, 18, 183]),
        ("permutation", (8,), [7, 4, 2, 5, 3, 6, 0, 1]),
        ("bernoulli", (0.3, (8,)), [0, 1, 0, 0, 0, 0, 0, 0]),
        ("categorical", (np.arange(4.0), -1, (6,)), [3, 3, 3, 2, 3, 3]),
        ("choice", (10, (4,), False), [7, 4, 2, 5]),
        ("poisson", (3.0, (6,)), [6, 2, 2, 1, 5, 2]),
        ("binomial", (20.0, 0.3, (4,)), [3, 5, 7, 6]),
        ("rademacher", ((6,),), [1, 1, -1, -1, -1, -1]),
        ("uniform", ((2,),), [0x1B4F8123C40884 * 2.0**-54, 0x1EBD996D6E84 * 2.0**-51]),
        ("uniform", ((2,), "float32"), [0x1F47048 * 2.0**-26, 0x15C0E6 * 2.0**-21]),
        ("uniform", ((2,), float, -2.5, 7.3), [1.6819301531691093, -2.3529013187499173]),
        ("uniform", ((2,), "float32", -2.5, 7.3), [2.289353847503662, 4.162012577056885]),
        ("uniform", ((2,), "float16", -2.5, 7.3), [-1.75390625, -0.63427734375]),
        ("uniform", ((2,), "bfloat16", -2.5, 7.3), [3.71875, 5.75]),
    ],
)  # fmt: skip
def test_numbers_are_those_of_jax(name, args, expected):
    assert_array_equal(getattr(random, name)(KEY, *args), expected)


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("normal", ((3,),), [-0.18471174528191162, -2.169824560397754, 0.18693555179382582]),
        ("gamma", (2.5, (3,)), [2.8769331987267917, 1.8851142907505218, 5.75709708230657]),
        ("exponential", ((2,),), [0.5563942243855916, 0.015123860720489336]),
        ("truncated_normal", (-1.0, 2.0, (2,)), [0.01998452592513169, -0.9504476695340623]),
        ("gumbel", ((2,),), [0.16062720630382138, -1.4348544993307841]),
        ("beta", (2.0, 0.5, (2,)), [0.7993467003516027, 0.929322012829492]),
        (
            "dirichlet",
            (np.array([1.0, 2.0, 3.0]),),
            [0.12087604773245773, 0.15736891871086628, 0.721755033556676],
        ),
        (
            "multivariate_normal",
            (np.zeros(2), np.array([[2.0, 1.0], [1.0, 2.0]])),
            [-0.261221855307284, -2.7880924298203005],
        ),
        ("t", (3.0, (2,)), [-0.6930095592523876, -0.5820081154139338]),
        ("laplace", ((2,),), [0.15846230602649014, 3.5058868215207473]),
        ("cauchy", ((2,),), [-0.23434604341667786, -21.19070234669309]),
        ("logistic", ((2,),), [-0.29521526220084393, -4.183910141360207]),
    ],
)
def test_floats_are_those_of_jax_up_to_rounding(name, args, expected):
    assert_allclose(getattr(random, name)(KEY, *args), expected, rtol=1e-13)


# --- distributions -----------------------------------------------------------------------------

N = 20_000
CASES = [
    ("uniform", (N,), {"minval": -1.0, "maxval": 3.0}, scipy.stats.uniform(-1, 4)),
    ("normal", (N,), {}, scipy.stats.norm()),
    ("exponential", (N,), {}, scipy.stats.expon()),
    ("laplace", (N,), {}, scipy.stats.laplace()),
    ("logistic", (N,), {}, scipy.stats.logistic()),
    ("gumbel", (N,), {}, scipy.stats.gumbel_r()),
    ("gumbel", (N,), {"mode": "high"}, scipy.stats.gumbel_r()),
    ("cauchy", (N,), {}, scipy.stats.cauchy()),
    ("maxwell", (N,), {}, scipy.stats.maxwell()),
    ("truncated_normal", (-0.5, 2.0, (N,)), {}, scipy.stats.truncnorm(-0.5, 2)),
    ("pareto", (2.5, (N,)), {}, scipy.stats.pareto(2.5)),
    ("rayleigh", (1.5, (N,)), {}, scipy.stats.rayleigh(scale=1.5)),
    ("weibull_min", (2.0, 1.5, (N,)), {}, scipy.stats.weibull_min(1.5, scale=2)),
    ("wald", (2.0, (N,)), {}, scipy.stats.invgauss(2)),
    ("triangular", (0.0, 1.0, 3.0, (N,)), {}, scipy.stats.triang(1 / 3, 0, 3)),
    ("lognormal", (0.5, (N,)), {}, scipy.stats.lognorm(0.5)),
    ("gamma", (0.3, (N,)), {}, scipy.stats.gamma(0.3)),
    ("gamma", (7.0, (N,)), {}, scipy.stats.gamma(7)),
    ("loggamma", (0.5, (N,)), {}, scipy.stats.loggamma(0.5)),
    ("beta", (2.0, 0.5, (N,)), {}, scipy.stats.beta(2, 0.5)),
    ("chisquare", (3.0, (N,)), {}, scipy.stats.chi2(3)),
    ("f", (3.0, 5.0, (N,)), {}, scipy.stats.f(3, 5)),
    ("t", (3.0, (N,)), {}, scipy.stats.t(3)),
    ("generalized_normal", (1.5, (N,)), {}, scipy.stats.gennorm(1.5)),
]


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "law"), CASES, ids=lambda c: c if isinstance(c, str) else ""
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_continuous_distributions(name, args, kwargs, law, dtype):
    args = (args,) if not isinstance(args[0], float) else args
    x = getattr(random, name)(random.key(1), *args, dtype=dtype, **kwargs)
    assert x.dtype == dtype
    assert scipy.stats.kstest(np.asarray(x, np.float64), law.cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("name", "args", "law"),
    [
        ("poisson", (3.0, (N,)), scipy.stats.poisson(3)),
        ("poisson", (40.0, (N,)), scipy.stats.poisson(40)),
        ("binomial", (15.0, 0.2, (N,)), scipy.stats.binom(15, 0.2)),
        ("binomial", (200.0, 0.7, (N,)), scipy.stats.binom(200, 0.7)),
        ("geometric", (0.3, (N,)), scipy.stats.geom(0.3)),
        ("randint", ((N,), 3, 9), scipy.stats.randint(3, 9)),
    ],
)
def test_discrete_distributions(name, args, law):
    x = np.asarray(getattr(random, name)(random.key(2), *args)).astype(int)
    values, counts = np.unique(x, return_counts=True)
    expected = N * law.pmf(values)
    common = expected > 10
    statistic = float(np.sum((counts - expected)[common] ** 2 / expected[common]))
    assert scipy.stats.chi2(common.sum() - 1).sf(statistic) > 1e-3


def test_choices_follow_their_probabilities():
    p = np.array([0.1, 0.2, 0.0, 0.7])
    drawn = np.asarray(random.choice(random.key(0), 4, (N,), p=p))
    assert_allclose(np.bincount(drawn, minlength=4) / N, p, atol=0.02)
    drawn = np.asarray(random.categorical(random.key(0), jnp.log(p), shape=(N,)))
    assert_allclose(np.bincount(drawn, minlength=4) / N, p, atol=0.02)
    few = np.asarray(random.choice(random.key(0), 4, (3,), replace=False, p=p))
    assert sorted(few.tolist()) == [0, 1, 3]


def test_choice_of_slices_and_permutations_along_axes():
    x = np.arange(12.0).reshape(3, 4)
    picked = np.asarray(random.choice(random.key(3), x, (5,), axis=1))
    assert picked.shape == (3, 5)
    assert all(any((c == y).all() for y in x.T) for c in picked.T)
    shuffled = np.asarray(random.permutation(random.key(3), x, axis=1))
    assert_array_equal(np.sort(shuffled, 1), x)
    assert_array_equal(np.argsort(shuffled[0]), np.argsort(shuffled[1]))
    mixed = np.asarray(random.permutation(random.key(3), x, axis=1, independent=True))
    assert_array_equal(np.sort(mixed, 1), x)


def test_vectors_and_matrices():
    cov = np.array([[2.0, 0.5], [0.5, 1.0]])
    for method in ("cholesky", "eigh", "svd"):
        x = np.asarray(
            random.multivariate_normal(random.key(0), np.ones(2), cov, (N,), method=method)
        )
        assert_allclose(np.cov(x.T), cov, atol=0.06)
        assert_allclose(x.mean(0), 1, atol=0.05)
    q = np.asarray(random.orthogonal(random.key(0), 4, (3,)))
    assert_allclose(q @ q.swapaxes(-1, -2), np.broadcast_to(np.eye(4), (3, 4, 4)), atol=1e-12)
    ball = np.asarray(random.ball(random.key(0), 3, shape=(N,)))
    assert scipy.stats.kstest(np.linalg.norm(ball, axis=-1) ** 3, "uniform").pvalue > 1e-3
    counts = np.asarray(random.multinomial(random.key(0), 100.0, np.array([0.2, 0.3, 0.5])))
    assert counts.sum() == 100
    signs = np.asarray(random.double_sided_maxwell(random.key(0), 0.0, 1.0, (N,)))
    assert abs((signs > 0).mean() - 0.5) < 0.02


def test_complex_normals_share_their_variance():
    z = np.asarray(random.normal(random.key(0), (N,), "complex128"))
    assert_allclose([z.real.var(), z.imag.var()], 0.5, atol=0.02)


def test_integers_of_a_span_that_does_not_fit():
    x = np.asarray(random.randint(KEY, (N,), 0, 256, "uint8"))
    assert len(np.unique(x)) == 256
    x = np.asarray(random.randint(KEY, (100,), np.iinfo(np.int64).min, np.iinfo(np.int64).max))
    assert (x < 0).any() and (x > 0).any()  # noqa: PT018
    assert_array_equal(random.randint(KEY, (3,), 5, 5), [5, 5, 5])


# --- keys and transformations ------------------------------------------------------------------


def test_both_forms_of_keys_give_the_same_numbers():
    new = random.key(42)
    assert_array_equal(random.key_data(new), KEY)
    assert_array_equal(random.normal(new, (3,)), random.normal(KEY, (3,)))
    assert_array_equal(random.normal(random.wrap_key_data(KEY), (3,)), random.normal(KEY, (3,)))
    assert_array_equal(random.key_data(random.split(new)), random.split(KEY))


def test_arrays_of_keys():
    keys = random.split(random.key(0), 6)
    assert (keys.shape, keys.ndim, keys.size, len(keys)) == ((6,), 1, 6, 6)
    assert keys[1:3].shape == (2,)
    assert keys.reshape(2, -1).shape == (2, 3)
    assert keys.reshape(2, 3)[..., 0].shape == (2,)
    assert all(k.shape == () for k in keys)
    assert np.asarray(keys == keys).all()
    assert not np.asarray(keys[:3] == keys[3:]).any()
    assert "key<fry>" in repr(keys)
    with pytest.raises(TypeError):
        hash(keys)
    with pytest.raises(IndexError):
        keys[0, 0]


def test_vmap_over_keys_is_a_loop():
    keys = random.split(random.key(0), 4)
    found = fnx.vmap(lambda k: random.normal(k, (3,)))(keys)
    assert_array_equal(found, [random.normal(k, (3,)) for k in keys])
    gammas = fnx.vmap(random.gamma)(keys, jnp.arange(1.0, 5.0))
    assert_array_equal(
        gammas, [random.gamma(k, a) for k, a in zip(keys, np.arange(1.0, 5.0), strict=True)]
    )
    folded = fnx.vmap(random.fold_in, in_axes=(None, 0))(KEY, jnp.arange(3))
    assert_array_equal(folded, [random.fold_in(KEY, i) for i in range(3)])
    assert fnx.vmap(random.key)(jnp.arange(3)).shape == (3,)


def test_compiled_code_gives_the_same_numbers():
    def numbers(key):
        first, second = random.split(key)
        return (
            random.bits(first, (5,)),
            random.normal(second, (5,)),
            random.permutation(key, 7),
            random.poisson(random.fold_in(key, 3), 4.0, (5,)),
        )

    for a, b in zip(fnx.jit(numbers)(random.key(5)), numbers(random.key(5)), strict=True):
        assert_allclose(a, b, rtol=1e-13)


def test_keys_are_carried_through_scan():
    def step(key, _):
        key, draw = random.split(key)
        return key, random.uniform(draw)

    key = random.key(0)
    last, xs = fnx.lax.scan(step, key, None, length=3)
    for x in xs:
        key, expected = step(key, None)
        assert x == expected
    assert_array_equal(random.key_data(last), random.key_data(key))


def test_samples_are_differentiable_in_their_parameters():
    assert_allclose(
        fnx.grad(lambda s: (s * random.normal(KEY, (5,))).sum())(1.0),
        random.normal(KEY, (5,)).sum(),
    )
    # Implicit reparameterization: along with the quantile, checked at a fixed quantile.
    a, h = 2.5, 1e-5
    x = float(random.gamma(KEY, a))
    q = scipy.stats.gamma(a).cdf(x)
    slope = (scipy.stats.gamma(a + h).ppf(q) - scipy.stats.gamma(a - h).ppf(q)) / (2 * h)
    assert_allclose(fnx.grad(lambda a: random.gamma(KEY, a))(a), slope, rtol=1e-5)
    assert_allclose(fnx.grad(lambda a: random.loggamma(KEY, a))(a), slope / x, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: random.normal(3), TypeError),
        (lambda: random.normal(random.split(KEY)), ValueError),
        (lambda: random.uniform(KEY, dtype="int32"), ValueError),
        (lambda: random.randint(KEY, (2,), 0, 3, "float32"), ValueError),
        (lambda: random.PRNGKey(1.5), TypeError),
        (lambda: random.PRNGKey(2**64), OverflowError),
        (lambda: random.PRNGKey(0, impl="philox"), ValueError),
        (lambda: random.key([1, 2]), TypeError),
        (lambda: random.normal(KEY, (2, -1)), ValueError),
        (lambda: random.choice(KEY, 3, (5,), replace=False), ValueError),
        (lambda: random.choice(KEY, 3, (5,), p=np.ones(2)), ValueError),
        (lambda: random.gamma(KEY, np.ones(3), (2,)), ValueError),
        (lambda: random.bernoulli(KEY, 1), TypeError),
        (lambda: random.categorical(KEY, np.ones((2, 3)), shape=(3,)), ValueError),
        (lambda: random.permutation(KEY, 1.5), TypeError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_parameters_that_are_traced():
    key = random.key(0)
    for name in ("ball", "generalized_normal"):
        args = (3,) if name == "ball" else ()
        sampler = getattr(random, name)
        draw = lambda p, f=sampler, args=args: f(key, *args, p, (4,))
        np.testing.assert_allclose(fnx.jit(draw)(2.5), draw(2.5), rtol=1e-12)


def test_permutations_along_an_axis_that_is_not_there():
    with pytest.raises(ValueError, match="axis"):
        random.permutation(random.key(0), 10, axis=3)


# --- samplers in native code -------------------------------------------------------------------

_SAMPLERS = {
    "gamma": lambda key, n: random.gamma(key, jnp.linspace(0.05, 30.0, n)),
    "loggamma": lambda key, n: random.loggamma(key, jnp.linspace(0.05, 30.0, n)),
    "gamma of float32": lambda key, n: random.gamma(key, jnp.linspace(0.05, 30.0, n, dtype="f4")),
    "poisson": lambda key, n: random.poisson(key, jnp.linspace(0.0, 60.0, n)),
    "large poisson": lambda key, n: random.poisson(key, jnp.full((n // 4, 4), 1e6)),
    "binomial": lambda key, n: random.binomial(key, 100.0, jnp.linspace(0.0, 1.0, n)),
    "dirichlet": lambda key, n: random.dirichlet(key, jnp.linspace(0.5, 2.0, n)),
}


@pytest.mark.parametrize("name", list(_SAMPLERS))
def test_compiled_samplers_draw_the_same_numbers(name):
    draw = _SAMPLERS[name]
    rtol = 1e-5 if "float32" in name else 1e-12
    one = fnx.jit(lambda key: draw(key, 400))
    assert "host call" not in one.lower(KEY).compile().report()
    assert_allclose(one(KEY), draw(KEY, 400), rtol=rtol)
    keys = random.split(KEY, 3)
    many = fnx.jit(fnx.vmap(lambda key: draw(key, 40)))(keys)
    assert_allclose(many, np.stack([draw(key, 40) for key in keys]), rtol=rtol)


@pytest.mark.slow
def test_compiled_samplers_of_odd_parameters():
    odd = jnp.array([np.nan, np.inf, 0.0, -1.0, 1e-300, 1e8])
    for draw in (random.gamma, random.loggamma):
        assert_allclose(fnx.jit(draw)(KEY, odd), draw(KEY, odd))
    rates = odd[jnp.array([0, 2, 3, 4, 5])]
    assert_array_equal(fnx.jit(random.poisson)(KEY, rates), random.poisson(KEY, rates))
    for n, p in ((odd, 0.3), (20.0, odd)):
        found, expected = fnx.jit(random.binomial)(KEY, n, p), random.binomial(KEY, n, p)
        assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64", "uint8", "uint32"])
def test_poisson_numbers_beyond_their_dtype_are_the_nearest_it_holds(dtype):
    rates = jnp.array([1e30, 1e19, -1.0, jnp.nan, jnp.inf, 0.0])
    most = np.iinfo(dtype).max
    expected = np.array([most, most, -1, -1, 0, 0]).astype(dtype)  # as JAX has it
    draw = lambda rates: random.poisson(KEY, rates, (6,), dtype)
    assert_array_equal(draw(rates), expected)
    assert_array_equal(fnx.jit(draw)(rates), expected)


def test_permutations_of_an_empty_range():
    assert random.permutation(KEY, -5).shape == random.permutation(KEY, 0).shape == (0,)


@pytest.mark.parametrize("wrap", [lambda f: f, fnx.jit], ids=["eager", "jit"])
def test_counts_do_not_move_with_their_parameters(wrap):
    def drawn(x):
        counts = random.poisson(KEY, 40 * x) + random.binomial(KEY, 20.0, x)
        return (counts + random.multinomial(KEY, 9.0, x)) @ x

    x = jnp.array([0.3, 0.7])
    expected = random.poisson(KEY, 40 * x) + random.binomial(KEY, 20.0, x)
    expected = expected + random.multinomial(KEY, 9.0, x)
    assert_array_equal(wrap(fnx.grad(drawn))(x), expected)


def test_student_numbers_have_the_shape_of_their_parameter():
    assert random.t(KEY, jnp.ones(3)).shape == (3,)


def test_counts_of_many_keys_are_those_that_each_key_draws():
    keys, rates = random.split(KEY, 4), jnp.linspace(0.0, 40.0, 24).reshape(4, 2, 3)
    for draw in (
        random.poisson,
        lambda key, rate: random.binomial(key, 200.0, rate / 41),
    ):
        each = np.stack([draw(key, rate) for key, rate in zip(keys, rates, strict=True)])
        assert_array_equal(fnx.vmap(draw)(keys, rates), each)
