"""Special functions where SciPy has little to compare with: edges, poles, derivatives."""

import numpy as np
import pytest
import scipy.special

import fnx
import fnx.numpy as jnp


def test_gamma_functions_of_complex_numbers():
    rng = np.random.default_rng(0)
    z = 6 * (rng.normal(size=50) + 1j * rng.normal(size=50))
    z[:3] = -1.5, 2.0, 0.5j
    for name in ("gamma", "loggamma"):
        found = fnx.jit(getattr(fnx.scipy.special, name))(z)
        np.testing.assert_allclose(found, getattr(scipy.special, name)(z), rtol=1e-11)
    assert np.isnan(fnx.scipy.special.gamma(-2.0 + 0j))


def test_edges_of_entropies_and_combinations():
    entr = fnx.scipy.special.entr
    assert float(fnx.grad(entr)(0.0)) == float(fnx.jacfwd(entr)(0.0)) == np.inf
    for name, inner in (("xlogy", 3.0), ("xlog1py", 4.0)):  # the mixed slope at x = 0 is 1 / y
        fn = getattr(fnx.scipy.special, name)
        assert float(fnx.grad(fnx.grad(fn, 1))(0.0, 3.0)) == pytest.approx(1 / inner)
        assert float(fnx.grad(fn, 1)(0.0, 3.0)) == 0.0
    found = fnx.scipy.special.comb(np.array([0.0, 0, 3]), np.array([0.0, 4, 2]), repetition=True)
    np.testing.assert_allclose(found, [1, 0, 6])
    assert np.isnan(fnx.scipy.stats.beta.pdf(0.5, -1.1, -1.1))
    assert np.isnan(fnx.scipy.stats.mode(np.zeros((0, 2)))[0]).all()
    assert fnx.scipy.stats.sem(np.ones((3, 4)), axis=None, keepdims=True).shape == (1, 1)


def test_derivatives_in_parameters_against_mpmath():
    special = fnx.scipy.special
    cases = [  # by mpmath's diff, 30 digits
        (special.zeta, 0, (2.5, 1.5), -0.4648123481394763),
        (special.betainc, 0, (2.5, 1.5, 0.3), -0.0948427191535116),
        (special.betainc, 1, (2.5, 1.5, 0.3), 0.08702731862242216),
        (special.hyp1f1, 0, (1.5, 2.5, -0.7), -0.18998491500372303),
        (special.hyp1f1, 1, (1.5, 2.5, -0.7), 0.11068885927756654),
        (special.hyp2f1, 0, (0.5, 1.5, 2.5, 0.4), 0.33855280757131323),
        (special.hyp2f1, 1, (0.5, 1.5, 2.5, 0.4), 0.12101735007553213),
        (special.hyp2f1, 2, (0.5, 1.5, 2.5, 0.4), -0.07488526264536814),
    ]
    for fn, k, at, expected in cases:
        for found in (fnx.grad(fn, k)(*at), fnx.jit(fnx.grad(fn, k))(*at)):
            np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_what_has_no_derivative_says_so():
    with pytest.raises(NotImplementedError, match="derivative"):
        fnx.grad(fnx.grad(fnx.scipy.special.betainc))(2.0, 3.0, 0.4)


@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_compiled_polygamma_of_a_known_order(order):
    positive = np.r_[np.logspace(-8, 9, 100), 0.0, np.inf, np.nan]
    for x in (positive, positive.astype(np.float32), -np.linspace(0.1, 20.05, 50)):
        fn = lambda x: fnx.scipy.special.polygamma(order, x)
        report = fnx.jit(fn).lower(x).compile().report()
        assert "host call" not in report
        found, expected = np.asarray(fnx.jit(fn)(x)), np.asarray(fn(x))
        assert found.dtype == expected.dtype
        eps = np.finfo(found.dtype).eps
        np.testing.assert_allclose(found, expected, rtol=8 * eps)
    slope = fnx.jit(fnx.grad(lambda x: fnx.scipy.special.digamma(x).sum()))
    np.testing.assert_allclose(slope(jnp.array([0.5])), [np.pi**2 / 2], rtol=1e-15)


def test_logarithms_of_beta_far_out():
    x = np.geomspace(1, 1e30, 200)
    betaln = fnx.scipy.special.betaln
    np.testing.assert_allclose(fnx.jit(betaln)(x, 1.0), -np.log(x), rtol=1e-13, atol=1e-13)
    a, b = np.array([0.3, 2.5, 12.0, 1e5, 3.0]), np.array([20.0, 11.0, 12.5, 2e5, 0.7])
    np.testing.assert_allclose(betaln(a, b), scipy.special.betaln(a, b), rtol=1e-13)
    slope = fnx.vmap(fnx.grad(betaln))(a, b)
    digamma = scipy.special.digamma
    np.testing.assert_allclose(slope, digamma(a) - digamma(a + b), rtol=1e-12)


def test_spherical_harmonics_of_negative_polar_angles():
    n, m = np.array([1, 1, 2, 3]), np.array([-1, 1, 0, -3])
    theta, phi = np.array([-2.0, -0.5, -1.0, -3.0]), np.array([-4.0, 0.3, 5.0, 1.0])
    expected = scipy.special.sph_harm_y(n, m, theta, phi)
    found = fnx.scipy.special.sph_harm_y(n, m, theta, phi, n_max=3)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_functions_at_their_poles(dtype):
    x = np.array([0.0, -0.0, -1.0, -np.inf, np.inf], dtype)
    table = {"digamma": [-np.inf, np.inf, np.nan, np.nan, np.inf], "gammaln": [np.inf] * 5}
    for name, want in table.items():
        f = getattr(fnx.scipy.special, name)
        for found in (f(jnp.asarray(x)), fnx.jit(f)(x)):
            np.testing.assert_array_equal(found, want)
