"""`python benchmarks/run.py`: measure fnx beside JAX, Numba and NumPy; print, write and draw the figures."""

from __future__ import annotations

import argparse
import fnmatch
import json
import math
import os
import platform
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import report
from measure import Settings, Spread, geometric_mean, ratio
from program import Program
from programs import GROUPS, PROBES, PROGRAMS
from report import Row
from systems import environment

HERE = Path(__file__).parent
CORES = len(os.sched_getaffinity(0))
METRICS = ("run", "objective", "memory", "compile", "warm", "process", "kernels")


def main() -> None:
    """Measure what the command line selects."""
    options = parse()
    chosen = select(options.only, options.skip)
    if options.list:
        for name in chosen:
            item = PROGRAMS.get(name) or PROBES[name]
            print(f"{item.group:24} {name}")
        return
    session = Session(options)
    rows = session.measure(chosen)
    titles = {name: group.title for name, group in GROUPS.items()}
    text = report.table(rows, titles, options.subject) + report.stages_table(session.stages)
    print(text)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    extra = {"machine": machine(), "options": vars(options), "stages": session.stages}
    report.write_json(out / "benchmarks.json", rows, extra | {"raw": session.raw})
    (out / "benchmarks.txt").write_text(text + "\n")
    written = [out / "benchmarks.json", out / "benchmarks.txt"]
    if report.picture(out / "benchmarks.png", rows, titles, options.subject):
        written.append(out / "benchmarks.png")
    print("\nwritten:", *written)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", nargs="*", default=[], help="groups, names, parts of names or patterns with *"
    )
    parser.add_argument("--skip", nargs="*", default=[], help="the same, left out")
    parser.add_argument(
        "--metrics", nargs="*", choices=METRICS, default=METRICS, help="kinds of figures"
    )
    parser.add_argument("--rounds", type=int, default=15, help="samples of each contender at most")
    parser.add_argument("--budget", type=float, default=8.0, help="seconds for a program at most")
    parser.add_argument("--processes", type=int, default=3, help="repeats of compile figures")
    parser.add_argument("--threads", type=int, nargs="*", help="counts instead of each group's own")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds without an answer")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: does it run?")
    parser.add_argument(
        "--subject", default="fnx", help="the library under test (jax: shows the noise)"
    )
    parser.add_argument("--out", default=str(HERE / "out"), help="folder for JSON and picture")
    parser.add_argument("--list", action="store_true", help="only name what would be measured")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.processes = min(options.rounds, 3), 1
        options.budget = min(options.budget, 1.0)
    return options


def select(only: Sequence[str], skip: Sequence[str]) -> list[str]:
    """Names of programs and probes in the order of the groups."""
    items = {**PROGRAMS, **PROBES}

    def matches(words: Sequence[str], name: str) -> bool:
        group = items[name].group
        return any(
            w == group if w in GROUPS else w in name or fnmatch.fnmatch(name, w) for w in words
        )

    for word in [*only, *skip]:
        if not any(matches([word], name) for name in items):
            sys.exit(f"nothing is called {word!r}; --list shows groups and names")
    found = [n for n in items if (not only or matches(only, n)) and not matches(skip, n)]
    order = list(GROUPS)
    return sorted(found, key=lambda n: order.index(items[n].group))


