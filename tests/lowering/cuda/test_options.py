"""`pytest --device cuda` and `benchmarks/run.py --device cuda`: they say so where there is no GPU."""

import os
import subprocess
import sys

import pytest

from fnx.core.errors import FnxError


def run(repository, *words, simulated=False):
    env = {**os.environ, "NUMBA_ENABLE_CUDASIM": str(int(simulated)), "PYTHONWARNINGS": "ignore"}
    env.pop("FNX_BACKEND", None)
    ended = subprocess.run(
        [sys.executable, *words],
        cwd=repository, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return ended.returncode, ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def no_gpu():
    from fnx.lowering.cuda.gpu_driver import GpuDriver

    try:
        GpuDriver()
    except FnxError:
        return
    pytest.skip("there is a GPU")


@pytest.mark.slow
def test_pytest_says_that_there_is_no_gpu(repository, no_gpu):
    code, text = run(repository, "-m", "pytest", "-q", "--device", "cuda", "tests/pytree")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "--device cuda: " in text
    assert "pip install 'fnx[cuda]'" in text or "nvidia-smi" in text
    assert "NUMBA_ENABLE_CUDASIM=1" in text


def test_benchmarks_say_that_there_is_no_gpu(repository, no_gpu):
    code, text = run(repository, "benchmarks/run.py", "--quick", "--device", "cuda")
    assert code == 1
    assert "--device cuda: " in text
    assert "NUMBA_ENABLE_CUDASIM=1" in text


@pytest.mark.slow
def test_pytest_runs_in_the_simulator(repository):
    names = "structures_and_keywords or one_program_for_each or closed_over_tracers"
    chosen = ("tests/transforms/test_jit.py", "-m", "not slow", "-k", names)
    words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--device", "cuda", *chosen)
    code, text = run(repository, *words, simulated=True)
    assert code == 0, text
    assert " passed" in text


def test_unknown_devices(repository):
    code, text = run(repository, "-m", "pytest", "-q", "--device", "tpu", "tests/pytree")
    assert code == pytest.ExitCode.USAGE_ERROR
    assert "--device tpu: expected cpu or cuda" in text
