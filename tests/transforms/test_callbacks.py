"""Callbacks of compiled programs: what they may do, their errors, their order; printing."""

import itertools
import traceback

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.experimental import io_callback


def test_a_callback_may_call_fnx():
    inner = fnx.jit(lambda x: jnp.sum(x * 2.0))

    def host(x):
        return np.asarray(inner(jnp.asarray(x)) + fnx.grad(lambda y: y**3)(1.0))

    def f(x):
        return fnx.pure_callback(host, fnx.ShapeDtypeStruct((), float), x) * 10.0

    assert float(fnx.jit(f)(jnp.ones(3))) == 90.0
    assert float(f(jnp.ones(3))) == 90.0
    assert (
        float(fnx.jit(lambda x: lax.fori_loop(0, 3, lambda i, t: t + f(x), 0.0))(jnp.ones(3)))
        == 270.0
    )


def test_an_error_in_a_callback_reaches_the_caller():
    def host(x):
        raise KeyError("from the host")

    f = fnx.jit(lambda x: fnx.pure_callback(host, fnx.ShapeDtypeStruct((), float), x))
    for _ in range(2):
        with pytest.raises(KeyError, match="from the host"):
            f(1.0)
    assert float(fnx.jit(lambda x: x + 1)(1.0)) == 2.0


class Strange(Exception):
    def __init__(self, number, *, unit):
        super().__init__(f"{number} {unit}")
        self.number = number


RAISED = {
    "a class of Python": (lambda: ValueError("here"), ValueError),
    "a class with an initialiser": (lambda: Strange(3, unit="m"), Strange),
    "no such file": (lambda: FileNotFoundError(2, "no such file"), FileNotFoundError),
    "text that cannot be decoded": (
        lambda: UnicodeDecodeError("utf8", b"x", 0, 1, "bad"),
        UnicodeError,
    ),
}


@pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
@pytest.mark.parametrize("what", RAISED)
def test_errors_of_callbacks_are_of_their_own_class_and_of_jaxs(what, jit):
    make, kind = RAISED[what]

    def host(x):
        raise make()

    f = jit(lambda x: fnx.pure_callback(host, fnx.ShapeDtypeStruct((), float), x))
    with pytest.raises(kind) as caught:
        f(1.0)
    assert caught.value.args == make().args
    assert vars(caught.value).items() >= vars(make()).items()
    assert str(make()) in str(caught.value)
    if kind is not UnicodeError:
        assert isinstance(caught.value, fnx.errors.JaxRuntimeError)
        assert f"{kind.__name__}: " in str(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "host"


def test_io_callbacks_run_once_for_each_time_and_in_order():
    seen = []

    def f(x):
        def body(i, total):
            fnx.experimental.io_callback(lambda k: seen.append(int(k)), None, i, ordered=True)
            return total + x

        total = lax.fori_loop(0, 4, body, 0.0)
        fnx.debug.callback(lambda t: seen.append(float(t)), total)
        return 1.0

    for wrap in (fnx.jit, lambda g: g):
        seen.clear()
        wrap(f)(2.0)
        assert seen == [0, 1, 2, 3, 8.0]


def test_an_effect_in_a_function_whose_result_nobody_uses():
    seen = []
    inner = fnx.jit(lambda x: fnx.debug.callback(lambda v: seen.append(float(v)), x))

    def f(x):
        inner(x)
        lax.cond(x > 0.0, lambda: inner(x + 1), lambda: None)
        return x

    fnx.jit(f)(1.0)
    assert seen == [1.0, 2.0]
    seen.clear()
    fnx.grad(fnx.jit(lambda x: f(x) * x))(3.0)
    assert seen == [3.0, 4.0]


def test_debug_print_keeps_the_print_options_of_its_call(capsys):
    with np.printoptions(precision=2, suppress=True):
        f = fnx.jit(lambda x: fnx.debug.print("{}", x))
        f.lower(jnp.ones(3))
        traced = fnx.make_jaxpr(f)(jnp.ones(3))
    fnx.core.eval_jaxpr(traced.jaxpr, traced.consts, jnp.array([1.2345, 2.3456, 1e-7]))
    assert capsys.readouterr().out == "[1.23 2.35 0.  ]\n"


def test_debug_print(capsys):
    @fnx.jit
    def f(x):
        fnx.debug.print("x = {x}, {:.2f}", x[0] * 2, x=x)
        return x

    f(jnp.array([1.0, 2.0]))
    fnx.vmap(f)(jnp.ones((2, 2)))
    assert capsys.readouterr().out == "x = [1. 2.], 2.00\n" + "x = [1. 1.], 2.00\n" * 2


_HANDED = (  # what a callback is handed, of an array
    lambda x: x,
    lambda x: 2 * x,
    lambda x: (2 * x).T,
    lambda x: x.sum(),
    lambda x: x.sum(0, keepdims=True),
)


@pytest.mark.parametrize("shape", [(3, 3), (40,), (40, 2), (2, 40), (20, 3, 3)])
@pytest.mark.parametrize("mapped", [False, True])
def test_callbacks_without_results_read_values_of_all_kinds(shape, mapped):
    """Such an equation has no results; it must still have what it reads, stored, pulled or summed."""
    x = np.arange(1.0, 1 + np.prod(shape)).reshape(shape)
    seen = []

    def observed(x, makers):
        fnx.debug.callback(
            lambda *xs: seen.append([np.array(x) for x in xs]), *(f(x) for f in makers)
        )
        return (3 * x).sum()

    for makers in itertools.chain.from_iterable(
        itertools.combinations(_HANDED, n) for n in (1, 3, 5)
    ):
        seen.clear()
        f = lambda x, makers=makers: observed(x, makers)
        if mapped:
            total = fnx.jit(lambda x, f=f: fnx.vmap(f)(jnp.stack([x, 2 * x, x])).sum())(x)
        else:
            total = fnx.jit(f)(x)
        expected = [x, 2 * x, x] if mapped else [x]
        assert float(total) == sum((3 * y).sum() for y in expected)
        assert len(seen) == len(expected)
        for y, found in zip(expected, seen, strict=True):
            for maker, value in zip(makers, found, strict=True):
                np.testing.assert_array_equal(value, maker(y))


def test_results_of_callbacks_are_told_leaf_by_leaf():
    declared = {"y": [fnx.ShapeDtypeStruct((), float)]}
    for call in (fnx.pure_callback, io_callback):
        for run in (lambda f: f, fnx.jit):
            found = run(lambda x, call=call: call(lambda v: {"z": (v,)}, declared, x))(2.0)
            assert found == {"y": [2.0]}


@pytest.mark.parametrize("result", [np.ones(3), np.complex64(1j), (1.0, 2.0), None], ids=str)
def test_wrong_results_of_callbacks_end_the_program_as_in_jax(result):
    declared = fnx.ShapeDtypeStruct((), float)
    for call in (fnx.pure_callback, io_callback):
        for run in (lambda f: f, fnx.jit):
            f = run(lambda x, call=call: call(lambda v: result, declared, x))
            with pytest.raises(RuntimeError, match="declared was") as caught:
                f(2.0)
            assert isinstance(caught.value, TypeError)


def test_callbacks_have_no_derivative_and_say_so_by_either_class():
    f = lambda x: fnx.pure_callback(np.sin, x, x)
    for kind in (ValueError, NotImplementedError):
        with pytest.raises(kind, match="has no derivative"):
            fnx.grad(f)(1.0)


def test_options_of_prints_and_callbacks_may_come_first(capsys):
    seen = []

    @fnx.jit
    def f(x):
        fnx.debug.print(ordered=True)("x is {x}", x=x)
        fnx.debug.print("and {}", x, partitioned=True)
        fnx.debug.callback(ordered=True)(lambda v, ordered: seen.append(float(v)), x, ordered=1)
        return x

    f(2.0)
    assert (capsys.readouterr().out, seen) == ("x is 2.0\nand 2.0\n", [2.0])
    with pytest.raises(TypeError, match="in the second call"):
        fnx.debug.callback(ordered=True, a=1)
    with pytest.raises(ValueError, match="does not use"):
        fnx.debug.print(ordered=True)("a", a=1)
    fnx.debug.print(skip_format_check=True)


def _branch(p, x, act):
    def yes(x):
        act("yes", x)
        return x

    def no(x):
        act("no", x)
        return -x

    return lax.cond(p, yes, fnx.jit(no), x)


def _loop(n, x, act):
    def body(c):
        act("round", c[1])
        return c[0] + 1, c[1] * 10

    return lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]


