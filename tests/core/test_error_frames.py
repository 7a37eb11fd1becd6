"""What errors know beside their words: lines, classes, tracebacks, and what is left behind."""

import sys
import traceback

import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax

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
