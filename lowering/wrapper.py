"""The native half of a call, as LLVM IR: check the leaves, make the outputs, run, wrap.

One module serves all programs. It is written against the C APIs of CPython and NumPy; a *plan*, an
array of 64-bit words (see `plan.py`), tells it what the program at hand expects.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Words of a plan: the program, then one record for each input, then one for each output.
ENTRY, PARAMS, WORKSPACE, INPUTS, OUTPUTS, RELEASE, WRAP, ON_ERROR, MISMATCH = range(9)
CLASS, VALUE_AT, WEAK_AT = 9, 10, 11
HEADER = 12
DESCR, RANK, DIMS, WEAK, SCALAR, BYTES = range(6)  # words of a record
RECORD = 6
FLOAT64, FLOAT32, INT64, INT32, BOOL = 1, 2, 3, 4, 5  # SCALAR: which Python number will do

# Offsets in CPython's and NumPy's objects, the same since Python 3.8 and NumPy 1.7.
TYPE, LENGTH, ITEMS, FLOAT = 8, 16, 24, 16
DATA, NDIM, DIMENSIONS, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64
CONTIGUOUS_ALIGNED = 0x101
FRESH = 0x501  # contiguous, aligned, writeable

LARGE = 1 << 17  # outputs of so many bytes live in blocks that are kept for the next call
SLOTS = 64  # blocks that may wait for their next use
ALIGNMENT = 64
HUGE = 1 << 22  # blocks of so many bytes ask the system for huge pages

SYMBOLS = (
    "PyArray_NewFromDescr PyArray_SetBaseObject PyType_GenericAlloc PyList_New PyList_SetItem "
    "Py_IncRef Py_DecRef PyErr_Occurred PyErr_CheckSignals PyErr_NoMemory PyGILState_Ensure "
    "PyGILState_Release PyEval_SaveThread PyEval_RestoreThread PyObject_CallOneArg "
    "PyLong_FromLongLong PyLong_AsLongLongAndOverflow PyCapsule_New PyCapsule_GetPointer "
    "PyCapsule_GetContext PyCapsule_SetContext"
).split()
OBJECTS = "PyArray_Type PyList_Type PyTuple_Type PyFloat_Type PyLong_Type PyBool_Type".split()
OBJECTS += ["_Py_NotImplementedStruct", "_Py_FalseStruct", "_Py_TrueStruct"]
EXPORTS = "fnx_call fnx_poll fnx_blocks fnx_main_thread fnx_trim fnx_limit fnx_held".split()


class Function:
    """A function under construction: thin words over llvmlite's builder."""

    def __init__(self, module: Any, name: str, result: Any, *args: Any, internal: bool = True):
        from llvmlite import ir

        self.ir, self.module = ir, module
        self.i64, self.i32, self.ptr = ir.IntType(64), ir.IntType(32), ir.PointerType()
        self.function = ir.Function(module, ir.FunctionType(result, args), name)
        self.function.linkage = "internal" if internal else ""
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.args = self.function.args

    def word(self, value: Any) -> Any:
        return self.i64(value) if isinstance(value, int) else value

    def at(self, base: Any, offset: Any) -> Any:
        """The address `offset` bytes after `base`."""
        return self.builder.gep(
            base, [self.word(offset)], source_etype=self.ir.IntType(8), inbounds=True
        )

    def load(self, base: Any, offset: Any = 0, type_: Any = None) -> Any:
        return self.builder.load(self.at(base, offset), typ=type_ or self.i64)

    def pointer(self, base: Any, offset: Any = 0) -> Any:
        return self.load(base, offset, self.ptr)

    def store(self, value: Any, base: Any, offset: Any = 0) -> None:
        self.builder.store(self.word(value), self.at(base, offset))

    def index(self, base: Any, k: Any, width: int = 8) -> Any:
        return self.at(base, self.builder.mul(self.word(k), self.i64(width)))

    def call(self, name: str, result: Any, *args: Any) -> Any:
        """Call a C function by name; its type is what it is called with."""
        found = self.module.globals.get(name)
        if found is None:
            kind = self.ir.FunctionType(result, [a.type for a in args])
            found = self.ir.Function(self.module, kind, name)
        return self.builder.call(found, args)

    def object(self, name: str) -> Any:
        """The address of a static object of the C APIs, or of a variable of this module."""
        found = self.module.globals.get(name)
        return found or self.ir.GlobalVariable(self.module, self.ir.IntType(8), name)

    def compare(self, op: str, a: Any, b: Any) -> Any:
        b = a.type(b) if isinstance(b, int) else b
        return self.builder.icmp_signed(op, a, b)

    def is_null(self, pointer: Any) -> Any:
        return self.builder.icmp_unsigned("==", pointer, self.ptr(None))

    def when(self, condition: Any, likely: bool | None = None) -> Any:
        return self.builder.if_then(condition, likely=likely)

    @contextmanager
    def loop(self, count: Any, start: Any = 0) -> Iterator[Any]:
        """for k in range(start, count)."""
        head = self.builder.append_basic_block("head")
        body = self.builder.append_basic_block("body")
        done = self.builder.append_basic_block("done")
        before = self.builder.block
        first = self.word(start)
        self.builder.branch(head)
        self.builder.position_at_end(head)
        k = self.builder.phi(self.i64)
        k.add_incoming(first, before)
        self.builder.cbranch(self.compare("<", k, count), body, done)
        self.builder.position_at_end(body)
        yield k
        k.add_incoming(self.builder.add(k, self.i64(1)), self.builder.block)
        self.builder.branch(head)
        self.builder.position_at_end(done)

    def variable(self, initial: Any) -> "Variable":
        return Variable(self, self.word(initial))


