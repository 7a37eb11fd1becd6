"""The native half of a call, as LLVM IR: check the leaves, make the outputs, run, wrap.

One module serves all programs. It is written against the C APIs of CPython and NumPy; a *plan*, an
array of 64-bit words, tells it what the program at hand expects. All of it but the program itself
runs while the GIL is held.
"""

from fnx.lowering.cpu.llvm.ir_builder import NULL, Function, Module, Value, i32, i64
from fnx.lowering.cpu.processor import thresholds

from . import allocator, team_layout
from .abi import (
    BOOL,
    BYTE_ORDER,
    BYTES,
    CLASS,
    CONTIGUOUS_ALIGNED,
    DATA,
    DESCR,
    DESCRIPTOR,
    DIMENSIONS,
    DIMS,
    ENTRY,
    FLAGS,
    FLOAT,
    FLOAT32,
    FLOAT64,
    FRESH,
    HEADER,
    INPUTS,
    INT32,
    INT64,
    ITEMS,
    LENGTH,
    NDIM,
    NO_MEMORY,
    NO_RESULTS,
    ON_ERROR,
    OUTPUTS,
    PARAMS,
    RANK,
    RECORD,
    RELEASE,
    SCALAR,
    SCALAR_TYPE,
    TUPLE_ITEMS,
    TYPE,
    VALUE_AT,
    WEAK,
    WEAK_AT,
    WORKSPACE,
    WRAP,
)


def text() -> str:
    """The LLVM IR of the module."""
    module = Module()
    module.variable("fnx_main_thread", "i64", public=True)
    module.variable("fnx_exiting", "i64", public=True)  # 1 when other threads should end
    module.variable("last_poll", "i64")
    module.variable("fnx_member_key", "i64", "-1", public=True)  # of members of teams (team.py)
    allocator.define(module)
    for write in (_scalar, _array_of, _is_array, _accept):
        write(module)
    for write in (_output, _box, _run, _run_held, _fail, _release, _call, _poll):
        write(module)
    return str(module)


# --- inputs ------------------------------------------------------------------------------------


def _scalar(module: Module) -> None:
    """Put a Python number into a slot as the number that the program expects; 0 if it cannot be."""
    with Function(module, "scalar", "i32", "ptr", "ptr", "ptr") as f:
        leaf, record, slot = f.args
        kind, wanted = f.pointer(leaf, TYPE), f.load(record, 8 * SCALAR)
        with f.when(f.same(kind, f.object("PyFloat_Type"))):
            value = f.load(leaf, FLOAT, "double")
            with f.when(f.compare("eq", wanted, FLOAT64)):
                f.store(value, slot)
                f.ret(i32(1))
            with f.when(f.compare("eq", wanted, FLOAT32)):
                f.store(f.convert("fptrunc", value, "float"), slot)
                f.ret(i32(1))
        is_bool = f.same(kind, f.object("PyBool_Type"))
        with f.when(f.both(is_bool, f.compare("eq", wanted, BOOL))):
            true = f.same(leaf, f.object("_Py_TrueStruct"))
            f.store(f.convert("zext", true, "i8"), slot)
            f.ret(i32(1))
        with f.when(f.same(kind, f.object("PyLong_Type"))):
            _integer(f, leaf, wanted, slot)
        f.ret(i32(0))


def _integer(f: Function, leaf: Value, wanted: Value, slot: Value) -> None:
    wide, narrow = f.compare("eq", wanted, INT64), f.compare("eq", wanted, INT32)
    with f.when(f.either(wide, narrow)):
        overflow = f.variable("i32", 0)
        value = f.call("PyLong_AsLongLongAndOverflow", "i64", leaf, overflow.slot)
        fits = f.compare("eq", overflow.get(), 0)
        with f.when(f.both(fits, wide)):
            f.store(value, slot)
            f.ret(i32(1))
        short = f.convert("trunc", value, "i32")
        with f.when(f.both(fits, narrow, f.same(f.convert("sext", short, "i64"), value))):
            f.store(short, slot)
            f.ret(i32(1))


