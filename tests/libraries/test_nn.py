"""fnx.nn: activations, softmax, attention and initializers, against formulas in NumPy."""

import math

import ml_dtypes
import numpy as np
import pytest
import scipy.special

import fnx
import fnx.numpy as jnp
from fnx import nn
from fnx.test_util import check_grads

X = np.array([[-3.2, -0.7, -0.2], [0.3, 1.1, 7.0]])
SIGMOID = 1 / (1 + np.exp(-X))
FORMULAS = {
    "relu": np.maximum(X, 0),
    "relu6": np.clip(X, 0, 6),
    "sigmoid": SIGMOID,
    "softplus": np.log1p(np.exp(X)),
    "silu": X * SIGMOID,
    "swish": X * SIGMOID,
    "log_sigmoid": np.log(SIGMOID),
    "soft_sign": X / (1 + abs(X)),
    "elu": np.where(X > 0, X, np.expm1(X)),
    "celu": np.where(X > 0, X, np.expm1(X)),
    "selu": 1.0507009873554805 * np.where(X > 0, X, 1.6732632423543772 * np.expm1(X)),
    "leaky_relu": np.where(X > 0, X, 0.01 * X),
    "hard_tanh": np.clip(X, -1, 1),
    "hard_sigmoid": np.clip(X + 3, 0, 6) / 6,
    "hard_silu": X * np.clip(X + 3, 0, 6) / 6,
    "gelu": X * (1 + np.tanh(math.sqrt(2 / math.pi) * (X + 0.044715 * X**3))) / 2,
    "mish": X * np.tanh(np.log1p(np.exp(X))),
    "squareplus": (X + np.sqrt(X**2 + 4)) / 2,
    "sparse_plus": np.where(X <= -1, 0, np.where(X >= 1, X, (X + 1) ** 2 / 4)),
    "tanh": np.tanh(X),
    "identity": X,
}


@pytest.mark.parametrize("name", FORMULAS)
def test_activations(name):
    fn = getattr(nn, name)
    np.testing.assert_allclose(fn(X), FORMULAS[name], rtol=1e-13)
    np.testing.assert_allclose(fnx.jit(fn)(X), FORMULAS[name], rtol=1e-12)
    assert fn(X.astype("f4")).dtype == np.float32
    check_grads(fn, (X,), order=1)


@pytest.mark.parametrize("name", ["relu", "relu6", "hard_tanh", "leaky_relu", "elu", "log_sigmoid"])
def test_derivatives_at_the_kink_and_far_out_are_finite(name):
    for x in (0.0, 1e4, -1e4):
        assert np.isfinite(fnx.grad(getattr(nn, name))(x))
    assert fnx.grad(nn.relu)(0.0) == 0


def test_gelu_without_approximation():
    np.testing.assert_allclose(nn.gelu(X, approximate=False), X * scipy.special.ndtr(X), rtol=1e-12)


def test_glu_halves():
    np.testing.assert_allclose(nn.glu(X, axis=0), X[:1] * SIGMOID[1:], rtol=1e-13)
    with pytest.raises(ValueError, match="even"):
        nn.glu(X)


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_softmax(axis):
    np.testing.assert_allclose(nn.softmax(X, axis), scipy.special.softmax(X, axis), rtol=1e-13)
    np.testing.assert_allclose(
        nn.log_softmax(X, axis), scipy.special.log_softmax(X, axis), rtol=1e-13
    )
    np.testing.assert_allclose(nn.logsumexp(X, axis), scipy.special.logsumexp(X, axis), rtol=1e-13)
    check_grads(lambda x: nn.softmax(x, axis), (X,), order=2)
    check_grads(lambda x: nn.logsumexp(x, axis), (X,), order=2)


def test_softmax_of_what_is_left():
    mask = np.array([[True, True, False], [False, True, True]])
    found = nn.softmax(X, where=mask)
    assert (np.asarray(found)[~mask] == 0).all()
    np.testing.assert_allclose(found.sum(1), 1.0)


def test_logsumexp_of_infinities():
    assert nn.logsumexp(np.array([-np.inf, -np.inf])) == -np.inf
    assert nn.logsumexp(np.array([np.inf, 1.0])) == np.inf
    value, sign = nn.logsumexp(np.array([1.0, 2.0]), b=np.array([1.0, -1.0]), return_sign=True)
    np.testing.assert_allclose([value, sign], [np.log(np.e**2 - np.e), -1])