class Variable:
    """A stack slot (LLVM turns it into registers)."""

    def __init__(self, f: Function, initial: Any):
        with f.builder.goto_entry_block():
            self.slot = f.builder.alloca(initial.type)
        self.f = f
        self.set(initial)

    def set(self, value: Any) -> None:
        self.f.builder.store(self.f.word(value), self.slot)

    def get(self) -> Any:
        return self.f.builder.load(self.slot)


def text() -> str:
    """The LLVM IR of the module."""
    from llvmlite import ir

    module = ir.Module("fnx_wrapper")
    i64, i32, ptr, void = ir.IntType(64), ir.IntType(32), ir.PointerType(), ir.VoidType()
    # Blocks: the number that wait, the bytes that they hold, then (bytes, address) of each.
    _variable(module, "fnx_blocks", ir.ArrayType(i64, 2 * SLOTS))
    _variable(module, "fnx_held", ir.ArrayType(i64, 2))
    _variable(module, "fnx_limit", i64)
    _variable(module, "fnx_main_thread", i64)
    _variable(module, "last_poll", i64)
    name = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), 4), "block_name")
    name.initializer = ir.Constant(name.value_type, bytearray(b"fnx\0"))
    name.global_constant = True

    _forget_block(Function(module, "forget_block", void, i64))
    _take(Function(module, "take", ptr, i64))
    _give(Function(module, "give", void, ptr, i64))
    _trim(Function(module, "fnx_trim", void, internal=False))
    _drop(Function(module, "drop", void, ptr))
    _scalar(Function(module, "scalar", i32, ptr, ptr, ptr))
    _accept(Function(module, "accept", i32, ptr, ptr, ptr, ptr, ptr))
    _output(Function(module, "output", ptr, ptr))
    _box(Function(module, "box", ptr, ptr, ptr, ptr))
    _run(Function(module, "run", i64, ptr, ptr))
    _call(Function(module, "fnx_call", ptr, ptr, ptr, internal=False))
    _poll(Function(module, "fnx_poll", i32, internal=False))
    return str(module)


def _variable(module: Any, name: str, kind: Any) -> None:
    from llvmlite import ir

    variable = ir.GlobalVariable(module, kind, name)
    variable.initializer = ir.Constant(kind, None if isinstance(kind, ir.ArrayType) else 0)