def _counted(n, x, act):
    def body(_, x):
        act("round", x)
        return x * 10

    return lax.fori_loop(0, n, body, x)


DIVERGENT = {
    "cond": (_branch, [True, False, True], [("yes", 0), ("no", 1), ("yes", 2)]),
    "while": (_loop, [2, 0, 1], [("round", 0), ("round", 0), ("round", 2)]),
    "fori": (_counted, [2, 0, 1], [("round", 0), ("round", 0), ("round", 2)]),
}


@pytest.mark.parametrize("jit", [fnx.jit, lambda f: f])
@pytest.mark.parametrize("name", DIVERGENT)
def test_side_effects_are_those_of_batch_elements_that_come_to_them(name, jit):
    fun, ways, expected = DIVERGENT[name]
    log = []

    def act(word, x):
        io_callback(lambda v: log.append((word, int(v))), None, x)

    each = fnx.vmap(lambda way, x: fun(way, x, act))
    ways, xs = jnp.array(ways), jnp.arange(3.0)
    out = jit(each)(ways, xs)
    assert log == expected
    assert [float(v) for v in out] == [float(fun(w, x, lambda *_: None)) for w, x in zip(ways, xs)]
    log.clear()
    jit(fnx.vmap(each, (None, 0)))(ways, jnp.stack([xs, xs]))
    assert log == expected * 2


def test_side_effects_with_a_collective_in_a_branch_of_some_batch_elements_are_refused():
    def yes(x):
        io_callback(lambda v: None, None, x)
        return lax.psum(x, "i")

    f = fnx.vmap(lambda p, x: lax.cond(p, yes, lambda x: x, x), axis_name="i")
    with pytest.raises(NotImplementedError, match="side effects and a collective over 'i'"):
        f(jnp.array([True, False]), jnp.ones(2))


@pytest.mark.parametrize("callback", [io_callback, fnx.pure_callback])
def test_a_callback_in_a_linear_function_has_no_transpose(callback):
    f = lambda x: callback(lambda v: v, fnx.ShapeDtypeStruct((), float), x)
    with pytest.raises(NotImplementedError, match="_callback has no derivative") as found:
        fnx.linear_transpose(f, 1.0)(1.0)
    assert isinstance(found.value, ValueError)


@pytest.mark.parametrize("tell", [fnx.debug.print, fnx.debug.log])
@pytest.mark.parametrize(
    ("text", "error"),
    [("{} {y}", KeyError), ("{} {}", IndexError), ("none", ValueError), ("{", ValueError)],
)
def test_a_text_that_is_wrong_is_told_where_it_is_written(tell, text, error):
    """Not when the program runs, which may be days later, in a callback without a line."""

    def f(x):
        tell(text, x)
        return x

    with pytest.raises(error):
        fnx.make_jaxpr(f)(1.0)


def test_texts_that_are_right_are_printed(capsys):
    text = "{0[0]:.2f} {0[1]} {x.shape} {x[1]!r}"
    fnx.jit(lambda x: fnx.debug.print(text, x, x=x))(np.arange(2.0))
    assert capsys.readouterr().out.startswith("0.00 1.0 (2,) ")