def test_one_hot():
    found = nn.one_hot(np.array([0, 2, 5]), 3)
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 1], [0, 0, 0]])
    assert nn.one_hot(np.array([0, 2]), 3, axis=0, dtype=np.int8).shape == (3, 2)


def test_standardize():
    found = np.asarray(nn.standardize(X, axis=1))
    np.testing.assert_allclose(found.mean(1), 0, atol=1e-15)
    variance = np.asarray(X).var(1)
    np.testing.assert_allclose(found.var(1), variance / (variance + 1e-5), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
def test_attention_to_nothing_is_the_mean(dtype):
    q, v = np.ones((1, 2, 1, 3), dtype), np.arange(8.0).reshape(1, 4, 1, 2).astype(dtype)
    k = np.ones((1, 4, 1, 3), dtype)
    mask = np.array([[False] * 4, [True] * 2 + [False] * 2])
    for call in (nn.dot_product_attention, fnx.jit(nn.dot_product_attention)):
        out = call(q, k, v, mask=mask[None, None])
        np.testing.assert_allclose(out[0, :, 0], [[3.0, 4.0], [1.0, 2.0]], rtol=1e-3)


def test_attention_is_the_formula():
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.normal(size=(2, 5, 4, 3)),
        rng.normal(size=(2, 6, 2, 3)),
        rng.normal(size=(2, 6, 2, 3)),
    )
    wide_k, wide_v = (np.repeat(x, 2, axis=2) for x in (k, v))
    logits = np.einsum("btnh,bsnh->bnts", q, wide_k) / math.sqrt(3)
    expected = np.einsum("bnts,bsnh->btnh", scipy.special.softmax(logits, -1), wide_v)
    np.testing.assert_allclose(nn.dot_product_attention(q, k, v), expected, rtol=1e-12)
    np.testing.assert_allclose(nn.dot_product_attention(q[0], k[0], v[0]), expected[0], rtol=1e-12)
    causal = np.where(np.tril(np.ones((5, 6), bool)), logits, -np.inf)
    expected = np.einsum("bnts,bsnh->btnh", scipy.special.softmax(causal, -1), wide_v)
    np.testing.assert_allclose(
        nn.dot_product_attention(q, k, v, is_causal=True), expected, rtol=1e-12
    )


@pytest.mark.parametrize(
    ("name", "variance"),
    [
        ("lecun_normal", 1 / 300),
        ("lecun_uniform", 1 / 300),
        ("he_normal", 2 / 300),
        ("he_uniform", 2 / 300),
        ("glorot_normal", 2 / 500),
        ("glorot_uniform", 2 / 500),
        ("normal", 1e-4),
        ("truncated_normal", 7.74e-5),
        ("uniform", 1e-4 / 12),
    ],
)
def test_initializers_have_their_variance(name, variance):
    w = getattr(nn.initializers, name)()(fnx.random.key(0), (300, 200))
    assert w.shape == (300, 200)
    assert w.dtype == np.float64
    np.testing.assert_allclose(float(w.var()), variance, rtol=0.03)


@pytest.mark.parametrize("distribution", ["normal", "uniform", "truncated_normal"])
def test_complex_initial_values(distribution):
    init = nn.initializers.variance_scaling(1.0, "fan_in", distribution, dtype=complex)
    w = np.asarray(init(fnx.random.key(0), (300, 200)))
    assert w.dtype == np.complex128
    np.testing.assert_allclose((abs(w) ** 2).mean(), 1 / 300, rtol=0.03)
    assert abs(w.mean()) < 1e-3


def test_initial_values_keep_their_dtype():
    scale = jnp.array(1.0, jnp.float32)
    for make in (nn.initializers.uniform, nn.initializers.normal, nn.initializers.truncated_normal):
        assert make(scale, jnp.bfloat16)(fnx.random.key(0), (4, 4)).dtype == jnp.bfloat16
    init = nn.initializers.variance_scaling(1, "fan_in", "normal", in_axis=(), out_axis=())
    assert init(fnx.random.key(0), (2,)).shape == (2,)


def test_gelu_far_below_zero():
    found = float(nn.gelu(np.float32(-12.0), approximate=False))
    np.testing.assert_allclose(found, -12.0 * 1.7764821120776762e-33, rtol=1e-5)