# --- blocks: memory for large outputs and for workspaces ----------------------------------------------
# glibc gives large blocks back to the system, and the next call would pay for each page again. All
# of this runs while the GIL is held.


def _rounded(f: Function, size: Any) -> Any:
    b = f.builder
    return b.and_(b.add(size, f.i64(4095)), f.i64(-4096))


def _forget_block(f: Function) -> None:
    """Close the gap of slot k."""
    (k,) = f.args
    held, blocks = f.object("fnx_held"), f.object("fnx_blocks")
    count = f.builder.sub(f.load(held), f.i64(1))
    f.store(count, held)
    slot = f.index(blocks, k, 16)
    f.store(f.builder.sub(f.load(held, 8), f.load(slot)), held, 8)
    with f.loop(count, k) as j:
        to, source = f.index(blocks, j, 16), f.at(f.index(blocks, j, 16), 16)
        f.store(f.load(source), to)
        f.store(f.load(source, 8), to, 8)
    f.builder.ret_void()


def _take(f: Function) -> None:
    """A block of at least so many bytes: the youngest that waits and fits, or a new one."""
    b, held, blocks = f.builder, f.object("fnx_held"), f.object("fnx_blocks")
    size = _rounded(f, f.args[0])
    count = f.load(held)
    most = b.add(size, b.ashr(size, f.i64(2)))
    with f.loop(count) as k:
        youngest = b.sub(b.sub(count, f.i64(1)), k)
        slot = f.index(blocks, youngest, 16)
        fits = b.and_(f.compare(">=", f.load(slot), size), f.compare("<=", f.load(slot), most))
        with f.when(fits):
            address = f.pointer(slot, 8)
            f.call("forget_block", None, youngest)
            b.ret(address)
    place = f.variable(f.ptr(None))
    alignment = b.select(f.compare(">=", size, HUGE), f.i64(1 << 21), f.i64(ALIGNMENT))
    for attempt in range(2):
        status = f.call("posix_memalign", f.i32, place.slot, alignment, size)
        with f.when(f.compare("==", status, 0)):
            with f.when(f.compare(">=", size, HUGE)):
                f.call("madvise", f.i32, place.get(), size, f.i32(14))  # MADV_HUGEPAGE
            b.ret(place.get())
        if attempt == 0:
            f.call("fnx_trim", f.ir.VoidType())
    b.ret(f.ptr(None))


def _give(f: Function) -> None:
    """Keep a block for the next call; the oldest goes if there is no slot for it."""
    b, held, blocks = f.builder, f.object("fnx_held"), f.object("fnx_blocks")
    block, size = f.args[0], _rounded(f, f.args[1])
    too_many = f.compare(">", b.add(f.load(held, 8), size), f.load(f.object("fnx_limit")))
    with f.when(too_many):
        f.call("free", f.ir.VoidType(), block)
        b.ret_void()
    with f.when(f.compare(">=", f.load(held), SLOTS)):
        oldest = f.pointer(blocks, 8)
        f.call("forget_block", None, f.i64(0))
        f.call("free", f.ir.VoidType(), oldest)
    slot = f.index(blocks, f.load(held), 16)
    f.store(size, slot)
    f.store(block, slot, 8)
    f.store(b.add(f.load(held), f.i64(1)), held)
    f.store(b.add(f.load(held, 8), size), held, 8)
    b.ret_void()


def _trim(f: Function) -> None:
    """Give all waiting blocks back to the system."""
    held, blocks = f.object("fnx_held"), f.object("fnx_blocks")
    with f.loop(f.load(held)) as k:
        f.call("free", f.ir.VoidType(), f.pointer(f.index(blocks, k, 16), 8))
    f.store(0, held)
    f.store(0, held, 8)
    f.builder.ret_void()


