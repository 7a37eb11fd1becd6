"""fnx.distributed.map: over processes of this machine, and over executors; over ranks in test_mpi.py."""

import os
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.errors import InvalidValue, JaxRuntimeError, ShapeError


@pytest.mark.parametrize("workers", [1, 3])
def test_results_are_in_order(workers):
    def f(k):
        time.sleep(0.02 if k == 0 else 0.0)
        return k, os.getpid()

    found = fnx.distributed.map(f, range(20), workers=workers)
    assert [k for k, _ in found] == list(range(20))
    assert len({pid for _, pid in found} - {os.getpid()}) == (0 if workers == 1 else workers)
    assert fnx.distributed.map(f, [], workers=workers) == []


def test_compiled_functions_are_mapped():
    f = fnx.jit(lambda x: jnp.sum(jnp.sin(x)))
    rows = np.random.default_rng(0).normal(size=(6, 100))
    expected = [float(f(x)) for x in rows]
    found = fnx.distributed.map(f, list(rows), workers=2)
    np.testing.assert_allclose([float(x) for x in found], expected, 1e-12)


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_of_an_item_is_raised(workers):
    def f(k):
        if k == 3:
            raise ZeroDivisionError("three")
        return k

    with pytest.raises(ZeroDivisionError, match="three") as caught:
        fnx.distributed.map(f, range(6), workers=workers)
    assert "in item 3 of fnx.distributed.map" in caught.value.__notes__


@pytest.mark.parametrize("workers", [1, 2])
def test_an_item_that_exits_exits_here(workers):
    def f(k):
        return sys.exit(4) if k == 2 else k

    with pytest.raises(SystemExit) as caught:
        fnx.distributed.map(f, range(4), workers=workers)
    assert caught.value.code == 4


def test_an_item_whose_process_died_is_tried_again(tmp_path):
    def f(k):
        mark = tmp_path / str(k)
        if k in (2, 5) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return k * k

    assert fnx.distributed.map(f, range(8), workers=2) == [k * k for k in range(8)]


def test_an_item_that_always_ends_its_process_is_an_error():
    def f(k):
        if k == 1:
            os._exit(3)
        return k

    with pytest.raises(
        JaxRuntimeError, match=r"item 1 .* ended its process 2 times \(exit code 3\)"
    ):
        fnx.distributed.map(f, range(3), workers=2, retries=1)


def test_what_cannot_be_sent_says_so():
    with pytest.raises(JaxRuntimeError, match=r"the result of item [01] .* cannot be sent"):
        fnx.distributed.map(lambda k: lambda: k, range(2), workers=2)


def test_errors_of_fnx_come_back_as_they_are():
    with pytest.raises(ShapeError, match="incompatible shapes for broadcasting") as caught:
        fnx.distributed.map(lambda k: jnp.ones(2) + jnp.ones(3), range(2), workers=2)
    assert caught.value.__notes__[0].startswith("in item ")


def test_executors_are_used():
    with ThreadPoolExecutor(2) as pool:
        assert fnx.distributed.map(lambda x: x + 1, range(5), client=pool) == [1, 2, 3, 4, 5]
        with pytest.raises(KeyError):
            fnx.distributed.map(lambda x: {}[x], range(5), client=pool)
    with pytest.raises(InvalidValue, match="expected a Dask client"):
        fnx.distributed.map(abs, [1], client=3)


def test_items_of_workers_that_died_are_submitted_again():
    class Future:
        def __init__(self, run):
            self.run = run

        def result(self):
            return self.run()

    class Failing:
        """An executor whose first worker dies."""

        calls = 0

        def submit(self, f, *args):
            self.calls += 1
            if self.calls == 1:
                return Future(lambda: (_ for _ in ()).throw(BrokenProcessPool("died")))
            return Future(lambda: f(*args))

    assert fnx.distributed.map(lambda x: -x, [1, 2], client=Failing()) == [-1, -2]
    with pytest.raises(BrokenProcessPool):
        fnx.distributed.map(lambda x: -x, [1, 2], client=Failing(), retries=0)


def test_a_bar_shows_how_far_it_is(capsys):
    fnx.distributed.map(abs, range(3), workers=1, progress=True)
    assert "3/3" in capsys.readouterr().err
    fnx.distributed.map(abs, range(3), workers=1, progress=False)
    assert capsys.readouterr().err == ""


def test_workers_are_at_least_one():
    with pytest.raises(InvalidValue, match="workers=0"):
        fnx.distributed.map(abs, [1], workers=0)
