"""What the call wrapper and its callers agree on: the words of a plan, and offsets in objects.

It stands apart from the wrapper's text, which is needed only where that is not on disk.

A program is one native function

    int32 entry(void **arguments, int64 *params, char *workspace, void *control)

where `arguments` are the data pointers of inputs, then outputs; `params` the run-time numbers that
expressions name (sizes, literals, addresses of library routines), in the order in which the printer
met them; `workspace` one block for all work buffers. It returns 0, or the code of an error.
"""

# Words of a plan: the program, then one record for each input, then one for each output.
ENTRY, PARAMS, WORKSPACE, INPUTS, OUTPUTS, RELEASE, WRAP, ON_ERROR = range(8)
CLASS, VALUE_AT, WEAK_AT = 8, 9, 10  # of fnx's array class: its type, offsets of its slots
HEADER = 11
DESCR, RANK, DIMS, WEAK, SCALAR, BYTES = range(6)  # words of a record
RECORD = 6
FLOAT64, FLOAT32, INT64, INT32, BOOL = 1, 2, 3, 4, 5  # SCALAR: which Python number will do

# What a call ends with when it is not the program's own number: no workspace, no results.
NO_MEMORY, NO_RESULTS = -1, -2

# Offsets in CPython's and NumPy's objects.
TYPE, LENGTH, ITEMS, FLOAT = 8, 16, 24, 16
TUPLE_ITEMS = tuple.__basicsize__  # 24, and 32 from Python 3.14 on
DATA, NDIM, DIMENSIONS, DESCRIPTOR, FLAGS = 16, 24, 32, 56, 64
SCALAR_TYPE, BYTE_ORDER = 16, 26  # of a dtype
CONTIGUOUS_ALIGNED = 0x101
FRESH = 0x501  # contiguous, aligned, writeable

PYTHON = (
    "PyType_GenericAlloc PyList_New PyList_SetItem Py_IncRef Py_DecRef PyErr_Occurred "
    "PyErr_CheckSignals PyGILState_Ensure PyGILState_Release PyEval_SaveThread "
    "PyEval_RestoreThread PyObject_CallOneArg PyLong_FromLongLong PyLong_AsLongLongAndOverflow "
    "PyCapsule_New PyCapsule_GetPointer PyCapsule_GetContext PyCapsule_SetContext"
).split()
NUMPY = {"PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282}
EXPORTS = (
    *("fnx_call", "fnx_poll", "fnx_trim"),
    *("fnx_main_thread", "fnx_exiting", "fnx_limit", "fnx_held", "fnx_member_key"),
)

ALIGNMENT = 64  # bytes, of workspaces and large results