def _drop(f: Function) -> None:
    """Destructor of the capsule that owns the block of an output."""
    (capsule,) = f.args
    size = f.call("PyCapsule_GetContext", f.i64, capsule)
    block = f.call("PyCapsule_GetPointer", f.ptr, capsule, f.object("block_name"))
    f.call("give", None, block, size)
    f.builder.ret_void()


# --- inputs ---------------------------------------------------------------------------------------


def _scalar(f: Function) -> None:
    """Put a Python number into a slot as the number that the program expects; 0 if it cannot be."""
    b, (leaf, record, slot) = f.builder, f.args
    kind, wanted = f.pointer(leaf, TYPE), f.load(record, 8 * SCALAR)
    is_float = b.icmp_unsigned("==", kind, f.object("PyFloat_Type"))
    with f.when(is_float):
        value = f.load(leaf, FLOAT, f.ir.DoubleType())
        with f.when(f.compare("==", wanted, FLOAT64)):
            b.store(value, slot)
            b.ret(f.i32(1))
        with f.when(f.compare("==", wanted, FLOAT32)):
            b.store(b.fptrunc(value, f.ir.FloatType()), slot)
            b.ret(f.i32(1))
        b.ret(f.i32(0))
    with f.when(b.icmp_unsigned("==", kind, f.object("PyBool_Type"))):
        with f.when(f.compare("==", wanted, BOOL)):
            true = b.icmp_unsigned("==", leaf, f.object("_Py_TrueStruct"))
            b.store(b.zext(true, f.ir.IntType(8)), slot)
            b.ret(f.i32(1))
        b.ret(f.i32(0))
    is_int = b.icmp_unsigned("==", kind, f.object("PyLong_Type"))
    wants = b.or_(f.compare("==", wanted, INT64), f.compare("==", wanted, INT32))
    with f.when(b.and_(is_int, wants)):
        overflow = f.variable(f.i32(0))
        value = f.call("PyLong_AsLongLongAndOverflow", f.i64, leaf, overflow.slot)
        with f.when(f.compare("!=", overflow.get(), 0)):
            b.ret(f.i32(0))
        with f.when(f.compare("==", wanted, INT64)):
            b.store(value, slot)
            b.ret(f.i32(1))
        narrow = b.trunc(value, f.i32)
        with f.when(b.icmp_signed("==", b.sext(narrow, f.i64), value)):
            b.store(narrow, slot)
            b.ret(f.i32(1))
    b.ret(f.i32(0))


def _accept(f: Function) -> None:
    """Note the address of a leaf's data in a place; 0 if the leaf is not what was expected.

    A Python number is put into the slot, which then is where the data are.
    """
    b = f.builder
    plan, record, leaf, place, slot = f.args
    cls = f.pointer(plan, 8 * CLASS)
    value_at, weak_at = f.load(plan, 8 * VALUE_AT), f.load(plan, 8 * WEAK_AT)
    no = f.i32(0)
    array = f.variable(leaf)
    expected_weak = f.pointer(record, 8 * WEAK)
    with b.if_else(b.icmp_unsigned("==", f.pointer(leaf, TYPE), cls)) as (boxed, bare):
        with boxed:
            weak = f.pointer(leaf, weak_at)
            same = b.icmp_unsigned("==", weak, expected_weak)
            with f.when(b.not_(b.or_(same, f.is_null(expected_weak))), likely=False):
                b.ret(no)
            array.set(f.pointer(leaf, value_at))
            with f.when(f.is_null(array.get()), likely=False):
                b.ret(no)
        with bare:
            strong = b.icmp_unsigned("!=", expected_weak, f.object("_Py_TrueStruct"))
            is_array = b.icmp_unsigned("==", f.pointer(leaf, TYPE), f.object("PyArray_Type"))
            with f.when(b.not_(b.and_(strong, is_array))):
                with f.when(f.compare("==", f.load(record, 8 * SCALAR), 0)):
                    b.ret(no)
                b.store(slot, place)
                b.ret(f.call("scalar", f.i32, leaf, record, slot))
    found = array.get()
    for good in (
        b.icmp_unsigned("==", f.pointer(found, TYPE), f.object("PyArray_Type")),
        f.compare("==", f.load(found, DESCRIPTOR), f.load(record, 8 * DESCR)),
        f.compare("==", f.load(found, NDIM, f.i32), f.load(record, 8 * RANK, f.i32)),
        f.compare(
            "==",
            b.and_(f.load(found, FLAGS, f.i32), f.i32(CONTIGUOUS_ALIGNED)),
            CONTIGUOUS_ALIGNED,
        ),
    ):
        with f.when(b.not_(good), likely=False):
            b.ret(no)
    shape, dims = f.pointer(found, DIMENSIONS), f.pointer(record, 8 * DIMS)
    with f.loop(f.load(record, 8 * RANK)) as k:
        same = f.compare("==", f.load(f.index(shape, k)), f.load(f.index(dims, k)))
        with f.when(b.not_(same), likely=False):
            b.ret(no)
    b.store(f.pointer(found, DATA), place)
    b.ret(f.i32(1))


