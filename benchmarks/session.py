"""A run over a selection of programs: which workers to start, and the rows made of what they say."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace

import launch
from measure import Settings, Spread, geometric_mean, ratio
from program import Program
from programs import GROUPS, PROBES, PROGRAMS
from report import Row
from systems import environment

CORES = len(os.sched_getaffinity(0))
METRICS = ("run", "objective", "memory", "compile", "warm", "process", "kernels")


class Session:
    """Measures what the options ask, and keeps the raw records and the stages of compilation."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        sample = 0.005 if options.quick else 0.02
        self.settings = Settings(options.rounds, sample, options.budget, options.quick)
        self.raw: list[dict] = []
        self.stages: dict[str, dict[str, dict[str, float]]] = {}
        self.calls: dict[str, dict[str, float]] = {}
        self.caches = tempfile.TemporaryDirectory(prefix="fnx-benchmarks-")

    def measure(self, chosen: Sequence[str]) -> list[Row]:
        """All rows, ordered by group and program, each group followed by its means."""
        programs = [PROGRAMS[n] for n in chosen if n in PROGRAMS]
        rows = [row for n in chosen if n in PROBES for row in self.probe(n)]
        rows += self.running(programs)
        rows += self.compiling(programs)
        rows += self.processes(programs)
        rows += self.kernels(programs)
        self.caches.cleanup()
        order = {name: k for k, name in enumerate(chosen)}
        rows.sort(key=lambda r: (order.get(r.figure, -1), METRICS.index(r.metric), r.threads or 0))
        ordered = []
        for group, about in GROUPS.items():
            counted = [row for row in rows if row.group in (about.over or (group,))]
            ordered += [row for row in rows if row.group == group] + summaries(group, counted)
        return ordered

    def wanted(self, programs: Sequence[Program], *metrics: str) -> list[Program]:
        """Those of which one of the metrics is asked."""
        asked = [m for m in metrics if m in self.options.metrics]
        return [p for p in programs if any(m in p.targets for m in asked)]

    def work(
        self,
        mode: str,
        names: Sequence[str],
        env: dict[str, str],
        threads: int | None = None,
        subject: str | None = None,
    ) -> Iterator[dict]:
        """Records of workers, kept raw."""
        subject = subject or self.options.subject
        said = {"mode": mode, "subject": subject, "threads": threads}
        for record in launch.records(
            mode, names, subject, self.settings, env, self.options.timeout, threads
        ):
            self.raw.append(said | record)
            yield record

    def fresh(self) -> str:
        """A new empty folder for a cache."""
        return tempfile.mkdtemp(dir=self.caches.name)

    # steady calls -------------------------------------------------------------------------------

    def running(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of the metrics "run", "objective" and "memory"."""
        wanted = self.wanted(programs, "run", "objective", "memory")
        if self.options.threads:
            return [row for n in self.options.threads for row in self.run_at(wanted, n)]
        both = [p for p in wanted if GROUPS[p.group].threads and CORES > 1]
        return self.run_at(wanted, CORES) + self.run_at(both, 1)

    def run_at(self, programs: Sequence[Program], threads: int) -> list[Row]:
        """Rows with so many threads."""
        rows = []
        names = [p.name for p in programs]
        for record in self.work("run", names, environment(threads, self.fresh()), threads):
            program = PROGRAMS[record["program"]]
            several = GROUPS[program.group].threads or self.options.threads
            rows += self.timing_rows(program, record, threads if several else None)
            samples = record["samples"]
            calls = {label: Spread.of(s).median for label, s in samples.items() if s}
            self.calls.setdefault(program.name, calls)
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
            kept, suffix = (bytes_, " memory") if metric == "memory" else (samples, "")
            for rival, target in program.targets.get(metric, {}).items():
                label = "objective" if metric == "objective" else rival
                error = errors.get("subject" + suffix) or errors.get("subject")
                if not error and label in errors:
                    error = f"{label}: {errors[label]}"
                if label not in kept and label not in errors and "subject" in kept:
                    continue  # a rival that is not installed here
                row = Row(program.name, program.group, metric, rival, target, threads=threads)
                rows.append(compared(row, kept.get("subject"), kept.get(label), error))
        return rows

    # compile time -------------------------------------------------------------------------------

    def compiling(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "compile" and "warm": each library, with an empty and with a filled cache."""
        names = [p.name for p in self.wanted(programs, "compile", "warm")]
        warm = "warm" in self.options.metrics and any("warm" in PROGRAMS[n].targets for n in names)
        runs: dict[str, dict[str, list[dict]]] = {}
        subject, jax_cache = self.options.subject, self.fresh()

        def collect(**kinds: tuple[str, str, str | None]) -> None:
            """Workers of several kinds (library, cache, JAX's cache) in turn, program by program."""
            work = [
                self.work("compile", names, environment(None, cache, jax_cache), subject=name)
                for name, cache, jax_cache in kinds.values()
            ]
            for records in zip(*work, strict=True):
                for kind, record in zip(kinds, records):
                    runs.setdefault(record["program"], {}).setdefault(kind, []).append(record)

        for repeat in range(self.options.processes):
            cache = self.fresh()
            own_cache = cache if subject == "jax" else None
            filling = {"jax_filling": ("jax", cache, jax_cache)} if warm and not repeat else {}
            collect(cold=(subject, cache, own_cache), jax_cold=("jax", cache, None), **filling)
            if warm:
                collect(warm=(subject, cache, own_cache), jax_warm=("jax", cache, jax_cache))
        return [row for n in names for row in self.compile_rows(PROGRAMS[n], runs.get(n, {}))]

    def compile_rows(self, program: Program, found: dict[str, list[dict]]) -> list[Row]:
        """Rows of one program, and its lines in the table of stages."""
        rows = []
        for metric, ours, theirs in (("compile", "cold", "jax_cold"), ("warm", "warm", "jax_warm")):
            for label in (ours, theirs):
                self.keep_stages(program.name, label, found.get(label, []))
            if metric not in self.options.metrics:
                continue
            for rival, target in program.targets.get(metric, {}).items():
                row = Row(program.name, program.group, metric, rival, target)
                error = first_error(found.get(ours, []))
                a, b = totals(found.get(ours, [])), totals(found.get(theirs, []))
                if b or error:
                    rows.append(compared(row, a, b, error))
        return rows

    def keep_stages(self, name: str, label: str, records: list[dict]) -> None:
        """Median seconds by stage of one kind of run."""
        good = [r["stages"] for r in records if r.get("stages")]
        if not good:
            return
        stages = {k: Spread.of([g[k] for g in good]).median for k in good[0]}
        rival = label.startswith("jax")
        call = self.calls.get(name, {}).get("jax" if rival else "subject")
        kind = label.replace("_", " ") if rival else f"{self.options.subject} {label}"
        self.stages.setdefault(name, {})[kind] = stages | ({"call": call} if call else {})

    def processes(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "process": a program alone in a process, with an empty cache, then with that cache."""
        rows = []
        for program in self.wanted(programs, "process"):
            runs: dict[str, list[dict]] = {"cold": [], "warm": []}
            for _ in range(self.options.processes):
                cache = self.fresh()
                env = environment(None, cache, cache if self.options.subject == "jax" else None)
                for records in runs.values():
                    records += self.work("process", [program.name], env)
            target = program.targets["process"]["own"]
            row = Row(program.name, program.group, "process", "own", target)
            warm, cold = (totals(runs[k], first_call=True) for k in ("warm", "cold"))
            rows.append(compared(row, warm, cold, first_error(runs["cold"] + runs["warm"])))
        return rows

    # counts and probes --------------------------------------------------------------------------

    def kernels(self, programs: Sequence[Program]) -> list[Row]:
        """Rows of "kernels": how many are compiled for the second size."""
        wanted = {p.name: p for p in self.wanted(programs, "kernels")}
        work = self.work("kernels", list(wanted), environment(None, self.fresh()))
        found = [(wanted[record["program"]], record) for record in work]
        return [counted(p.name, p.group, record, p.targets) for p, record in found]

    def probe(self, name: str) -> list[Row]:
        """Rows of a probe."""
        probe = PROBES[name]
        launch.say(name)
        rows = []
        for record in probe.probe(self.options.subject, self.settings):
            self.raw.append(record)
            figure, targets = record["program"], record["targets"]
            group = record.get("group", probe.group)
            if "kernels" in targets:
                rows.append(counted(figure, group, record, targets))
            else:
                shown = Program(figure, group, None, None, targets=targets)
                rows += self.timing_rows(shown, record, None)
        return rows


def first_error(records: Sequence[dict]) -> str | None:
    """What went wrong, if anything did."""
    return next((r["error"] for r in records if r.get("error")), None)


def totals(records: Sequence[dict], first_call: bool = False) -> list[float]:
    """Seconds from function to callable, or to the first result."""
    names = ("trace", "compile") + (("first call",) if first_call else ())
    return [sum(r["stages"][n] for n in names) for r in records if r.get("stages")]


def compared(
    row: Row, ours: list[float] | None, theirs: list[float] | None, error: str | None
) -> Row:
    """The row with its samples."""
    return replace(
        row,
        ours=Spread.of(ours) if ours else None,
        theirs=Spread.of(theirs) if theirs else None,
        ratio=ratio(ours, theirs) if ours and theirs else None,
        error=error,
    )


def counted(figure: str, group: str, record: dict, targets: dict) -> Row:
    """The row of a count that should be small."""
    found = record.get("kernels")
    count = Spread.of([found["second"]]) if found else None
    target, error = targets["kernels"]["count"], record.get("error")
    return Row(figure, group, "kernels", "count", target, count, None, count, error=error)


def summaries(group: str, rows: Sequence[Row]) -> list[Row]:
    """Rows of what is asked of a group as a whole: the mean, the worst."""
    found = []
    for asked in GROUPS[group].summaries:
        for threads in dict.fromkeys(r.threads for r in rows if r.metric == asked.metric):
            kind = (asked.metric, asked.rival, threads)
            same = [r for r in rows if (r.metric, r.rival, r.threads) == kind]
            ratios = [r.ratio.median for r in same if r.ratio and not r.error] or [math.nan]
            failed = sum(1 for r in same if r.error)
            error = f"{failed} of {len(same)} programs failed" if failed else None
            for title, value, target in (
                ("geometric mean", geometric_mean(ratios), asked.mean),
                ("worst", max(ratios), asked.worst),
            ):
                if target is not None:
                    row = Row(title, group, asked.metric, asked.rival, target, threads=threads)
                    spread = None if math.isnan(value) else Spread(value, value, value)
                    found.append(replace(row, ratio=spread, error=error))
    return found
