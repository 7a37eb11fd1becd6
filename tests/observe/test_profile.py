"""Profiles: what is recorded, what is shown of it, and that nothing is left behind."""

import gzip
import json
import subprocess
import sys
import threading
import types
from xml.etree import ElementTree

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core import config
from fnx.interpreters.passes import compiled as compiled_
from fnx.observe import machine as machine_
from fnx.observe import recorder as recorder_
from fnx.observe.flame import strip
from fnx.observe.machine import Machine
from fnx.observe.recorder import Event, Recorder
from fnx.observe.units import count, percent, seconds_of, table
from fnx.transforms import jit as jit_
from fnx.transforms.traced_program import NamedBackend


@pytest.fixture(autouse=True)
def known_machine(monkeypatch):
    """No test measures."""
    monkeypatch.setattr(machine_, "_known", dict.fromkeys(range(1, 999), Machine(1e10, 1e10, 2e10)))


def program(p, name):
    (found,) = [x for x in p.programs if x.name == name]
    return found


def test_a_program_is_counted_by_calls_bytes_and_operations():
    def scaled(x):
        return 2.0 * x + 1.0

    f = fnx.jit(scaled)
    with fnx.profile() as p:
        for _ in range(5):
            f(np.ones(1000))
    found = program(p, "scaled")
    assert (found.calls, found.traces, found.compiles) == (5, 1, 1)
    assert found.types == "f64[1000]"
    assert found.bytes == 5 * 16000
    assert found.flops == 5 * 2000
    assert found.exact
    assert 0 < found.seconds < p.seconds
    assert found.compile_seconds > 0 < found.trace_seconds
    assert found.share_of_memory() == pytest.approx(found.bytes / found.seconds / 1e10)
    assert found.share_of_arithmetic() == pytest.approx(found.flops / found.seconds / 1e10)


def test_kinds_add_up_to_the_whole():
    f = fnx.jit(fnx.grad(lambda x: jnp.sum(jnp.sin(x) ** 2)))
    with fnx.profile() as p:
        f(jnp.ones(7))
        jnp.ones(3) + 1
    assert sum(p.shares.values()) == pytest.approx(p.seconds)
    assert min(p.shares.values()) >= 0
    assert {"simplify", "linearize"} <= set(p.transforms)
    assert all(n > 0 and s >= 0 for n, s in p.transforms.values())


def test_calls_are_recorded_whichever_way_they_take():
    add = fnx.jit(lambda x, n: x + n, static_argnums=1)
    with_refs = fnx.jit(lambda ref: ref[...] * 2.0)
    add(jnp.ones(4), 1)
    ref = fnx.new_ref(jnp.ones(4))
    with fnx.profile() as p:
        for _ in range(3):
            add(jnp.ones(4), 1)  # the short way, after the first
        with_refs(ref)
        add(np.ones((4,), ">f8"), 1)  # whose bytes are in another order
        lax.fori_loop(0, 500, lambda i, x: 0.5 * x, jnp.ones(4))  # too long to be interpreted
        fnx.jit(lambda x: x, backend="reference")(jnp.ones(4))
        fnx.jit(jnp.sin).lower(jnp.ones(4)).compile()(jnp.ones(4))
    calls = [(x.name, x.calls) for x in p.programs if x.calls]
    assert sum(n for _, n in calls) == 8
    assert {("<lambda>", 4), ("scan", 1), ("sin", 1)} <= set(calls)


def test_profiles_list_notes_instead_of_warning():
    f = fnx.jit(lambda x: x)
    with fnx.profile() as p:
        for n in range(6):
            f(np.ones(n))
    (text,) = p.notes
    assert "x: shape f64[1] -> f64[2]" in text
    assert f"note: {text}" in str(p)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_kernels_are_known_wherever_the_code_came_from(backend):
    def scaled(x):
        return jnp.sort(2.0 * x) + 1.0

    shown = []
    for _ in range(2):  # compiled, or recalled from the disk; and recalled
        with fnx.profile() as p:
            fnx.jit(scaled, backend=backend)(np.ones(1000))
        shown.append(program(p, "scaled").kernels)
        fnx.clear_caches()
    assert shown[0] == shown[1]
    assert (backend == "cpu") == bool(shown[0])
    assert all(k.name and k.bytes > 0 for k in shown[0])
    assert all(k.name in str(p) for k in shown[1])