def test_one_hot_of_a_list_and_stable_standardization():
    assert nn.one_hot([0, 2], 3).tolist() == [[1, 0, 0], [0, 0, 1]]
    x = np.array([1e6, 1e6 + 1, 1e6 + 2], np.float32)
    expected = np.array([-1, 0, 1]) / np.sqrt(2 / 3 + 1e-5)
    np.testing.assert_allclose(nn.standardize(x, algorithm="stable"), expected, rtol=1e-6)
    out, rest = nn.dot_product_attention(
        *[jnp.ones((1, 3, 1, 2), jnp.bfloat16)] * 3, return_residual=True
    )
    assert out.dtype == rest.dtype == jnp.bfloat16


def narrowed(x, mode):
    """By the formats' definitions: a scale for each block along the last axis, and narrow elements."""
    size, dtype = (
        (32, ml_dtypes.float8_e4m3fn) if mode == "mxfp8" else (16, ml_dtypes.float4_e2m1fn)
    )
    most = float(ml_dtypes.finfo(dtype).max)
    blocks = x.reshape(*x.shape[:-1], -1, size)
    scales = abs(blocks).max(-1, keepdims=True) / np.float32(most)
    if mode == "mxfp8":
        scales = 2.0 ** np.ceil(np.log2(scales))
    else:
        scales = scales.astype(ml_dtypes.float8_e4m3fn).astype(float)
    return ((blocks / scales).clip(-most, most).astype(dtype).astype(float) * scales).reshape(
        x.shape
    )


@pytest.mark.parametrize("mode", ["mxfp8", "nvfp4"])
def test_block_scaled_products(mode):
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 64)).astype("f4"), rng.normal(size=(64, 5, 2)).astype("f4")
    f = lambda a, b: nn.scaled_dot_general(a, b, (((2,), (0,)), ((0,), (2,))), configs=configs)
    configs = [nn.get_scaled_dot_general_config(mode)] * 3
    wide, narrow = narrowed(a, mode), narrowed(b.T, mode)
    out, pull = fnx.vjp(f, a, b)
    np.testing.assert_allclose(out, np.einsum("bmk,bnk->bmn", wide, narrow), rtol=1e-5, atol=1e-5)
    assert out.dtype == np.float32
    ct = rng.normal(size=out.shape).astype("f4")
    np.testing.assert_allclose(
        pull(ct)[0], np.einsum("bmn,bnk->bmk", ct, narrow), rtol=1e-4, atol=1e-5
    )
    with pytest.raises(ValueError, match="multiple of"):
        f(a[..., :20], b[:20])


def test_products_of_matrices_with_scales():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 3, 8)), rng.normal(size=(2, 5, 8))
    scales = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5, 4))
    x, y = a * scales[0].repeat(2, -1), b * scales[1].repeat(2, -1)
    expected = np.einsum("bmk,bnk->bmn", x, y)
    np.testing.assert_allclose(nn.scaled_matmul(a, b, *scales), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(nn.scaled_matmul(a, b, *scales, float), expected, rtol=1e-12)
    with pytest.raises(ValueError, match="multiple of k"):
        nn.scaled_matmul(a, b, scales[0][..., :3], scales[1][..., :3])


def test_orthogonal_initializers():
    for shape in ((5, 3), (3, 5), (2, 2, 3)):
        w = np.asarray(nn.initializers.orthogonal()(fnx.random.key(1), shape)).reshape(
            -1, shape[-1]
        )
        gram = w.T @ w if w.shape[0] >= w.shape[1] else w @ w.T
        np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-12)
    w = np.asarray(nn.initializers.delta_orthogonal()(fnx.random.key(1), (3, 3, 2, 4)))
    np.testing.assert_allclose(w[1, 1] @ w[1, 1].T, np.eye(2), atol=1e-12)
    assert (w[0] == 0).all()


def test_orthogonal_initial_values_of_no_elements():
    for shape in ((3, 0), (0, 2), (2, 0, 3)):
        assert nn.initializers.orthogonal()(fnx.random.key(0), shape).shape == shape


def test_constant_initializers():
    key = fnx.random.key(0)
    assert (np.asarray(nn.initializers.zeros(key, (2, 3))) == 0).all()
    assert nn.initializers.ones(key, (2,), jnp.float32).dtype == np.float32
    assert (np.asarray(nn.initializers.constant(2.5)(key, (2,))) == 2.5).all()
    with pytest.raises(ValueError, match="mode"):
        nn.initializers.variance_scaling(1.0, "fan", "normal")(key, (2, 2))