# --- outputs --------------------------------------------------------------------------------------


def _output(f: Function) -> None:
    """A new NumPy array for an output; null, with an exception set, if there is no memory."""
    b, (record,) = f.builder, f.args
    descr = f.pointer(record, 8 * DESCR)
    f.call("Py_IncRef", f.ir.VoidType(), descr)
    rank = b.trunc(f.load(record, 8 * RANK), f.i32)
    dims, size, null = f.pointer(record, 8 * DIMS), f.load(record, 8 * BYTES), f.ptr(None)

    def new(data: Any, flags: int) -> Any:
        cls = f.object("PyArray_Type")
        args = (cls, descr, rank, dims, null, data, f.i32(flags), null)
        return f.call("PyArray_NewFromDescr", f.ptr, *args)

    with f.when(f.compare("<", size, LARGE), likely=True):
        b.ret(new(null, 0))
    block = f.call("take", f.ptr, size)
    with f.when(f.is_null(block), likely=False):
        f.call("Py_DecRef", f.ir.VoidType(), descr)
        b.ret(f.call("PyErr_NoMemory", f.ptr))
    capsule = f.call("PyCapsule_New", f.ptr, block, f.object("block_name"), f.object("drop"))
    with f.when(f.is_null(capsule), likely=False):
        f.call("give", None, block, size)
        f.call("Py_DecRef", f.ir.VoidType(), descr)
        b.ret(null)
    f.call("PyCapsule_SetContext", f.i32, capsule, b.inttoptr(size, f.ptr))
    array = new(block, FRESH)
    with f.when(f.is_null(array), likely=False):
        f.call("Py_DecRef", f.ir.VoidType(), capsule)
        b.ret(null)
    f.call("PyArray_SetBaseObject", f.i32, array, capsule)
    b.ret(array)


def _box(f: Function) -> None:
    """The array object of fnx around a NumPy array, whose reference it takes."""
    b, (plan, record, array) = f.builder, f.args
    with f.when(f.compare("==", f.load(plan, 8 * WRAP), 0)):
        b.ret(array)
    boxed = f.call("PyType_GenericAlloc", f.ptr, f.pointer(plan, 8 * CLASS), f.i64(0))
    with f.when(f.is_null(boxed), likely=False):
        f.call("Py_DecRef", f.ir.VoidType(), array)
        b.ret(f.ptr(None))
    weak = f.pointer(record, 8 * WEAK)
    f.call("Py_IncRef", f.ir.VoidType(), weak)
    f.store(array, boxed, f.load(plan, 8 * VALUE_AT))
    f.store(weak, boxed, f.load(plan, 8 * WEAK_AT))
    b.ret(boxed)


# --- the call -------------------------------------------------------------------------------------