def test_members_of_a_mesh_are_one_program():
    with fnx.profile() as p:
        fnx.pmap(lambda x: x + lax.psum(x, "i"), axis_name="i")(jnp.ones((1, 3)))
    assert sum(x.calls for x in p.programs) >= 1


def test_sizes_that_are_not_known_are_lower_bounds():
    with fnx.profile() as p:
        fnx.jit(lambda x: lax.while_loop(lambda c: c < 5.0, lambda c: c + 1.0, x))(0.0)
        fnx.jit(lambda x: lax.fori_loop(0, 5, lambda i, c: c + 1.0, x))(0.0)
    assert sorted(x.exact for x in p.programs) == [False, True]
    assert "  >" in str(p)


def test_empty_programs_and_empty_profiles_are_shown():
    with fnx.profile() as p:
        pass
    assert "profile of" in str(p)
    assert p.programs == p.events == p.notes == []
    with fnx.profile() as p:
        fnx.jit(lambda x: x)(jnp.ones((0, 3)))
        fnx.jit(lambda: ())()
        fnx.jit(fnx.random.uniform)(fnx.random.key(0))
        fnx.jit(lambda x: x * 1j)(jnp.ones(2, jnp.complex64))
    assert len(p.programs) == 4
    assert str(p).count("\n") > 5
    ElementTree.fromstring(p._repr_html_().split("<style>")[0])


def test_nested_profiles_and_what_raises():
    f = fnx.jit(lambda x: x - 1.0)
    with fnx.profile() as outer:
        f(jnp.ones(3))
        with pytest.raises(TypeError, match="not an array"), fnx.profile() as inner:
            f(str(f(jnp.ones(3))))
        f(jnp.ones(3))
    f(jnp.ones(3))
    assert [x.calls for x in outer.programs] == [3]
    assert [x.calls for x in inner.programs] == [1]


def test_nothing_is_left_behind():
    f = fnx.jit(lambda x: x * 3.0)
    f(jnp.ones(3))
    before = compiled_.compiled, compiled_.simplify, NamedBackend.compile, jit_.Jitted._trace
    (last,) = f._last
    with fnx.profile():
        f(jnp.ones(3))
        f(jnp.ones(3))
        assert compiled_.compiled is not before[0]
    assert f._last == ()
    f(jnp.ones(3))
    assert f._last == (last,)
    # Where arrays of this process lie on several devices, calls look how.
    assert getattr(last.run, "unchecked", last.run) is last.compiled().fast
    assert (
        compiled_.compiled, compiled_.simplify, NamedBackend.compile, jit_.Jitted._trace,
    ) == before  # fmt: skip