class Session:
    """The measurement of a selection: starts workers, keeps their records, makes rows of them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.settings = Settings(
            options.rounds,
            0.005 if options.quick else 0.02,
            options.budget,
            options.quick,
        )
        self.raw: list[dict] = []
        self.stages: dict[str, dict[str, dict[str, float]]] = {}
        self.caches = tempfile.TemporaryDirectory(prefix="fnx-benchmarks-")
        self.calls: dict[str, dict[str, float]] = {}

    def measure(self, chosen: Sequence[str]) -> list[Row]:
        """All rows, ordered by group and program."""
        programs = [PROGRAMS[n] for n in chosen if n in PROGRAMS]
        rows = [row for n in chosen if n in PROBES for row in self.probe(n)]
        rows += self.running(programs)
        rows += self.compiling(programs)
        rows += self.processes(programs)
        rows += self.kernels(programs)
        order, names = list(GROUPS), list(chosen)
        rows.sort(
            key=lambda r: (
                order.index(r.group),
                names.index(r.figure) if r.figure in names else -1,
                METRICS.index(r.metric),
                r.threads or 0,
            )
        )
        with_means = []
        for group in GROUPS:
            inside = [row for row in rows if row.group == group]
            counted = [row for row in rows if row.group in (GROUPS[group].over or (group,))]
            with_means += inside + summaries(group, counted)
        self.caches.cleanup()
        return with_means

    def wanted(self, programs: Sequence[Program], *metrics: str) -> list[Program]:
        """Those of which one of the metrics is asked."""
        asked = [m for m in metrics if m in self.options.metrics]
        return [p for p in programs if any(m in p.targets for m in asked)]

    def fresh(self) -> str:
        """A new empty folder for a cache."""
        return tempfile.mkdtemp(dir=self.caches.name)

    # steady calls -------------------------------------------------------------------------------

    def running(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of the metrics "run", "objective" and "memory"."""
        wanted = self.wanted(programs, "run", "objective", "memory")
        rows = []
        for threads, both in ((CORES, False), (1, True)):
            if self.options.threads:
                continue
            names = [p.name for p in wanted if not both or (GROUPS[p.group].threads and CORES > 1)]
            rows += self.run_at(names, threads)
        for threads in self.options.threads or ():
            rows += self.run_at([p.name for p in wanted], threads)
        return rows

    def run_at(self, names: Sequence[str], threads: int) -> list[Row]:
        """Rows with so many threads."""
        rows = []
        for record in self.work("run", names, environment(threads, self.fresh()), threads):
            program = PROGRAMS[record["program"]]
            several = GROUPS[program.group].threads or self.options.threads
            rows += self.timing_rows(program, record, threads if several else None)
            if threads == CORES:
                self.calls[program.name] = {
                    label: Spread.of(s).median for label, s in record["samples"].items() if s
                }
        return rows

    def timing_rows(self, program: Program, record: dict, threads: int | None) -> list[Row]:
        """A row for each rival of each metric in the record of a worker."""
        samples, errors = dict(record.get("samples", {})), record.get("errors", {})
        rivals = [samples[k] for k in ("jax", "numpy") if k in samples]
        if rivals:
            samples["best"] = min(rivals, key=lambda s: Spread.of(s).median)
        bytes_ = {k: [v] for k, v in record.get("bytes", {}).items()}
        rows = []
        for metric in ("run", "objective", "memory"):
            if metric not in self.options.metrics:
                continue
            kept = bytes_ if metric == "memory" else samples
            for rival, target in program.targets.get(metric, {}).items():
                label = "objective" if metric == "objective" else rival
                suffix = " memory" if metric == "memory" else ""
                error = errors.get("subject" + suffix) or errors.get("subject")
                if not error and label in errors:
                    error = f"{label}: {errors[label]}"
                if label not in kept and label not in errors and "subject" in kept:
                    continue  # a rival that is not installed here
                rows.append(
                    compared(
                        Row(program.name, program.group, metric, rival, target, threads=threads),
                        kept.get("subject"),
                        kept.get(label),
                        error,
                    )
                )
        return rows

    # compile time -------------------------------------------------------------------------------

    def compiling(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "compile" and "warm": each library, with an empty and with a filled cache."""
        names = [p.name for p in self.wanted(programs, "compile", "warm")]
        if not names:
            return []
        warm = any("warm" in PROGRAMS[n].targets for n in names) and "warm" in self.options.metrics
        runs: dict[str, dict[str, list[dict]]] = {}
        subject, jax_cache = self.options.subject, self.fresh()

        def collect(label: str, name: str, cache: str, jax_cache: str | None = None) -> None:
            env = environment(None, cache, jax_cache)
            for record in self.work("compile", names, env, subject=name):
                runs.setdefault(record["program"], {}).setdefault(label, []).append(record)

        for repeat in range(self.options.processes):
            cache = self.fresh()
            own_cache = cache if subject == "jax" else None
            collect("cold", subject, cache, own_cache)
            collect("jax cold", "jax", cache)
            if warm:
                collect("warm", subject, cache, own_cache)
                if not repeat:
                    collect("jax filling", "jax", cache, jax_cache)
                collect("jax warm", "jax", cache, jax_cache)
        rows = []
        for name in names:
            rows += self.compile_rows(PROGRAMS[name], runs.get(name, {}))
        return rows

    def compile_rows(self, program: Program, found: dict[str, list[dict]]) -> list[Row]:
        """Rows of one program, and its line in the table of stages."""
        rows = []
        for metric, ours, theirs in (("compile", "cold", "jax cold"), ("warm", "warm", "jax warm")):
            for label in (ours, theirs):
                self.keep_stages(program.name, label, found.get(label, []))
            if metric not in self.options.metrics:
                continue
            for rival, target in program.targets.get(metric, {}).items():
                row = Row(program.name, program.group, metric, rival, target)
                error = next((r["error"] for r in found.get(ours, []) if r.get("error")), None)
                a, b = totals(found.get(ours, [])), totals(found.get(theirs, []))
                if b or error or not a:
                    rows.append(compared(row, a, b, error))
        return rows

    def keep_stages(self, name: str, label: str, records: list[dict]) -> None:
        """Median seconds by stage of one kind of run."""
        good = [r["stages"] for r in records if r.get("stages")]
        if not good:
            return
        stages = {k: Spread.of([g[k] for g in good]).median for k in good[0]}
        call = self.calls.get(name, {}).get("jax" if label.startswith("jax") else "subject")
        library = "jax" if label.startswith("jax") else self.options.subject
        kind = f"{library} {label.removeprefix('jax ')}"
        self.stages.setdefault(name, {})[kind] = stages | ({"call": call} if call else {})

    def processes(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "process": a process of its own for each, first with an empty cache, then with that."""
        rows = []
        for program in self.wanted(programs, "process"):
            runs: dict[str, list[dict]] = {"cold": [], "warm": []}
            for _ in range(self.options.processes):
                cache = self.fresh()
                own = cache if self.options.subject == "jax" else None
                for kind in runs:
                    env = environment(None, cache, own)
                    work = self.work("process", [program.name], env)
                    runs[kind] += list(work)
            error = next((r["error"] for k in runs.values() for r in k if r.get("error")), None)
            row = Row(
                program.name, program.group, "process", "own", program.targets["process"]["own"]
            )
            warm, cold = (totals(runs[k], first_call=True) for k in ("warm", "cold"))
            rows.append(compared(row, warm, cold, error))
        return rows

    # counts and probes --------------------------------------------------------------------------

    def kernels(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "kernels": how many are compiled for the second size."""
        names = [p.name for p in self.wanted(programs, "kernels")]
        return [
            counted(PROGRAMS[r["program"]].name, PROGRAMS[r["program"]].group, r, PROGRAMS[r["program"]].targets)
            for r in self.work("kernels", names, environment(None, self.fresh()))
        ]

    def probe(self, name: str) -> list[Row]:
        """Rows of a probe."""
        probe = PROBES[name]
        self.say(name)
        rows = []
        for record in probe.probe(self.options.subject, self.settings):
            self.raw.append(record)
            figure, targets = record["program"], record["targets"]
            if "kernels" in targets:
                rows.append(counted(figure, probe.group, record, targets))
                continue
            shown = Program(figure, probe.group, None, None, targets=targets)
            rows += self.timing_rows(shown, record, None)
        return rows

    # workers ------------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Progress on standard error."""
        print(f"... {text}", file=sys.stderr, flush=True)

    def work(
        self,
        mode: str,
        names: Sequence[str],
        env: dict[str, str],
        threads: int | None = None,
        subject: str | None = None,
    ) -> Iterator[dict]:
        """Records of a worker on `names`; one that dies costs one program."""
        subject, left = subject or self.options.subject, list(names)
        while left:
            command = [sys.executable, str(HERE / "worker.py"), mode, *left]
            command += ["--subject", subject, "--settings", json.dumps(asdict(self.settings))]
            command += ["--threads", str(threads)] if threads else []
            current = None
            for record in lines(command, env, self.options.timeout):
                if "start" in record:
                    current = record["start"]
                    self.say(f"{mode} {subject}: {current}")
                elif "program" in record:
                    left.remove(record["program"])
                    current = None
                    self.raw.append({"mode": mode, "subject": subject, "threads": threads, **record})
                    yield record
                else:
                    died = record["died"]
                    name = current or left[0]
                    left.remove(name)
                    errors = {"subject": died}
                    yield {"program": name, "error": died, "errors": errors, "samples": {}}


def lines(command: list[str], env: dict[str, str], timeout: float) -> Iterator[dict]:
    """The JSON lines that a process prints; one more, {"died": why}, if it ends badly or hangs."""
    process = subprocess.Popen(
        command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    found: queue.Queue = queue.Queue()
    said: list[str] = []

    def read() -> None:
        for line in process.stdout:
            found.put(line)
        found.put(None)

    def listen() -> None:
        for line in process.stderr:
            said.append(line)
            del said[:-200]

    readers = [threading.Thread(target=t, daemon=True) for t in (read, listen)]
    for reader in readers:
        reader.start()
    while True:
        try:
            line = found.get(timeout=timeout)
        except queue.Empty:
            process.kill()
            process.wait()
            yield {"died": f"no answer within {timeout:.0f} s"}
            return
        if line is None:
            break
        yield json.loads(line)
    status = process.wait()
    readers[1].join(timeout=1)
    if os.environ.get("FNX_BENCH_TRACEBACK"):
        sys.stderr.write("".join(said))
    if status:
        last = next((line.strip() for line in reversed(said) if line.strip()), "")
        yield {"died": f"the process ended with status {status}: {last[:300]}"}


def totals(records: Sequence[dict], first_call: bool = False) -> list[float]:
    """Seconds from function to callable, or to the first result."""
    names = ("trace", "compile") + (("first call",) if first_call else ())
    return [sum(r["stages"][n] for n in names) for r in records if r.get("stages")]


def compared(
    row: Row, ours: list[float] | None, theirs: list[float] | None, error: str | None
) -> Row:
    """The row with its samples."""
    fields = {k: getattr(row, k) for k in ("figure", "group", "metric", "rival", "target", "threads")}
    return Row(
        **fields,
        ours=Spread.of(ours) if ours else None,
        theirs=Spread.of(theirs) if theirs else None,
        ratio=ratio(ours, theirs) if ours and theirs else None,
        error=error,
    )


def counted(figure: str, group: str, record: dict, targets: dict) -> Row:
    """The row of a count that should be small."""
    found, count = record.get("kernels"), None
    if found:
        count = Spread.of([found["second"]])
    target = targets["kernels"]["count"]
    return Row(
        figure, group, "kernels", "count", target, count, None, count, error=record.get("error")
    )


def summaries(group: str, rows: Sequence[Row]) -> list[Row]:
    """Rows of the group's means and worst figures."""
    found = []
    for asked in GROUPS[group].summaries:
        for threads in dict.fromkeys(r.threads for r in rows if r.metric == asked.metric):
            same = [
                r
                for r in rows
                if (r.metric, r.rival, r.threads) == (asked.metric, asked.rival, threads)
            ]
            ratios = [r.ratio.median for r in same if r.ratio and not r.error]
            failed = sum(1 for r in same if r.error)
            said = f"{failed} of {len(same)} programs failed" if failed else None
            base = (group, asked.metric, asked.rival)
            mean = geometric_mean(ratios) if ratios else math.nan
            worst = max(ratios) if ratios else math.nan
            for title, value, target in (
                ("geometric mean", mean, asked.mean),
                ("worst", worst, asked.worst),
            ):
                spread = Spread(value, value, value) if ratios else None
                if target is not None:
                    found.append(
                        Row(title, *base, target, None, None, spread, threads, said)
                    )
    return found


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    versions = {}
    for name in ("numpy", "scipy", "numba", "llvmlite", "jax", "jaxlib", "fnx"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    models = [
        line.split(":", 1)[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ] if Path("/proc/cpuinfo").exists() else []
    return {
        "processor": models[0] if models else platform.processor(),
        "cores": CORES,
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


if __name__ == "__main__":
    main()