def _run(f: Function) -> None:
    """Run the program on its pointers; its status, or -1 without memory for its workspace."""
    b, (plan, pointers) = f.builder, f.args
    size = f.load(plan, 8 * WORKSPACE)
    workspace = f.variable(f.ptr(None))
    with f.when(f.compare(">", size, 0)):
        workspace.set(f.call("take", f.ptr, size))
        with f.when(f.is_null(workspace.get()), likely=False):
            b.ret(f.i64(-1))
    kind = f.ir.FunctionType(f.i32, [f.ptr] * 4)
    entry = f.pointer(plan, 8 * ENTRY)
    args = [pointers, f.pointer(plan, 8 * PARAMS), workspace.get(), f.ptr(None)]
    status = f.variable(f.i32(0))
    with b.if_else(f.compare("!=", f.load(plan, 8 * RELEASE), 0)) as (release, hold):
        with release:
            state = f.call("PyEval_SaveThread", f.ptr)
            status.set(_indirect(f, entry, kind, args))
            f.call("PyEval_RestoreThread", f.ir.VoidType(), state)
        with hold:
            status.set(_indirect(f, entry, kind, args))
    with f.when(f.compare(">", size, 0)):
        f.call("give", None, workspace.get(), size)
    b.ret(b.sext(status.get(), f.i64))


def _indirect(f: Function, address: Any, kind: Any, args: list) -> Any:
    # llvmlite calls what has a function type; the address is given one by a bitcast it prints away.
    return f.builder.call(_Typed(address, kind), args)


class _Typed:
    """A pointer that llvmlite may call."""

    def __init__(self, pointer: Any, kind: Any):
        self.pointer, self.function_type = pointer, kind
        self.type, self.ftype = pointer.type, kind
        self.calling_convention, self.name = "", pointer.name

    def get_reference(self) -> str:
        return self.pointer.get_reference()


def _call(f: Function) -> None:
    """The method of builtin functions: self is a tuple that begins with the plan's array."""
    b = f.builder
    plan = f.pointer(f.pointer(f.args[0], ITEMS), DATA)
    leaves = f.args[1]
    inputs, outputs = f.load(plan, 8 * INPUTS), f.load(plan, 8 * OUTPUTS)
    kind = f.pointer(leaves, TYPE)
    is_list = b.icmp_unsigned("==", kind, f.object("PyList_Type"))
    is_tuple = b.icmp_unsigned("==", kind, f.object("PyTuple_Type"))
    fits = f.compare("==", f.load(leaves, LENGTH), inputs)
    with f.when(b.not_(b.and_(b.or_(is_list, is_tuple), fits)), likely=False):
        _mismatch(f)
    items = f.variable(f.at(leaves, ITEMS))
    with f.when(is_list):
        items.set(f.pointer(leaves, ITEMS))
    items = items.get()
    pointers = b.alloca(f.i64, b.add(b.add(inputs, outputs), f.i64(1)))
    numbers = b.alloca(f.i64, b.add(inputs, f.i64(1)))
    results = b.alloca(f.i64, b.add(outputs, f.i64(1)))
    records = f.at(plan, 8 * HEADER)
    with f.loop(inputs) as k:
        leaf = f.pointer(f.index(items, k))
        record = f.index(records, k, 8 * RECORD)
        place, slot = f.index(pointers, k), f.index(numbers, k)
        good = f.call("accept", f.i32, plan, record, leaf, place, slot)
        with f.when(f.compare("==", good, 0), likely=False):
            _mismatch(f)
    records = f.index(records, inputs, 8 * RECORD)
    with f.loop(outputs) as k:
        array = f.call("output", f.ptr, f.index(records, k, 8 * RECORD))
        with f.when(f.is_null(array), likely=False):
            _release(f, results, k)
            b.ret(f.ptr(None))
        b.store(array, f.index(results, k))
        b.store(f.pointer(array, DATA), f.index(pointers, b.add(inputs, k)))
    status = _guarded(f, plan, pointers, items, inputs)
    with f.when(f.compare("!=", status, 0), likely=False):
        _release(f, results, outputs)
        _fail(f, plan, status)
    answer = f.call("PyList_New", f.ptr, outputs)
    with f.when(f.is_null(answer), likely=False):
        _release(f, results, outputs)
        b.ret(f.ptr(None))
    with f.loop(outputs) as k:
        record = f.index(records, k, 8 * RECORD)
        boxed = f.call("box", f.ptr, plan, record, f.pointer(f.index(results, k)))
        with f.when(f.is_null(boxed), likely=False):
            with f.loop(outputs, b.add(k, f.i64(1))) as j:
                f.call("Py_DecRef", f.ir.VoidType(), f.pointer(f.index(results, j)))
            f.call("Py_DecRef", f.ir.VoidType(), answer)
            b.ret(f.ptr(None))
        f.call("PyList_SetItem", f.i32, answer, k, boxed)
    b.ret(answer)