def test_who_asks_for_nothing_loads_nothing():
    code = (
        "import sys, fnx, fnx.numpy as jnp\n"
        "f = fnx.checkpoint(lambda x: jnp.sin(x))\n"
        "fnx.jit(fnx.vmap(fnx.grad(f)))(jnp.ones(3))\n"
        "print([n for n in sys.modules if n.startswith(('fnx.observe', 'fnx.process.retraces'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_other_threads_are_recorded_with_their_names():
    f = fnx.jit(lambda x: x + 5.0)
    with fnx.profile() as p:
        threads = [threading.Thread(target=lambda: f(jnp.ones(3)), name="helper") for _ in range(3)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sum(x.calls for x in p.programs) == 3
    assert "helper" in p._recorder.threads.values()


def test_events_lie_inside_of_each_other():
    with fnx.profile() as p, fnx.profiler.TraceAnnotation("all", step=1):
        fnx.jit(lambda x: jnp.cos(x) * 2.0)(jnp.ones(3))
    mark = p.events[-1]
    assert (mark.kind, mark.name, mark.depth, mark.about) == ("mark", "all", 0, {"step": 1})
    for e in p.events:
        assert e.start >= 0
        assert e.start + e.seconds <= p.seconds
        if e is not mark:
            assert e.depth > 0
            assert mark.start <= e.start
            assert e.start + e.seconds <= mark.start + mark.seconds + 1e-9


def test_marks_cost_nothing_where_nobody_records():
    marks = fnx.profiler.annotate_function(lambda: recorder_._local.inside[:], "f")
    assert marks() == []
    with fnx.profile() as p:
        assert len(marks()) == 1
    assert [e.name for e in p.events] == ["f"]
    assert recorder_._local.inside == []


def test_files_are_chrome_traces(tmp_path):
    with fnx.profile() as p:
        fnx.jit(lambda x: x / 3.0)(jnp.ones(3))
    p.save(tmp_path / "trace.json")
    p.save(tmp_path / "trace.json.gz")
    data = json.loads((tmp_path / "trace.json").read_text())
    assert data == json.loads(gzip.decompress((tmp_path / "trace.json.gz").read_bytes()))
    events = data["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X"}
    for e in events:
        assert isinstance(e["pid"], int)
        if e["ph"] == "X":
            assert e["ts"] >= 0 <= e["dur"]
            assert isinstance(e["tid"], int)
    names = [e["name"] for e in events]
    assert {"run <lambda>", "trace <lambda>", "compile <lambda>"} <= set(names)


@pytest.mark.own_code
def test_passes_lie_where_they_were():
    """Viewers leave out what begins in one event and ends after it: a pass may lie in no other's time."""

    native = types.SimpleNamespace(
        began={"build": 1.25, "load": 1.5}, seconds={"build": 0.125, "load": 0.25}
    )
    recorder = Recorder()
    recorder.start()
    recorder.started = 1.0
    try:
        recorder_._tell(Event("compile", "f", 1.0, 1.0, 1, 0, {}), 1.0, None, None, native)
    finally:
        recorder.stop()
    found = {e.name: (e.kind, e.start, e.seconds) for e in recorder.events}
    assert found["build"] == ("pass", 0.25, 0.125)
    assert found["load"] == ("pass", 0.5, 0.25)
    with config.check(True):  # made anew, and by all passes
        made = fnx.jit(lambda x: x / 5.0).trace(jnp.ones(3)).program.compiled()
    ends = [made.began[k] + s for k, s in made.seconds.items()]
    assert list(made.began) == ["build", "check", "emit", "load"]
    assert all(e <= b for e, b in zip(ends, list(made.began.values())[1:]))


def test_what_users_mark_is_json_whatever_it_is(tmp_path):
    with (
        fnx.profile() as p,
        fnx.profiler.TraceAnnotation(b"\xff", x=float("nan"), y=jnp.ones(2), z=3),
    ):
        pass
    p.save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text()
    assert "NaN" not in text
    event = json.loads(text)["traceEvents"][-1]
    assert event["args"] == {"x": "nan", "y": "[1. 1.]", "z": 3}
    assert event["tid"] < 2**31
    ElementTree.fromstring(strip(p.events, p.seconds))


def test_traces_have_the_place_that_jax_gives_them(tmp_path):
    with fnx.profiler.trace(tmp_path, create_perfetto_trace=True):
        with fnx.profiler.StepTraceAnnotation("step", step_num=1):
            fnx.jit(lambda x: x + 1.0)(2.0)
        with pytest.raises(RuntimeError, match="already"):
            fnx.profiler.start_trace(tmp_path)
    (file,) = tmp_path.glob("plugins/profile/*/*.trace.json.gz")
    events = json.loads(gzip.decompress(file.read_bytes()))["traceEvents"]
    (step,) = [e for e in events if e["name"] == "step"]
    assert step["args"] == {"step_num": 1}
    assert (file.parent / "perfetto_trace.json.gz").exists()
    with pytest.raises(RuntimeError, match="no profile"):
        fnx.profiler.stop_trace()


def test_functions_keep_their_names_and_raise_when_annotated():
    @fnx.profiler.annotate_function
    def broken(x):
        """Raises."""
        raise KeyError(x)

    with fnx.profile() as p, pytest.raises(KeyError):
        broken(1)
    assert (broken.__name__, broken.__doc__) == ("broken", "Raises.")
    assert [e.name for e in p.events] == ["broken"]


def test_pictures_show_hostile_names_as_text_and_leave_out_what_is_too_narrow():
    long = Event("run", "<script>&'\"", 0.0, 1.0, 1, 0, {})
    short = [Event("run", "f", 1.0 + k * 1e-9, 1e-10, 1, 0, {}) for k in range(5000)]
    picture = strip([long, *short], 2.0)
    root = ElementTree.fromstring(picture)
    boxes = root.findall(".//{http://www.w3.org/2000/svg}rect")
    assert len(boxes) == 2
    assert "<script>" not in picture
    ElementTree.fromstring(strip([], 0.0))


def test_events_beyond_the_bound_are_counted(monkeypatch):
    monkeypatch.setattr(recorder_, "MOST", 2)
    f = fnx.jit(lambda x: x + 7.0)
    f(1.0)
    with fnx.profile() as p:
        for _ in range(5):
            f(1.0)
    assert len(p.events) == 2
    assert p.programs[0].calls == 5
    assert "3 events" in str(p)


def test_a_recorder_that_is_over_takes_no_more():
    found = Recorder()
    found.start()
    found.stop()
    found.add(Event("run", "late", found.started + 1.0, 1.0, 1, 0, {}), 1.0, None)
    assert found.events == []


def test_the_machine_is_measured_once_and_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("FNX_CACHE_DIR", str(tmp_path / "own"))
    monkeypatch.setattr(machine_.disk_cache, "_refused", lambda: False)
    monkeypatch.setattr(machine_, "_known", {})
    made = []
    monkeypatch.setattr(machine_, "_measured", lambda: made.append(1) or Machine(1.0, 2.0, 3.0))
    assert machine_.machine() == machine_.machine() == Machine(1.0, 2.0, 3.0)
    machine_._known.clear()
    assert machine_.machine() == Machine(1.0, 2.0, 3.0)
    assert made == [1]
    assert (machine_.machine().flops(8), machine_.machine().flops(4)) == (2.0, 3.0)
    for damaged in (None, b"", b"x", b"[1, 2]", b'{"a": 1}', b"[1, 2, -3]", b"[NaN, 1, 1]"):
        assert machine_._read(damaged) is None


def test_measuring_gives_numbers_and_is_not_recorded(monkeypatch):
    monkeypatch.setattr(machine_, "LARGE", 16)
    monkeypatch.setattr(machine_, "SIDE", 4)
    with fnx.profile() as p, recorder_.muted():
        found = machine_._measured()
    assert min(found) > 0
    assert p.events == []


def test_numbers_for_people():
    assert [seconds_of(x) for x in (0, 2.5, 1.5e-3, 2e-6, 3e-10)] == [
        "0", "2.5 s", "1.5 ms", "2 µs", "0.3 ns",
    ]  # fmt: skip
    assert [count(x, "B") for x in (0, 7, 1500, 2e6)] == ["0 B", "7 B", "1.5 kB", "2 MB"]
    assert [percent(x) for x in (0.5, 0.012, 1e-9, 0.0)] == ["50%", "1.2%", "<0.1%", "0%"]
    assert table([("a", "b", "c"), ("xx", "", "1")]) == ["a   c", "xx  1"]
