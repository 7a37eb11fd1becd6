"""A process that measures programs one by one and prints a line of JSON for each.

A crash then costs one figure: whoever started the worker starts another for the programs left.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import systems
from measure import Settings, Timed, interleave
from program import Program
from programs import PROGRAMS
from systems import System


def main() -> None:
    """Measure the programs named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=sorted(MODES))
    parser.add_argument("names", nargs="+")
    parser.add_argument("--subject", default="fnx")
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    if options.threads:  # before the libraries start their pools of threads
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    settings = Settings(**options.settings)
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)  # what libraries print must not mix with the records
        for record in MODES[options.mode](options, settings):
            out.write(json.dumps(record) + "\n")
            out.flush()


def turns(names: list[str]) -> Iterator[str]:
    """The names, each when a line on standard input asks for it."""
    for name in names:
        if not sys.stdin.readline():
            return
        yield name


def attempt(action: Callable[[], Any]) -> tuple[Any, str | None]:
    """The value of `action()` and None, or None and the error in one line."""
    try:
        return action(), None
    except (KeyboardInterrupt, MemoryError):
        raise
    except BaseException as error:
        if "FNX_BENCH_TRACEBACK" in os.environ:
            traceback.print_exc()
        said = str(error).strip().splitlines() or [""]
        return None, f"{type(error).__name__}: {said[0][:300]}"


def run(options: argparse.Namespace, settings: Settings) -> Iterator[dict]:
    """Steady calls of each program by every contender, interleaved, after a check that they agree."""
    subject, no_subject = attempt(lambda: systems.load(options.subject))
    jax, _ = attempt(lambda: systems.load("jax"))
    libraries = {options.subject: subject, "rival jax": jax}
    for name in turns(options.names):
        yield {"start": name}
        program = PROGRAMS[name]
        record: dict = {"program": name, "samples": {}, "errors": {}}
        if subject is None:
            record["errors"]["subject"] = no_subject
        measure_program(program, libraries, options.subject, settings, record)
        yield record


def measure_program(
    program: Program,
    libraries: dict[str, System | None],
    subject: str,
    settings: Settings,
    record: dict,
) -> None:
    """Fill `record` with samples in seconds by contender, bytes, and errors."""
    size = program.size_for(settings.quick)
    inputs = program.inputs(size)
    timed: dict[str, Timed] = {}
    results: dict[str, Any] = {}
    for name, system in libraries.items():
        if system is None:
            continue
        label = "jax" if name == "rival jax" else "subject"
        made, error = attempt(lambda s=system: prepare(program, s, size, inputs))
        if error:
            record["errors"][label] = error
        else:
            timed[label], results[label] = made
    for name, build in program.rivals.items():
        made, error = attempt(lambda b=build: prepare_rival(b(size), inputs))
        if error:
            record["errors"][name] = error
        else:
            timed[name], results[name] = made
    compare(program, results, timed, record)
    base = libraries.get(subject)
    if program.objective and "subject" in timed:
        made, error = attempt(lambda: prepare_objective(program, base, size, inputs))
        if error:
            record["errors"]["objective"] = error
        else:
            timed["objective"] = made
    record["samples"] = interleave(timed, settings)
    if "memory" in program.targets:
        memory(program, libraries, size, inputs, record)


def compare(program: Program, results: dict, timed: dict, record: dict) -> None:
    """Drop what does not agree with the reference: JAX, else the subject."""
    reference = "jax" if "jax" in results else "subject"
    for name in [n for n in results if n != reference]:
        if reference not in results:
            return
        said, error = attempt(
            lambda n=name: systems.disagreement(results[n], results[reference], program.tolerance)
        )
        if said or error:
            record["errors"][name] = f"wrong result: {said or error}"
            del timed[name]


