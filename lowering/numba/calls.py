"""Calls of Python and of the poll in compiled programs: how Numba types and emits them."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable

from fnx.core import policy

from .memory import Memory, address
from .runtime import copy_bytes, host, share, special, stop, tell

_BYTE, _WORD, _STATUS = ir.IntType(8), ir.IntType(64), ir.IntType(32)


@type_callable(host)
def _type_host(context: Any) -> Callable:
    return lambda call, places: signature(types.boolean, types.int64, places)


@lower_builtin(host, types.int64, types.BaseTuple)
def _host(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """int32 call(void **pointers) gives 1, or 0 after an exception."""
    kinds, values = list(sig.args[1]), cgutils.unpack_tuple(builder, args[1])
    count = len(kinds) // 2
    pointers = cgutils.alloca_once(builder, _BYTE.as_pointer(), _WORD(max(count, 1)))
    for k in range(count):
        kind, data = kinds[2 * k], values[2 * k]
        if not isinstance(kind, Memory):
            data = context.make_array(kind)(context, builder, data).data
        index = context.cast(builder, values[2 * k + 1], kinds[2 * k + 1], types.int64)
        place = builder.bitcast(address(builder, data, index), _BYTE.as_pointer())
        builder.store(place, builder.gep(pointers, [_WORD(k)]))
    kind = ir.FunctionType(_STATUS, [pointers.type])
    status = builder.call(builder.inttoptr(args[0], kind.as_pointer()), [pointers])
    return builder.icmp_signed("!=", status, _STATUS(1))


@type_callable(stop)
def _type_stop(context: Any) -> Callable:
    return lambda calls, work: signature(types.boolean, calls, types.int64)


@lower_builtin(stop, Memory, types.int64)
def _stop(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """int32 poll(void), each time that enough was done since; the second word counts that."""
    calls, work = args
    counter = builder.gep(calls, [_WORD(1)])
    done = builder.add(builder.load(counter), work)
    builder.store(done, counter)
    found = cgutils.alloca_once_value(builder, ir.IntType(1)(0))
    builder.store(ir.IntType(1)(0), found)
    with builder.if_then(builder.icmp_signed(">", done, _WORD(policy.POLLED_WORK)), likely=False):
        builder.store(_WORD(0), counter)
        kind = ir.FunctionType(_STATUS, [])
        status = builder.call(builder.inttoptr(builder.load(calls), kind.as_pointer()), [])
        builder.store(builder.icmp_signed("!=", status, _STATUS(0)), found)
    return builder.load(found)


@type_callable(tell)
def _type_tell(context: Any) -> Callable:
    return lambda record, done, total, state: signature(types.none, *[types.int64] * 4)


@lower_builtin(tell, types.int64, types.int64, types.int64, types.int64)
def _tell(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Three words at the address of a record, which another thread reads meanwhile."""
    record = builder.inttoptr(args[0], _WORD.as_pointer())
    for k, value in enumerate(args[1:]):
        builder.store_atomic(value, builder.gep(record, [_WORD(k)]), "monotonic", 8)
    return context.get_dummy_value()


@type_callable(share)
def _type_share(context: Any) -> Callable:
    def share(run: Any, task: Any, count: Any, least: Any, values: Any) -> Any:
        context.resolve_function_type(task, _of_task(values), {})  # which compiles it
        return signature(types.none, types.int64, task, types.int64, types.int64, values)

    return share


def _of_task(values: Any) -> tuple:
    return (types.int64, types.int64, *values)


@lower_builtin(share, types.int64, types.Dispatcher, types.int64, types.int64, types.BaseTuple)
def _share(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """void run(void (*task)(void *values, int64 first, int64 end), void *values, int64 n, int64 least)"""
    task, kinds = sig.args[1].dispatcher, list(sig.args[4])
    compiled = task.overloads[_of_task(sig.args[4])]
    context.active_code_library.add_linking_library(compiled.library)
    values = cgutils.unpack_tuple(builder, args[4])
    record = ir.LiteralStructType([v.type for v in values])
    kept = cgutils.alloca_once(builder, record)
    for k, value in enumerate(values):
        builder.store(value, cgutils.gep_inbounds(builder, kept, 0, k))
    kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), _WORD, _WORD])
    function = ir.Function(builder.module, kind, f"{compiled.fndesc.mangled_name}.task")
    function.linkage = "internal"
    inner = ir.IRBuilder(function.append_basic_block("entry"))
    place = inner.bitcast(function.args[0], record.as_pointer())
    given = [inner.load(cgutils.gep_inbounds(inner, place, 0, k)) for k in range(len(kinds))]
    callee = context.declare_function(builder.module, compiled.fndesc)
    context.call_conv.call_function(
        inner, callee, types.none, _of_task(sig.args[4]), [*function.args[1:], *given]
    )  # it cannot fail
    inner.ret_void()
    passed = [function.type, _BYTE.as_pointer(), _WORD, _WORD]
    run = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), passed).as_pointer())
    builder.call(run, [function, builder.bitcast(kept, passed[1]), args[2], args[3]])
    return context.get_dummy_value()


_OUTS = 4  # results of a function of SciPy's, at most


@type_callable(special)
def _type_special(context: Any) -> Callable:
    return lambda call, part, args: signature(args[0], types.int64, types.int64, args)


@lower_builtin(special, types.int64, types.int64, types.BaseTuple)
def _special(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """A loop of a ufunc, `void (char **args, long *counts, long *steps, void *data)`, on one element."""
    kinds, values = list(sig.args[2]), cgutils.unpack_tuple(builder, args[2])
    pointer, result = _BYTE.as_pointer(), context.get_value_type(sig.return_type)
    count = len(kinds) + _OUTS
    pointers = cgutils.alloca_once(builder, pointer, _WORD(count))
    steps = cgutils.alloca_once(builder, _WORD, _WORD(count))
    outs = cgutils.alloca_once(builder, result, _WORD(_OUTS))
    one = cgutils.alloca_once(builder, _WORD)
    builder.store(_WORD(1), one)
    places = [cgutils.alloca_once(builder, context.get_value_type(k)) for k in kinds]
    for place, value in zip(places, values, strict=True):
        builder.store(value, place)
    places += [builder.gep(outs, [_WORD(k)]) for k in range(_OUTS)]
    for k, place in enumerate(places):
        builder.store(builder.bitcast(place, pointer), builder.gep(pointers, [_WORD(k)]))
        builder.store(_WORD(0), builder.gep(steps, [_WORD(k)]))
    kind = ir.FunctionType(
        ir.VoidType(), [pointers.type, one.type, steps.type, pointer]
    ).as_pointer()
    record = builder.inttoptr(args[0], _WORD.as_pointer())
    words = [builder.load(builder.gep(record, [_WORD(k)])) for k in range(2)]
    data = builder.inttoptr(words[1], pointer)
    builder.call(builder.inttoptr(words[0], kind), [pointers, one, steps, data])
    return builder.load(builder.gep(outs, [args[1]]))


@type_callable(copy_bytes)
def _type_copy(context: Any) -> Callable:
    return lambda places, count: signature(types.none, places, types.int64)


@lower_builtin(copy_bytes, types.BaseTuple, types.int64)
def _copy(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    kinds, values = list(sig.args[0]), cgutils.unpack_tuple(builder, args[0])
    indices = [context.cast(builder, values[k], kinds[k], types.int64) for k in (1, 3)]
    to, of = [address(builder, values[k], i) for k, i in zip((0, 2), indices, strict=True)]
    cgutils.raw_memcpy(builder, to, of, args[1], 1)
    return context.get_dummy_value()
