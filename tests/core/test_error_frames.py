"""What errors know beside their words: lines, classes, tracebacks, and what is left behind."""

import functools
import sys
import traceback

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.source import is_internal
from fnx.experimental import checkify
from fnx.experimental.ode import odeint

ones = jnp.ones


def test_a_missing_rule_names_primitive_rule_and_feature():
    from fnx.core.primitive import Primitive

    class Lonely(Primitive):
        name = "lonely"

        def impl(self, x):
            return x

    with pytest.raises(NotImplementedError, match=r"'lonely' has no 'jvp' rule.*differentiation"):
        fnx.grad(Lonely())(jnp.asarray(1.0))
    with pytest.raises(NotImplementedError, match=r"'lonely' has no 'batch' rule.*vmap"):
        fnx.vmap(Lonely())(ones(3))
    with pytest.raises(NotImplementedError, match=r"'lonely' has no 'abstract' rule"):
        fnx.jit(Lonely())(ones(3))


@pytest.mark.parametrize("name", fnx.errors.__all__)
def test_errors_are_errors_that_python_knows(name):
    kind = getattr(fnx.errors, name)
    if issubclass(kind, Warning):
        assert issubclass(kind, UserWarning)
        return
    assert issubclass(kind, fnx.errors.FnxError)
    if name not in ("FnxError", "UnexpectedTracerError"):
        builtin = (TypeError, ValueError, LookupError, NameError, RuntimeError, ImportError)
        assert issubclass(kind, builtin)


def _files_of(error: BaseException) -> set[str]:
    return {frame.filename for frame in traceback.extract_tb(error.__traceback__)}


def _adds(c, _):
    return c[:2] + c, None


@pytest.mark.parametrize(
    "fun",
    [
        fnx.jit(lambda x: lax.scan(_adds, x, None, length=3)[0]),
        fnx.grad(lambda x: lax.scan(_adds, x, None, length=3)[0].sum()),
        fnx.vmap(lambda x: _adds(ones(3) * x, None)[0]),
        fnx.jit(fnx.jacfwd(lambda x: _adds(x, None)[0])),
        fnx.jit(lambda x: {}["x"]),
    ],
    ids=["scan", "grad", "vmap", "jacfwd", "mine"],
)
def test_tracebacks_show_the_users_frames_alone(fun):
    with pytest.raises((ValueError, KeyError)) as caught:
        fun(ones(3))
    assert _files_of(caught.value) == {__file__}
    with (
        fnx.core.config.traceback_filtering(False),
        pytest.raises((ValueError, KeyError)) as caught,
    ):
        fun(ones(3))
    assert _files_of(caught.value) > {__file__}


def _of_one(x):
    return x


def _forever(x):
    return fnx.jit(_forever)(x)


def _leaked():
    kept = []
    fnx.jit(kept.append)(1.0)
    return kept[0] + 1


def _donated():
    x = ones(3)
    fnx.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x + 1