def prepare(program: Program, system: System, size: Any, inputs: tuple) -> tuple[Timed, Any]:
    """A library's version, called once."""
    function = program.make(system.jax, system.jnp, system.lax, size)
    if not program.eager:
        function = system.jax.jit(function)
    args = inputs if program.feed_numpy else system.feed(inputs)
    result = function(*args)
    wait = system.waiter(result)
    wait(result)
    return Timed(function, args, wait, program.wait_each), result


def prepare_objective(program: Program, system: System, size: Any, inputs: tuple) -> Timed:
    """The function of which `program` is a derivative."""
    function = system.jax.jit(program.objective(system.jax, system.jnp, system.lax, size))
    args = system.feed(inputs)
    wait = system.waiter(function(*args))
    return Timed(function, args, wait, program.wait_each)


def prepare_rival(function: Callable, inputs: tuple) -> tuple[Timed, Any]:
    """A hand-written version, called once (where it is compiled)."""
    result = function(*inputs)
    return Timed(function, inputs, lambda _: None), result


def memory(program: Program, libraries: dict, size: Any, inputs: tuple, record: dict) -> None:
    """Bytes of temporaries, as the libraries report them, and of a hand-written adjoint."""
    record["bytes"] = {"hand": program.adjoint_bytes(size)} if program.adjoint_bytes else {}
    for name, system in libraries.items():
        if system is None:
            continue
        label = "jax" if name == "rival jax" else "subject"
        found, error = attempt(lambda s=system: temporaries(program, s, size, inputs))
        if error:
            record["errors"][f"{label} memory"] = error
        else:
            record["bytes"][label] = found


def temporaries(program: Program, system: System, size: Any, inputs: tuple) -> int:
    """Bytes that the compiled program needs beyond inputs and outputs."""
    function = program.make(system.jax, system.jnp, system.lax, size)
    _, compiled, _ = system.stages(function, system.feed(inputs))
    return int(compiled.memory_analysis().temp_size_in_bytes)


def compile_each(options: argparse.Namespace, settings: Settings) -> Iterator[dict]:
    """Seconds to trace, compile and first call each program, library start-up paid before."""
    system = systems.load(options.subject)
    attempt(lambda: system.stages(lambda x: x * 2.0 + 1.0, (system.jnp.asarray(np.ones(3)),)))
    yield from stages(system, options.names, settings)


def process(options: argparse.Namespace, settings: Settings) -> Iterator[dict]:
    """As compile, but the first program pays for the start of the library."""
    yield from stages(systems.load(options.subject), options.names, settings)


def stages(system: System, names: list[str], settings: Settings) -> Iterator[dict]:
    """Records of stages."""
    for name in turns(names):
        yield {"start": name}
        program = PROGRAMS[name]
        size = program.size_for(settings.quick)

        def measured(program: Program = program, size: Any = size) -> dict:
            args = system.feed(program.inputs(size))
            function = program.make(system.jax, system.jnp, system.lax, size)
            return system.stages(function, args)[0]

        found, error = attempt(measured)
        yield {"program": name, "stages": found, "error": error}


def kernels(options: argparse.Namespace, settings: Settings) -> Iterator[dict]:
    """Kernels compiled anew when a program that ran at one size runs at another."""
    system = systems.load(options.subject)
    for name in turns(options.names):
        yield {"start": name}
        program = PROGRAMS[name]

        def count(program: Program = program) -> dict:
            counts = [systems.kernels_compiled(system.jax)]
            for size in (program.quick, program.size):
                function = system.jax.jit(program.make(system.jax, system.jnp, system.lax, size))
                result = function(*system.feed(program.inputs(size)))
                system.waiter(result)(result)
                counts.append(systems.kernels_compiled(system.jax))
            return {"first": counts[1] - counts[0], "second": counts[2] - counts[1]}

        found, error = attempt(count)
        yield {"program": name, "kernels": found, "error": error}


MODES = {"run": run, "compile": compile_each, "process": process, "kernels": kernels}

if __name__ == "__main__":
    main()
