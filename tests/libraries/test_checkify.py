"""checkify: checks in calls, branches, loops, lanes and derivatives; checks without it; automatic ones."""

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.experimental import checkify
from fnx.experimental.checkify import CheckError, check

pytestmark = pytest.mark.usefixtures("reference")


def positive(x):
    check(x > 0, "x must be positive, got {x}", x=x)
    return jnp.log(x)


def message(f, *args, errors=checkify.user_checks):
    """What checkify finds, by itself and compiled."""
    checked = checkify.checkify(f, errors)
    (error, out), (again, compiled) = [g(*args) for g in (checked, fnx.jit(checked))]
    assert error.get() == again.get()
    for a, b in zip(fnx.tree_util.tree_leaves(out), fnx.tree_util.tree_leaves(compiled)):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b))
    return error.get()


def words(f, *args, errors=checkify.user_checks):
    """The same, without lines, members and iterations."""
    return without_places(message(f, *args, errors=errors))


def without_places(text):
    return text and "\n".join([line for line in text.splitlines() if line[0] != " "])


def test_a_check():
    assert message(positive, 2.0) is None
    assert words(positive, -1.0) == "x must be positive, got -1.0 (`check` failed)"
    error, out = checkify.checkify(positive)(2.0)
    error.throw()
    assert float(out) == pytest.approx(np.log(2))
    with pytest.raises(CheckError, match=r"got -1\.0"):
        checkify.checkify(positive)(-1.0)[0].throw()


def test_the_first_of_several():
    def f(x, y):
        check(x > 0, "first {}", x)
        check(y > 0, "second {} of {n}", y, n=x)

    assert message(f, 1.0, 1.0) is None
    assert words(f, 1.0, -2.0) == "second -2.0 of 1.0 (`check` failed)"
    assert words(f, -1.0, -2.0) == "first -1.0 (`check` failed)"


def test_without_checkify_a_check_raises_where_it_runs():
    with pytest.raises(CheckError, match=r"got -1\.0"):
        positive(-1.0)
    with pytest.raises(ValueError, match=r"got -1\.0"):
        fnx.jit(positive)(-1.0)
    with pytest.raises(CheckError, match=r"got -2\.0"):
        fnx.vmap(positive)(np.array([1.0, -2.0]))
    with pytest.raises(CheckError, match=r"got -1\.0"):
        fnx.grad(positive)(-1.0)
    checkify.debug_check(False, "nobody sees this")
    assert words(lambda x: checkify.debug_check(x > 0, "seen"), -1.0) == "seen (`check` failed)"


def test_native_code():
    with config.backend("cpu"):
        with pytest.raises(CheckError, match=r"got -1\.0"):
            fnx.jit(positive)(-1.0)
        error, _ = fnx.jit(checkify.checkify(positive))(-1.0)
        assert "got -1.0" in error.get()


def test_in_calls_and_derivatives():
    assert "got -1.0" in message(fnx.jit(lambda x: fnx.jit(positive)(x) + 1), -1.0)
    assert message(fnx.jit(lambda x: fnx.jit(positive)(x) + 1), 1.0) is None
    assert "got -1.0" in message(fnx.grad(positive), -1.0)
    assert "got -1.0" in message(fnx.grad(fnx.jit(positive)), -1.0)
    assert "got -1.0" in message(fnx.checkpoint(positive), -1.0)


def test_in_branches():
    def f(x):
        def low(x):
            check(x < -5, "low {}", x)
            return -x

        def high(x):
            check(x > 5, "high {}", x)
            check(x < 50, "too high {}", x)
            return x

        return lax.cond(x > 0, high, low, x)

    expected = {-9.0: None, -1.0: "low -1.0", 1.0: "high 1.0", 9.0: None, 99.0: "too high 99.0"}
    for x, text in expected.items():
        assert words(f, x) == (text and f"{text} (`check` failed)")


def test_in_scan():
    def f(bad):
        def body(total, k):
            check(k < bad, "step {k}, total {}", total, k=k)
            return total + k, total

        return lax.scan(body, 0, jnp.arange(6))

    assert message(f, 6) is None
    text = message(f, 3)
    assert text.startswith("step 3, total 3 (`check` failed)\n")
    assert "(body)\n  in iteration 3 of scan at " in text
    total, ys = checkify.checkify(f)(3)[1]
    assert int(total) == 15
    assert ys.shape == (6,)


def test_in_while():
    def test(v):
        check(v < 50, "condition {}", v)
        return v < 100

    def body(v):
        check(v != 8, "body {}", v)
        return v * 2

    f = lambda x: lax.while_loop(test, body, x)
    text = message(f, 1)
    assert text.startswith("body 8 (`check` failed)\n")
    assert "(body)\n  in iteration 3 of while_loop at " in text
    text = message(f, 3)
    assert text.startswith("condition 96 (`check` failed)\n")
    assert "(test)\n  in iteration 4 of while_loop at " in text
    assert words(f, 64) == "condition 64 (`check` failed)"
    assert message(lambda x: lax.while_loop(lambda v: v < 30, body, x), 3) is None