def _array_of(module: Module) -> None:
    """The NumPy array of a leaf, borrowed; null if it has none or its weak type is not the one."""
    with Function(module, "array_of", "ptr", "ptr", "ptr", "ptr") as f:
        plan, record, leaf = f.args
        weak = f.pointer(record, 8 * WEAK)
        with f.when(f.same(f.pointer(leaf, TYPE), f.pointer(plan, 8 * CLASS))):
            found = f.pointer(leaf, f.load(plan, 8 * WEAK_AT))
            agrees = f.either(f.same(found, weak), f.same(weak, NULL))
            f.ret(f.choose(agrees, f.pointer(leaf, f.load(plan, 8 * VALUE_AT)), NULL))
        weak_wanted = f.same(weak, f.object("_Py_TrueStruct"))
        f.ret(f.choose(weak_wanted, NULL, leaf))


def _is_array(module: Module) -> None:
    """1 if an object is a contiguous array of the dtype and shape that a record tells."""
    with Function(module, "is_array", "i32", "ptr", "ptr") as f:
        array, record = f.args
        with f.unless(f.same(f.pointer(array, TYPE), f.object("PyArray_Type"))):
            f.ret(i32(0))
        flags = f.binary("and", f.load(array, FLAGS, "i32"), CONTIGUOUS_ALIGNED)
        good = f.both(
            f.compare("eq", flags, CONTIGUOUS_ALIGNED),
            f.same(f.load(array, NDIM, "i32"), f.load(record, 8 * RANK, "i32")),
        )
        with f.unless(good):
            f.ret(i32(0))
        dtype, wanted = f.pointer(array, DESCRIPTOR), f.pointer(record, 8 * DESCR)
        with f.unless(f.same(dtype, wanted)):  # equal dtypes may be several objects
            types = f.same(f.pointer(dtype, SCALAR_TYPE), f.pointer(wanted, SCALAR_TYPE))
            orders = f.same(f.load(dtype, BYTE_ORDER, "i8"), f.load(wanted, BYTE_ORDER, "i8"))
            with f.unless(f.both(types, orders)):
                f.ret(i32(0))
        shape, dims = f.pointer(array, DIMENSIONS), f.pointer(record, 8 * DIMS)
        with f.loop(f.load(record, 8 * RANK)) as k:
            same = f.same(f.load(f.index(shape, k)), f.load(f.index(dims, k)))
            with f.unless(same):
                f.ret(i32(0))
        f.ret(i32(1))


def _accept(module: Module) -> None:
    """Note the address of a leaf's data in a place; 0 if the leaf is not what was expected.

    A Python number is put into the slot, which then is where the data are.
    """
    with Function(module, "accept", "i32", "ptr", "ptr", "ptr", "ptr", "ptr") as f:
        plan, record, leaf, place, slot = f.args
        array = f.call("array_of", "ptr", plan, record, leaf)
        with f.when(f.compare("ne", array, NULL), likely=True):
            fits = f.call("is_array", "i32", array, record)
            with f.when(f.compare("ne", fits, 0), likely=True):
                f.store(f.pointer(array, DATA), place)
                f.ret(i32(1))
        _numpy_scalar(f, record, leaf, place)
        with f.when(f.compare("eq", f.load(record, 8 * SCALAR), 0)):
            f.ret(i32(0))
        f.store(slot, place)
        f.ret(f.call("scalar", "i32", leaf, record, slot))


def _numpy_scalar(f: Function, record: Value, leaf: Value, place: Value) -> None:
    """A NumPy scalar, np.float64(1), holds its number itself."""
    kind = f.pointer(f.pointer(record, 8 * DESCR), SCALAR_TYPE)
    with f.when(f.same(f.pointer(leaf, TYPE), kind)):
        weak = f.same(f.pointer(record, 8 * WEAK), f.object("_Py_TrueStruct"))
        with f.unless(f.either(weak, f.compare("ne", f.load(record, 8 * RANK), 0))):
            f.store(f.at(leaf, FLOAT), place)
            f.ret(i32(1))