def _guarded(f: Function, plan: Any, pointers: Any, items: Any, inputs: Any) -> Any:
    """Run; without the GIL other threads could empty a list of leaves, so leaves are held."""
    b, void = f.builder, f.ir.VoidType()
    status = f.variable(f.i64(0))
    with b.if_else(f.compare("!=", f.load(plan, 8 * RELEASE), 0)) as (release, hold):
        with release:
            held = b.alloca(f.i64, b.add(inputs, f.i64(1)))
            with f.loop(inputs) as k:
                leaf = f.pointer(f.index(items, k))
                f.call("Py_IncRef", void, leaf)
                b.store(leaf, f.index(held, k))
            status.set(f.call("run", f.i64, plan, pointers))
            _release(f, held, inputs)
        with hold:
            status.set(f.call("run", f.i64, plan, pointers))
    return status.get()


def _mismatch(f: Function) -> None:
    """Return NotImplemented: the slow path knows better."""
    answer = f.object("_Py_NotImplementedStruct")
    f.call("Py_IncRef", f.ir.VoidType(), answer)
    f.builder.ret(answer)


def _release(f: Function, objects: Any, count: Any) -> None:
    with f.loop(count) as k:
        f.call("Py_DecRef", f.ir.VoidType(), f.pointer(f.index(objects, k)))


def _fail(f: Function, plan: Any, status: Any) -> None:
    """Return null with an exception: one that is pending, or what `on_error(status)` raises."""
    b = f.builder
    with f.when(f.is_null(f.call("PyErr_Occurred", f.ptr))):
        number = f.call("PyLong_FromLongLong", f.ptr, status)
        with f.when(b.not_(f.is_null(number))):
            f.call("PyObject_CallOneArg", f.ptr, f.pointer(plan, 8 * ON_ERROR), number)
            f.call("Py_DecRef", f.ir.VoidType(), number)
    b.ret(f.ptr(None))


# --- Ctrl-C -----------------------------------------------------------------------------------------

POLL_MILLISECONDS = 50


def _poll(f: Function) -> None:
    """1 if a signal handler has raised; looks at most every 50 ms, in the main thread only.

    Taking the GIL may wait for another thread for 5 ms, hence the clock.
    """
    b = f.builder
    here = f.call("pthread_self", f.i64)
    with f.when(f.compare("!=", here, f.load(f.object("fnx_main_thread")))):
        b.ret(f.i32(0))
    with b.goto_entry_block():
        clock = b.alloca(f.i64, 2)
    f.call("clock_gettime", f.i32, f.i32(6), clock)  # CLOCK_MONOTONIC_COARSE
    now = b.add(
        b.mul(f.load(clock), f.i64(1000)), b.sdiv(f.load(clock, 8), f.i64(1_000_000))
    )
    last = f.object("last_poll")
    with f.when(f.compare("<", b.sub(now, f.load(last)), POLL_MILLISECONDS)):
        b.ret(f.i32(0))
    f.store(now, last)
    state = f.call("PyGILState_Ensure", f.i32)
    status = f.call("PyErr_CheckSignals", f.i32)
    f.call("PyGILState_Release", f.ir.VoidType(), state)
    b.ret(b.zext(f.compare("!=", status, 0), f.i32))