def test_lanes():
    x = np.array([1.0, -1.0, -2.0])
    error, _ = fnx.vmap(checkify.checkify(positive))(x)
    assert without_places(error.get()) == (
        "at mapped index 1: x must be positive, got -1.0 (`check` failed)\n"
        "at mapped index 2: x must be positive, got -2.0 (`check` failed)"
    )
    assert words(fnx.vmap(positive), x) == "x must be positive, got -1.0 (`check` failed)"
    assert message(fnx.vmap(fnx.jit(positive)), np.abs(x)) is None


def test_automatic_checks():
    def says(text, f, *args, errors=checkify.all_checks):
        found = message(f, *args, errors=errors)
        assert found is not None
        assert text in found
        assert "test_checkify.py" in found

    says("nan generated by primitive: log", lambda x: 2 * jnp.log(x), -1.0)
    says("nan generated by primitive: sqrt", fnx.jit(lambda x: 2 * jnp.sqrt(x)), -1.0)
    says("division by zero", lambda x: 1 / x, np.array([1.0, 0.0]))
    says("index 7", lambda x, k: x[k], np.ones(3), 7)
    says("index 3", lambda x, k: x.at[k].set(0.0), np.ones((3, 2)), np.array([0, 3]))
    says("index 2", lambda x, k: lax.dynamic_slice(x, (k,), (2,)), np.ones(3), 2)
    says("index 2", lambda x, k: lax.dynamic_update_slice(x, jnp.ones(2), (k,)), np.ones(3), 2)
    for f, args in (
        (lambda x: 1 / x, (2.0,)),
        (lambda x, k: x[k], (np.ones(3), 2)),
        (lambda x, k: lax.dynamic_slice(x, (k,), (2,)), (np.ones(3), 1)),
    ):
        assert message(f, *args, errors=checkify.all_checks) is None
    # What is not asked for is not checked.
    assert message(lambda x: 1 / x, 0.0, errors=checkify.nan_checks) is None
    assert message(jnp.log, -1.0, errors=checkify.div_checks) is None
    assert message(positive, -1.0, errors=checkify.index_checks) is None


def test_automatic_checks_in_loops():
    f = lambda x: lax.fori_loop(0, 5, lambda k, v: v - 1.0 / (k - 3.0) * x, x)
    assert "division by zero" in message(f, 1.0, errors=checkify.float_checks)
    assert message(f, 1.0) is None


def test_errors_are_passed_on():
    def outer(x):
        error, y = checkify.checkify(positive)(x)
        checkify.check_error(error)
        return y

    assert words(outer, -3.0) == "x must be positive, got -3.0 (`check` failed)"
    assert message(outer, 3.0) is None
    with pytest.raises(CheckError, match=r"got -3\.0"):
        outer(-3.0)


def test_what_is_refused():
    with pytest.raises(TypeError, match="one bool"):
        check(np.array([True, False]), "no")
    with pytest.raises(TypeError, match="one bool"):
        check(1.0, "no")
    with pytest.raises(ValueError, match="'y'"):
        check(True, "{x} {y}", x=1)
    with pytest.raises(ValueError, match="errors"):
        checkify.checkify(positive, errors={"other"})


def test_constant_indices_out_of_bounds_are_found():
    f = checkify.checkify(lambda x: x[1] + x[5], errors=checkify.index_checks)
    error, out = f(jnp.arange(3.0))
    assert "index 5" in error.get()
    assert float(out) == 3.0  # clamped, as without checks
    assert (
        checkify.checkify(lambda x: x[-3], errors=checkify.index_checks)(jnp.ones(3))[0].get()
        is None
    )
    assert (
        "index"
        in checkify.checkify(lambda x: x[-4], errors=checkify.index_checks)(jnp.ones(3))[0].get()
    )


def test_messages_show_pytrees():
    def f(x):
        check(x["a"] > 0, "{0[0]} or {both[a]}", [x["a"]], both=x)
        return x["a"]

    error, _ = fnx.jit(checkify.checkify(f))({"a": -1.5})
    assert without_places(error.get()) == "-1.5 or -1.5 (`check` failed)"
    with pytest.raises(CheckError, match="or -1"):
        f({"a": -1.5})


def test_messages_show_arrays_as_programs_see_them():
    with pytest.raises(ValueError, match=r"\{'a': Array\(2, dtype=int64\)\}"):
        checkify.check(False, "{tree}", tree={"a": jnp.array(2)})


def test_python_may_look_at_what_is_no_number():
    @checkify.checkify
    def f(x, flag, mode):
        checkify.check(x > 0, "x is {x}", x=x)
        return x if flag and mode == "same" else -x

    assert f(1.0, True, "same")[1] == 1.0
    error, y = fnx.jit(f, static_argnums=(1, 2))(-1.0, False, "other")
    assert "x is -1.0" in error.get()
    assert y == 1.0
