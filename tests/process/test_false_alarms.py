"""debug_nans and debug_infs alarm where what a public function returns is wrong, and nowhere else."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.errors import FnxError
from fnx.scipy import special, stats
from tests.support.ordinary_calls import ROOMS, calls, functions, has

pytestmark = pytest.mark.filterwarnings("ignore")  # of calls that make little sense
LOOKED_FOR = [(fnx.debug_nans, np.isnan), (fnx.debug_infs, np.isinf)]


def alarms(setting, call):
    with setting():
        try:
            call()
        except FloatingPointError:
            return True
    return False


def result(call):
    """What a call returns; None if it refuses its arguments."""
    try:
        return call()
    except (
        FnxError, TypeError, ValueError, LookupError, ArithmeticError, AttributeError,
        NotImplementedError, AssertionError,
    ):  # fmt: skip
        return None


def wrong_alarms(room, few, transform, most=None):
    """The calls in whose results there is what is looked for, and no alarm, or the other way round."""
    found, count = [], 0
    for name, f in functions(room):
        tried = 0
        for args in calls(name, f, few):
            call = transform(f, args)
            value = None if call is None or tried == most else result(call)
            if value is None:
                continue
            count, tried = count + 1, tried + 1
            for setting, test in LOOKED_FOR:
                if not has(test, args) and alarms(setting, call) != has(test, value):
                    found.append((name, args, setting.__name__))
    return found, count


def plainly(f, args):
    return lambda: f(*args)


def jitted(f, args):
    arrays = [k for k, x in enumerate(args) if isinstance(x, fnx.Array)]
    g = fnx.jit(f, static_argnums=[k for k in range(len(args)) if k not in arrays])
    return lambda: g(*args)


def gradient(f, args):
    """The gradient of the sum of a function's results; None without an argument to differentiate."""
    at = [k for k, x in enumerate(args) if getattr(getattr(x, "dtype", 0), "kind", "") == "f"]
    if not at or any(has(np.isnan, x) or has(np.isinf, x) for x in args):
        return None

    def parts(x):
        given = list(args)
        given[at[0]] = x
        return [y for y in fnx.tree.leaves(f(*given)) if jnp.asarray(y).dtype.kind == "f"]

    def call():
        ys, _ = fnx.vjp(parts, args[at[0]])
        if not ys or has(np.isnan, ys) or has(np.isinf, ys):
            return None
        return fnx.grad(lambda x: sum(jnp.sum(y) for y in parts(x)))(args[at[0]])

    return call


NOTHING_WRONG = {
    "a density outside of its support": lambda: stats.beta.pdf(-2.5, 2.0, 1.0),
    "a density that is 0": lambda: stats.chi2.pdf(-1.0, 3.0),
    "a probability that is 0": lambda: stats.binom.pmf(7, 2, 0.5),
    "a quotient of gamma functions": lambda: special.poch(0.0, 0.0),
    "numbers drawn": lambda: fnx.random.geometric(fnx.random.key(0), 1.0),
    "a method": (jnp.array([1.0, -1.0]) // 0.5).std,
    "a slope at an end": lambda: fnx.grad(lambda x: stats.gamma.cdf(x, 2.0))(0.0),
    "a derivative": lambda: fnx.jvp(jnp.arctan, (1e300,), (1.0,)),
    "members": lambda: fnx.vmap(lambda x: stats.poisson.pmf(x, 2.0))(jnp.array([-1.0, 3.0])),
}
WRONG = {
    "scipy.special.gamma": special.gamma,
    "scipy.stats.uniform.ppf": stats.uniform.ppf,
    "scipy.stats.expon.ppf": stats.expon.ppf,
}


@pytest.mark.parametrize("what", NOTHING_WRONG)
def test_no_alarm_of_what_results_have_not(what):
    for setting in (fnx.debug_nans, fnx.debug_infs):
        assert not alarms(setting, NOTHING_WRONG[what])


@pytest.mark.parametrize("name", WRONG)
def test_a_function_that_answers_with_a_nan_is_named(name):
    with fnx.debug_nans():
        with pytest.raises(FloatingPointError, match=f"the function {name} made a nan"):
            WRONG[name](-1.0)
        with pytest.raises(FloatingPointError, match=r"in member 1 of vmap at "):
            fnx.vmap(WRONG[name])(jnp.array([-1.0, -1.0])[::-1].at[0].set(0.5))


def test_the_operation_that_a_result_comes_from_is_named_not_the_first():
    def density(x):
        return stats.beta.logpdf(x, 2.0, 1.0)  # makes nans outside, and chooses against them

    def inverse(x):
        return jnp.linalg.inv(jnp.where(density(x) < 0, 0.0, 1.0) * jnp.eye(2))

    with fnx.debug_nans(), pytest.raises(FloatingPointError, match="the operation solve made"):
        inverse(-1.0)


def test_a_slope_that_is_a_nan_has_a_line():
    data = jnp.array([1.0, np.nan])  # a gap, which the result does not show

    def cost(x):
        return jnp.sum(jnp.where(jnp.isnan(data), 0.0, (x - data) ** 2))

    with fnx.debug_nans():
        assert cost(1.0) == 0.0
        with pytest.raises(FloatingPointError, match="in the cotangent of the operands of square"):
            fnx.grad(cost)(1.0)
        fnx.grad(cost)(np.nan)  # comes from the operand


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_alarms_of_every_public_function_are_those_of_results(room):
    found, count = wrong_alarms(room, 8, plainly)
    assert not found
    assert count > 100


@pytest.mark.slow
@pytest.mark.parametrize("room", ROOMS)
def test_alarms_of_compiled_functions_are_those_of_results(room):
    found, count = wrong_alarms(room, 1, jitted, most=2)
    assert not found
    assert count > 20


@pytest.mark.slow
@pytest.mark.parametrize("room", ["special", "stats", "random"])
def test_alarms_of_slopes_are_those_of_results(room):
    found, count = wrong_alarms(room, 2, gradient)
    assert not found
    assert count > 50
