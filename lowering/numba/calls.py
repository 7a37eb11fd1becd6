"""Calls of Python and of the poll in compiled programs: how Numba types and emits them."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.extending import lower_builtin, type_callable

from .memory import Memory, address
from .runtime import host, stop

_BYTE, _WORD, _STATUS = ir.IntType(8), ir.IntType(64), ir.IntType(32)
_POLL_EVERY = 1 << 22  # operations, about a millisecond, between two looks for signals


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
    with builder.if_then(builder.icmp_signed(">", done, _WORD(_POLL_EVERY)), likely=False):
        builder.store(_WORD(0), counter)
        kind = ir.FunctionType(_STATUS, [])
        status = builder.call(builder.inttoptr(builder.load(calls), kind.as_pointer()), [])
        builder.store(builder.icmp_signed("!=", status, _STATUS(0)), found)
    return builder.load(found)
