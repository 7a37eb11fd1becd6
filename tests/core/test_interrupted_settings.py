"""What is changed for a while is as before after an interrupt, at whatever moment that comes."""

import gc
import random

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config, interpreter, source, transport
from fnx.core.threads.atomic import setter
from fnx.lowering.cpu.loader import native_calls
from fnx.sharding import Mesh
from fnx.transforms import traced_program
from tests.stress import moments
from tests.support import interrupted

X = jnp.linspace(0.1, 1.0, 4)
MOST = 16  # moments of a call, of which `python -m tests.stress moments` tries more


def within(manager):
    """A call that enters a context manager, and leaves it."""

    def call():
        with manager():
            pass

    return call


def of_meshes():
    mesh = Mesh(np.array(fnx.devices()), ("i",))
    with mesh, mesh:
        pass


def by_steps():
    with config.backend("reference"), config.disable_jit(True):
        return lax.fori_loop(0, 2, lambda i, c: c + i, 0)


CALLS = {
    "a setting": within(fnx.disable_jit),
    "checks for nans": within(fnx.debug_nans),
    "a setting of JAX's": within(lambda: fnx.default_matmul_precision("high")),
    "an interpreter": within(lambda: interpreter.use(interpreter.Interpreter())),
    "a transport": within(lambda: transport.use({"i": None})),
    "compile-time evaluation": within(fnx.ensure_compile_time_eval),
    "deep recursion": within(native_calls.deep_recursion),
    "no collections": within(traced_program.without_collections),
    "an operation": lambda: X + X,
    "a replayed function": lambda: jnp.var(X),
    "a jaxpr": lambda: fnx.make_jaxpr(lambda x: x * 2.0)(1.0),
    "a gradient": lambda: fnx.grad(lambda x: x * x)(2.0),
    "a tangent": lambda: fnx.jvp(lambda x: x * x, (2.0,), (1.0,)),
    "a batch": lambda: fnx.vmap(lambda x: x * 2)(X),
    "a step-by-step run": by_steps,
}


# What interrupts a finalizer is reported, and goes no further.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", CALLS)
def test_nothing_stays_changed(name):
    call = CALLS[name]
    call()  # which imports what it needs
    call()
    gc.collect()
    before, came = moments.state(), 0
    found = list(interrupted.count(call).items())
    for moment, times in random.Random(0).sample(found, min(len(found), MOST)):
        came += leaves_all_as_it_was(call, before, moment, times)
    assert came


def leaves_all_as_it_was(call, before, moment, times) -> bool:
    """Whether an interrupt came, after which all must be as before."""
    came = interrupted.interrupted(call, moment, times)
    gc.collect()
    changed = moments.differences(before, moments.state())
    assert not changed, f"{interrupted.told(moment)}: {changed}"
    return came


def test_a_mesh_that_was_not_entered_is_not_in_force():
    """The beginning of `__exit__` is out of anybody's reach."""
    of_meshes()
    before, came = moments.state(), 0
    for moment, times in interrupted.count(of_meshes).items():
        if moment[0] is Mesh.__enter__.__code__:
            came += leaves_all_as_it_was(of_meshes, before, moment, times)
    assert came


def test_a_setter_sets_as_the_variable_does():
    token = setter(config.overridden)[True]
    assert config.overridden.get() is True
    config.overridden.reset(token)
    assert config.overridden.get() is False


def test_meshes_are_left_in_each_thread_as_they_were_entered():
    """One mesh is entered in two contexts, and left in the order in which it was entered."""
    import contextvars

    mesh, outer = (Mesh(np.array(fnx.devices()), (name,)) for name in "ij")
    one, two = contextvars.copy_context(), contextvars.copy_context()
    for context in (one, two):
        context.run(outer.__enter__)
        context.run(mesh.__enter__)
    for context in (one, two):
        context.run(mesh.__exit__)
        assert context.run(fnx.sharding.get_mesh) is outer
        context.run(outer.__exit__)
        assert not context.run(fnx.sharding.get_mesh).axis_names


@pytest.mark.parametrize("inner", ["evaluate", "another"])
def test_an_interpreter_that_is_forgotten_disturbs_nobody(inner):
    """A signal in the first line of an `__exit__` leaves a generator, which ends with the exception."""
    outer, later = interpreter.Interpreter(), interpreter.Interpreter()
    with interpreter.use(outer):
        chosen = interpreter.evaluate if inner == "evaluate" else interpreter.Interpreter()
        forgotten = interpreter.use(chosen)
        forgotten.__enter__()
    outer.ended = True
    assert interpreter.current.get() is interpreter.evaluate
    if inner == "another":
        with interpreter.use(later):
            del forgotten
            assert interpreter.current.get() is later
    else:
        del forgotten
    assert interpreter.current.get() is interpreter.evaluate


MANAGERS = {
    "a setting": (fnx.debug_index, lambda: config.debug_index.value),
    "checks for nans": (fnx.debug_nans, lambda: interpreter.current.get().looks),
    "what calls depend on": (fnx.disable_jit, config.overridden.get),
    "a transport": (lambda: transport.use({"i": None}), lambda: "i" in transport._in_force.get()),
    "a name": (lambda: fnx.named_scope("a"), lambda: bool(source.scopes.get())),
}


@pytest.mark.parametrize("name", MANAGERS)
def test_what_is_forgotten_is_undone_where_it_still_is(name):
    """As above: of what is within something else, that has undone it; what is alone is undone."""
    manager, is_on = MANAGERS[name]
    alone = manager()
    alone.__enter__()
    assert is_on()
    del alone
    assert not is_on()
    with manager():
        forgotten = manager()
        forgotten.__enter__()
    assert not is_on()
    del forgotten
    assert not is_on()


def test_an_interpreter_whose_body_is_closed_is_left():
    def body():
        with interpreter.use(interpreter.Interpreter()):
            yield

    started = body()
    next(started)
    assert interpreter.current.get() is not interpreter.evaluate
    started.close()
    assert interpreter.current.get() is interpreter.evaluate