CALLS = {
    "operator": lambda: ones(3) + ones(4),
    "operator with a list": lambda: ones(2) * [1.0, 2.0],
    "power": lambda: ones(3) ** ones(4),
    "function of one": lambda: jnp.sin([1.0]),
    "function of two": lambda: jnp.arctan2(ones(3), ones(4)),
    "sum of two": lambda: jnp.add(ones(3), ones(4)),
    "index": lambda: ones(3)[0, 0],
    "update": lambda: ones(3).at[:2].set(ones(3)),
    "assignment": lambda: ones(3).__setitem__(0, 1.0),
    "pull": lambda: fnx.vjp(jnp.sin, ones(3))[1](ones(4)),
    "push": lambda: fnx.linearize(jnp.sin, ones(3))[1](ones(4)),
    "pmap": lambda: fnx.pmap(jnp.sin)(ones(1000)),
    "static": lambda: fnx.jit(_of_one, static_argnums=0)([1]),
    "names": lambda: fnx.jit(_of_one, static_argnames="z"),
    "throw": checkify.checkify(lambda x: checkify.check(x > 0, "no"))(0.0)[0].throw,
    "odeint": lambda: odeint(lambda t, y: -y, ones(2), jnp.linspace(0.0, 1.0, 3)),
    "leak": _leaked,
    "donated": _donated,
    "jit of too few": lambda: fnx.jit(lambda x, y: x)(1.0),
    "body of one": lambda: lax.scan(_of_one, 0.0, ones(3)),
    "body of one, of fori_loop": lambda: fnx.jit(lambda x: lax.fori_loop(0, 3, _of_one, x))(1.0),
    "partial": lambda: lax.scan(functools.partial(_of_one, 1.0), 0.0, ones(3)),
    "public": lambda: lax.fori_loop(0, _of_one),
    "public name": lambda: jnp.sum(ones(3), axes=0),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_mistakes_in_calls_show_the_users_frames_alone(call):
    with pytest.raises(
        (TypeError, ValueError, IndexError, RuntimeError, fnx.errors.FnxError)
    ) as caught:
        call()
    files = _files_of(caught.value)
    assert __file__ in files
    assert not any(map(is_internal, files))
    shown = "".join(traceback.format_exception(caught.value))
    assert "During handling" not in shown
    if caught.value.__cause__ is not None:
        assert _files_of(caught.value.__cause__) == set()


class _Unspeakable:
    def __repr__(self):
        raise ZeroDivisionError

    __hash__ = None


@pytest.mark.parametrize(
    "call",
    [
        fnx.jit(_of_one),
        lambda x: fnx.jit(lambda y: x)(1.0),
        fnx.jit(_of_one, static_argnums=0),
        jnp.sin,
        jnp.asarray,
        lambda x: ones(3) @ [x],
        lambda x: ones(3)[x],
        lambda x: ones(3).at[x].set(1.0),
        lambda x: jnp.sum(ones(3), axis=x),
        jnp.zeros,
        fnx.grad(_of_one),
        lambda x: lax.scan(x, 0.0, ones(3)),
        fnx.random.normal,
    ],
)
def test_objects_that_cannot_be_shown_are_named_by_their_class(call):
    with pytest.raises((TypeError, ValueError), match=r"_Unspeakable|list") as caught:
        call(_Unspeakable())
    assert isinstance(caught.value, fnx.errors.FnxError)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: jnp.fft.ifft(ones(3), axis=5), "ifft"),
        (lambda: jnp.cumsum(ones(3), axis=5), "cumsum"),
        (lambda: ones(3).argmax(axis=5), "argmax"),
        (lambda: ones(3).at[0, 0].add(1.0), "add"),
        (lambda: jnp.quantile(ones(3), 0.5, axis=5), "quantile"),
    ],
)
def test_the_public_function_is_named_whatever_made_it(call, name):
    with pytest.raises((ValueError, IndexError)) as caught:
        call()
    assert str(caught.value).endswith(f", in {name}")


def test_functions_that_call_themselves_are_shown_without_what_calls_them():
    with pytest.raises(RecursionError) as caught:
        _forever(1.0)
    assert not any(map(is_internal, _files_of(caught.value)))


def test_what_a_user_caught_before_stays_in_sight():
    def after_another():
        try:
            {}["missing"]
        except KeyError:
            return ones(3) + ones(4)

    with pytest.raises(ValueError) as caught:
        after_another()
    assert isinstance(caught.value.__context__, KeyError)
    assert not caught.value.__suppress_context__


def test_a_mistake_of_fnx_keeps_its_whole_traceback(monkeypatch):
    monkeypatch.setattr(sys.modules["fnx.transforms.jit"], "trace", None)
    with pytest.raises(TypeError, match="not callable") as caught:
        fnx.jit(lambda x: x)(1.0)
    assert any(name.endswith("transforms/jit.py") for name in _files_of(caught.value))


def test_after_an_error_in_tracing_all_is_as_before():
    @fnx.jit
    def f(x):
        if fnx.core.ShapedArray and x.shape == (2,):
            raise KeyError("mine")
        return x + 1.0

    with pytest.raises(KeyError, match="mine"):
        f(ones(2))
    with pytest.raises(KeyError, match="mine"):
        fnx.grad(lambda x: jnp.sum(f(x)))(ones(2))
    with pytest.raises(KeyError, match="mine"):
        fnx.vmap(f)(ones((3, 2)))
    assert float(f(ones(1))[0]) == 2.0
    assert float((ones(1) + 1.0)[0]) == 2.0  # evaluated, not recorded