# --- outputs -----------------------------------------------------------------------------------


def _output(module: Module) -> None:
    """A new NumPy array for an output; null if there is no memory, without an exception if it is ours."""
    with Function(module, "output", "ptr", "ptr") as f:
        (record,) = f.args
        descr = f.pointer(record, 8 * DESCR)
        rank = f.convert("trunc", f.load(record, 8 * RANK), "i32")
        dims, size = f.pointer(record, 8 * DIMS), f.load(record, 8 * BYTES)

        def new(data: Value, flags: int) -> Value:
            f.call("Py_IncRef", "void", descr)  # the array takes this reference, or drops it
            args = (f.object("PyArray_Type"), descr, rank, dims, NULL, data, i32(flags), NULL)
            return f.call("PyArray_NewFromDescr", "ptr", *args)

        with f.when(f.compare("slt", size, thresholds.KEPT_BYTES), likely=True):
            f.ret(new(NULL, 0))
        block = f.call("take", "ptr", size)
        with f.when(f.same(block, NULL), likely=False):
            f.ret(NULL)
        name, drop = f.object("block_name"), f.routine("drop")
        capsule = f.call("PyCapsule_New", "ptr", block, name, drop)
        with f.when(f.same(capsule, NULL), likely=False):
            f.call("give", "void", block, size)
            f.ret(NULL)
        f.call("PyCapsule_SetContext", "i32", capsule, f.convert("inttoptr", size, "ptr"))
        array = new(block, FRESH)
        with f.when(f.same(array, NULL), likely=False):
            f.call("Py_DecRef", "void", capsule)
            f.ret(NULL)
        f.call("PyArray_SetBaseObject", "i32", array, capsule)
        f.ret(array)


def _box(module: Module) -> None:
    """The array object of fnx around a NumPy array, whose reference it takes."""
    with Function(module, "box", "ptr", "ptr", "ptr", "ptr") as f:
        plan, record, array = f.args
        with f.when(f.compare("eq", f.load(plan, 8 * WRAP), 0)):
            f.ret(array)
        boxed = f.call("PyType_GenericAlloc", "ptr", f.pointer(plan, 8 * CLASS), i64(0))
        with f.when(f.same(boxed, NULL), likely=False):
            f.call("Py_DecRef", "void", array)
            f.ret(NULL)
        weak = f.pointer(record, 8 * WEAK)
        f.call("Py_IncRef", "void", weak)
        f.store(array, boxed, f.load(plan, 8 * VALUE_AT))
        f.store(weak, boxed, f.load(plan, 8 * WEAK_AT))
        f.ret(boxed)


# --- the call ----------------------------------------------------------------------------------


def _run(module: Module) -> None:
    """Run the program on its pointers; its status, or that there is no memory for its workspace."""
    with Function(module, "run", "i64", "ptr", "ptr") as f:
        plan, pointers = f.args
        size = f.load(plan, 8 * WORKSPACE)
        workspace = f.variable("ptr", NULL)
        works = f.compare("sgt", size, 0)
        with f.when(works):
            workspace.set(f.call("take", "ptr", size))
            with f.when(f.same(workspace.get(), NULL), likely=False):
                f.ret(i64(NO_MEMORY))
        entry = f.pointer(plan, 8 * ENTRY)
        args = (pointers, f.pointer(plan, 8 * PARAMS), workspace.get(), NULL)
        status = f.variable("i32", 0)
        with f.choice(f.compare("ne", f.load(plan, 8 * RELEASE), 0)) as (release, hold):
            with release:
                state = f.call("PyEval_SaveThread", "ptr")
                status.set(f.call_at(entry, "i32", *args))
                f.call("PyEval_RestoreThread", "void", state)
            with hold:
                status.set(f.call_at(entry, "i32", *args))
        with f.when(works):
            f.call("give", "void", workspace.get(), size)
        f.ret(f.convert("sext", status.get(), "i64"))


