"""%load_ext fnx: with what is needed of IPython's shell, and with IPython where it is installed."""

import json
import warnings

import pytest

import fnx
from fnx.core import config
from fnx.observe import machine as machine_
from fnx.observe.benchmark import Benchmark
from fnx.observe.machine import Machine
from fnx.observe.profile import Profile
from fnx.process.retraces import RetraceWarning

SETUP = "import fnx, fnx.numpy as jnp\nf = fnx.jit(lambda x: 2.0 * x)"


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    monkeypatch.setattr(machine_, "_known", dict.fromkeys(range(1, 999), Machine(1e10, 1e10, 2e10)))


class Shell:
    """What the magics use of IPython's shell."""

    def __init__(self):
        self.user_ns, self.magics = {}, {}

    def register_magic_function(self, func, magic_kind="line", magic_name=None):
        self.magics[magic_name] = magic_kind, func

    def run_cell(self, text):
        exec(text, self.user_ns)

    def magic(self, name, *given):
        return self.magics[name][1](*given)


@pytest.fixture
def shell():
    made = Shell()
    fnx.load_ipython_extension(made)
    made.run_cell(SETUP)
    yield made
    fnx.unload_ipython_extension(made)
    assert not config.retrace_notes.value


def test_a_cell_is_profiled_under_a_name(shell):
    found = shell.magic("fnx_profile", "p", "y = f(jnp.ones(3))")
    assert isinstance(found, Profile)
    assert shell.user_ns["p"] is found
    assert [x.calls for x in found.programs] == [1]
    assert shell.user_ns["y"].shape == (3,)
    assert "<svg" in found._repr_html_()


def test_a_line_is_profiled_and_a_file_written(shell, tmp_path):
    assert len(shell.magic("fnx_profile", "f(jnp.ones(3))").programs) == 1
    shell.magic("fnx_profile", f"{tmp_path}/trace.json", "f(jnp.ones(3))")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    with pytest.raises(ValueError, match="a variable's name, or a file's"):
        shell.magic("fnx_profile", "two words", "f(jnp.ones(3))")


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("f(jnp.ones(3))", "<lambda>"),
        (" f(x=jnp.ones(3)) ", "<lambda>"),
        ("f(*[jnp.ones(3)])", "<lambda>"),
        ("sum({'a': 1, 'b': 2}.values())", "sum"),
        ("len([k for k in range(3)])", "len"),
        ("1 + 1", "<lambda>"),
    ],
)
def test_calls_are_benchmarked(shell, line, name, monkeypatch):
    monkeypatch.setattr("fnx.observe.benchmark.MOST", 3)
    found = shell.magic("fnx_benchmark", line)
    assert isinstance(found, Benchmark)
    assert found.name == name
    assert len(found.samples) == 3


def test_no_expression_is_refused(shell):
    with pytest.raises(ValueError, match="expected a call"):
        shell.magic("fnx_benchmark", "x = 1")
    with pytest.raises(NameError):
        shell.magic("fnx_benchmark", "no_such_name(1)")


def test_retraces_are_noted_while_the_extension_is_loaded(shell):
    with pytest.warns(RetraceWarning, match=r"shape f64\[2\] -> f64\[3\]"):
        shell.run_cell("for n in range(1, 9): f(jnp.ones(n))")


def test_loading_twice_and_unloading_keep_the_setting():
    with config.retrace_notes(False):
        fnx.load_ipython_extension(Shell())
        fnx.load_ipython_extension(Shell())
    fnx.unload_ipython_extension(Shell())
    fnx.unload_ipython_extension(Shell())
    assert not config.retrace_notes.value


def test_in_ipython(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        interactive = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
    monkeypatch.setattr("fnx.observe.benchmark.MOST", 3)
    shell = interactive()
    shell.history_manager.enabled = False
    try:
        for cell in (f"%load_ext fnx\n{SETUP}", "%%fnx_profile p\nf(jnp.ones(3))"):
            assert shell.run_cell(cell).success
        assert shell.user_ns["p"].programs[0].calls == 1
        found = shell.run_cell("%fnx_benchmark f({'x': jnp.ones(3)}['x'])")
        assert isinstance(found.result, Benchmark)
        assert shell.run_cell("%unload_ext fnx").success
    finally:
        fnx.unload_ipython_extension(shell)
        shell.history_manager.end_session()
    assert "profile of" in capsys.readouterr().out
