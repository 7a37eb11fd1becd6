"""Arrays of compiled programs: a pointer to elements, whose index is never checked nor wrapped.

Numba's own arrays take negative indices, which costs a comparison each and keeps loops from becoming
vectors; its C pointers hold no bool.
"""

import operator
from typing import Any

from numba.core import datamodel, types
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin


class Memory(types.Type):
    """A pointer to elements of a dtype."""

    def __init__(self, dtype: Any):
        self.dtype = dtype
        super().__init__(f"fnx.Memory({dtype})")


@datamodel.register_default(Memory)
class _Model(datamodel.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any):
        element = manager.lookup(kind.dtype).get_data_type()
        super().__init__(manager, kind, element.as_pointer())


@infer_global(operator.getitem)
class _Get(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        memory, index = args
        if isinstance(memory, Memory) and isinstance(index, types.Integer):
            return signature(memory.dtype, memory, types.int64)
        return None


@infer_global(operator.setitem)
class _Set(AbstractTemplate):
    def generic(self, args: Any, kws: Any) -> Any:
        memory, index, _ = args
        if isinstance(memory, Memory) and isinstance(index, types.Integer):
            return signature(types.none, memory, types.int64, memory.dtype)
        return None


@lower_builtin(operator.getitem, Memory, types.Integer)
def _load(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    model = context.data_model_manager[sig.args[0].dtype]
    return model.load_from_data_pointer(builder, address(builder, *args))


@lower_builtin(operator.setitem, Memory, types.Integer, types.Any)
def _store(context: Any, builder: Any, sig: Any, args: Any) -> None:
    pointer, index, value = args
    model = context.data_model_manager[sig.args[0].dtype]
    builder.store(model.as_data(builder, value), address(builder, pointer, index))


def address(builder: Any, pointer: Any, index: Any) -> Any:
    """Of an element."""
    return builder.gep(pointer, [index], inbounds=True)