def _run_held(module: Module) -> None:
    """Run while holding the leaves: without the GIL, others could drop what a list holds."""
    with Function(module, "run_held", "i64", "ptr", "ptr", "ptr", "i64") as f:
        plan, pointers, items, inputs = f.args
        held = f.array(f.add(inputs, 1))
        with f.loop(inputs) as k:
            leaf = f.pointer(f.index(items, k))
            f.call("Py_IncRef", "void", leaf)
            f.store(leaf, f.index(held, k))
        status = f.call("run", "i64", plan, pointers)
        f.call("release", "void", held, i64(0), inputs)
        f.ret(status)


def _release(module: Module) -> None:
    """Drop the references of objects[start:end]."""
    with Function(module, "release", "void", "ptr", "i64", "i64") as f:
        objects, start, end = f.args
        with f.loop(end, start) as k:
            f.call("Py_DecRef", "void", f.pointer(f.index(objects, k)))
        f.ret()


def _fail(module: Module) -> None:
    """Set an exception, unless one is pending: what `on_error(status)` raises."""
    with Function(module, "fail", "void", "ptr", "i64") as f:
        plan, status = f.args
        with f.when(f.same(f.call("PyErr_Occurred", "ptr"), NULL)):
            number = f.call("PyLong_FromLongLong", "ptr", status)
            with f.unless(f.same(number, NULL)):
                on_error = f.pointer(plan, 8 * ON_ERROR)
                f.call("PyObject_CallOneArg", "ptr", on_error, number)
                f.call("Py_DecRef", "void", number)
        f.ret()


def _call(module: Module) -> None:
    """The method of builtin functions: self is a tuple that begins with the plan's array.

    It takes a list or tuple of leaves and gives a list of arrays, or NotImplemented if a leaf is
    not as expected: then a slower path knows better.
    """
    with Function(module, "fnx_call", "ptr", "ptr", "ptr", public=True) as f:
        plan, leaves = f.pointer(f.pointer(f.args[0], TUPLE_ITEMS), DATA), f.args[1]
        inputs, outputs = f.load(plan, 8 * INPUTS), f.load(plan, 8 * OUTPUTS)
        items = _items(f, leaves, inputs)
        pointers = f.array(f.add(f.add(inputs, outputs), 1))
        numbers, results = f.array(f.add(inputs, 1)), f.array(f.add(outputs, 1))
        records = f.at(plan, 8 * HEADER)
        with f.loop(inputs) as k:
            leaf, record = f.pointer(f.index(items, k)), f.index(records, k, 8 * RECORD)
            place, slot = f.index(pointers, k), f.index(numbers, k)
            good = f.call("accept", "i32", plan, record, leaf, place, slot)
            with f.unless(f.compare("ne", good, 0)):
                _mismatch(f)
        records = f.index(records, inputs, 8 * RECORD)
        with f.loop(outputs) as k:
            array = f.call("output", "ptr", f.index(records, k, 8 * RECORD))
            with f.when(f.same(array, NULL), likely=False):
                f.call("release", "void", results, i64(0), k)
                f.call("fail", "void", plan, i64(NO_RESULTS))
                f.ret(NULL)
            f.store(array, f.index(results, k))
            f.store(f.pointer(array, DATA), f.index(pointers, f.add(inputs, k)))
        status = f.variable("i64", 0)
        with f.choice(f.compare("ne", f.load(plan, 8 * RELEASE), 0)) as (release, hold):
            with release:
                status.set(f.call("run_held", "i64", plan, pointers, items, inputs))
            with hold:
                status.set(f.call("run", "i64", plan, pointers))
        with f.when(f.compare("ne", status.get(), 0), likely=False):
            f.call("release", "void", results, i64(0), outputs)
            f.call("fail", "void", plan, status.get())
            f.ret(NULL)
        _answer(f, plan, records, results, outputs)


