"""A nan in results names the element of the operation that made it, not what made one first."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.array import ConcreteArray
from fnx.process.watching.watched import Numbered, _bits, _numbered, _numbers, number_of


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_numbers_in_nans(dtype):
    x = ConcreteArray(np.full(3, np.nan, dtype))
    bits = _bits(x)
    bits[:] = _numbered(bits.dtype, np.arange(1, bits.size + 1, dtype=np.uint64))
    assert np.isnan(x._value).all()
    assert _numbers(bits).tolist() == list(range(1, bits.size + 1))
    assert number_of([x]) == 1
    halved = ConcreteArray(x._value / 2 + 1)  # arithmetic hands them on
    assert number_of([halved]) in (1, 2)


def test_numbers_outlive_a_conversion():
    wide = ConcreteArray(np.full(2, np.nan))
    _bits(wide)[:] = _numbered(np.dtype("u8"), np.array([5, 6], np.uint64))
    narrow = ConcreteArray(wide._value.astype("f4"))
    assert _numbers(_bits(narrow)).tolist() == [5, 6]
    assert number_of([ConcreteArray(narrow._value.astype("f8"))]) == 5


def test_results_without_nans_have_no_number():
    assert number_of([ConcreteArray(np.ones(2)), ConcreteArray(np.arange(2))]) == 0
    assert Numbered().count == 0


def chosen_against(x):
    return jnp.sum(jnp.where(x > 0, jnp.log(x), 0.0))


def wrong(x):
    return jnp.sqrt(jnp.sum(x))


PROGRAMS = {
    "beside": lambda x: chosen_against(x) + wrong(x),
    "stacked": lambda x: lax.scan(
        lambda c, y: (c, chosen_against(y) + wrong(y)), 0.0, jnp.stack([x + 9, x + 9, x])
    )[1],
    "read by a loop": lambda x: lax.scan(
        lambda c, y: (c + y + chosen_against(x), None), 0.0, jnp.stack([wrong(x), wrong(x)])
    )[0],
    "sorted": lambda x: jnp.sort(jnp.stack([chosen_against(x), wrong(x)])),
    "of a matrix": lambda x: jnp.linalg.inv(jnp.eye(2) * (chosen_against(x) + wrong(x))),
    "in float32": lambda x: chosen_against(x) + wrong(x).astype("float32"),
    "complex": lambda x: jnp.abs(chosen_against(x) * 1j + wrong(x)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_chosen_against_is_not_named(name):
    f = fnx.jit(PROGRAMS[name])
    with fnx.debug_nans():
        f(jnp.array([-1.0, 3.0]))
        with pytest.raises(FloatingPointError, match="the operation sqrt made") as error:
            f(jnp.array([-1.0, -3.0]))
    assert ("in iteration 2 of scan" in str(error.value)) == (name == "stacked")


def test_the_member_whose_result_is_wrong_is_named():
    def force(x):  # of two on each other; that of one on itself is chosen against
        distance = x[:, None] - x
        return jnp.where(jnp.eye(2) > 0, 0.0, distance / jnp.abs(distance))

    with fnx.debug_nans(), pytest.raises(FloatingPointError) as error:
        fnx.jit(fnx.vmap(force))(jnp.array([[1.0, 2.0], [1.0, 3.0], [4.0, 4.0]]))
    assert "first at [2, 0, 1]" in str(error.value)
    assert "in member 2 of vmap" in str(error.value)


@pytest.mark.parametrize("transform", [fnx.jit, lambda f: f], ids=["jit", "eager"])
def test_the_infinity_that_a_nan_is_made_of_has_a_line(transform):
    def distance(x):
        squared = jnp.sum(x * x)
        return jnp.sqrt(squared)

    with fnx.debug_nans(), pytest.raises(FloatingPointError) as error:
        transform(fnx.grad(distance))(jnp.zeros(2))
    line = distance.__code__.co_firstlineno + 2
    assert "infinity in an operand was made by" in str(error.value)
    assert f"{__file__}:{line} (distance), in the" in str(error.value)
    assert "of sqrt" in str(error.value)