def _items(f: Function, leaves: Value, inputs: Value) -> Value:
    """Where the leaves are, if they are a list or a tuple of the right length."""
    kind = f.pointer(leaves, TYPE)
    is_list = f.same(kind, f.object("PyList_Type"))
    is_tuple = f.same(kind, f.object("PyTuple_Type"))
    with f.unless(f.either(is_list, is_tuple)):
        _mismatch(f)
    with f.unless(f.same(f.load(leaves, LENGTH), inputs)):
        _mismatch(f)
    items = f.variable("ptr", f.at(leaves, TUPLE_ITEMS))
    with f.when(is_list):
        items.set(f.pointer(leaves, ITEMS))
    return items.get()


def _mismatch(f: Function) -> None:
    answer = f.object("_Py_NotImplementedStruct")
    f.call("Py_IncRef", "void", answer)
    f.ret(answer)


def _answer(f: Function, plan: Value, records: Value, results: Value, outputs: Value) -> None:
    answer = f.call("PyList_New", "ptr", outputs)
    with f.when(f.same(answer, NULL), likely=False):
        f.call("release", "void", results, i64(0), outputs)
        f.ret(NULL)
    with f.loop(outputs) as k:
        record = f.index(records, k, 8 * RECORD)
        boxed = f.call("box", "ptr", plan, record, f.pointer(f.index(results, k)))
        with f.when(f.same(boxed, NULL), likely=False):
            f.call("release", "void", results, f.add(k, 1), outputs)
            f.call("Py_DecRef", "void", answer)
            f.ret(NULL)
        f.call("PyList_SetItem", "i32", answer, k, boxed)
    f.ret(answer)


# --- Ctrl-C ------------------------------------------------------------------------------------


def _poll(module: Module) -> None:
    """1 if a signal handler has raised; looks at most every 50 ms, in the main thread only.

    In others 1 if the process is about to end, or the team of the thread has failed. The exception stays
    pending. Taking the GIL may mean to wait 5 ms for another thread, hence the clock.
    """
    with Function(module, "fnx_poll", "i32", public=True) as f:
        here = f.call("pthread_self", "i64")
        with f.unless(f.same(here, f.load(f.object("fnx_main_thread")))):
            _stop_with_team(f)
            f.ret(f.convert("trunc", f.load(f.object("fnx_exiting")), "i32"))
        clock, last = f.slot("i64", 2), f.object("last_poll")
        f.call("clock_gettime", "i32", i32(6), clock)  # CLOCK_MONOTONIC_COARSE
        now = f.add(f.mul(f.load(clock), 1000), f.binary("sdiv", f.load(clock, 8), 1_000_000))
        with f.when(
            f.compare("slt", f.sub(now, f.load(last)), thresholds.POLL_MILLISECONDS), likely=True
        ):
            f.ret(i32(0))
        f.store(now, last)
        state = f.call("PyGILState_Ensure", "i32")
        status = f.call("PyErr_CheckSignals", "i32")
        f.call("PyGILState_Release", "void", state)
        f.ret(f.convert("zext", f.compare("ne", status, 0), "i32"))


def _stop_with_team(f: Function) -> None:
    key = f.load(f.object("fnx_member_key"))
    with f.when(f.compare("sge", key, 0)):
        member = f.call("pthread_getspecific", "ptr", f.convert("trunc", key, "i32"))
        with f.unless(f.same(member, NULL)):
            team = f.pointer(member, team_layout.TEAM)
            failed = f.atomic_load(f.at(team, team_layout.FAILED), "i32")
            with f.when(f.compare("ne", failed, 0)):
                f.ret(i32(1))
