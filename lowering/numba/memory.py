"""Arrays of compiled programs: a pointer to elements, whose index is never checked nor wrapped.

Numba's own arrays take negative indices, which costs a comparison each and keeps loops from becoming
vectors; its C pointers hold no bool.
"""

import operator
from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import datamodel, types
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from fnx.lowering.ir.number_formats import itemsize


class Memory(types.Type):
    """A pointer to elements of a dtype. What has another `region` lies apart: LLVM may rely on it.

    Source: type-based alias analysis (Diwan, McKinley & Moss 1998), with regions for types.
    """

    def __init__(self, dtype: Any, region: int = 0):
        self.dtype, self.region = dtype, region
        super().__init__(f"fnx.Memory({dtype}, {region})")


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
    model, place = context.data_model_manager[sig.args[0].dtype], address(builder, *args)
    if isinstance(model, datamodel.StructModel):  # complex numbers are two
        return model.load_from_data_pointer(builder, place)
    return model.from_data(builder, _marked(builder, builder.load(place), sig.args[0]))


@lower_builtin(operator.setitem, Memory, types.Integer, types.Any)
def _store(context: Any, builder: Any, sig: Any, args: Any) -> None:
    pointer, index, value = args
    model = context.data_model_manager[sig.args[0].dtype]
    made = builder.store(model.as_data(builder, value), address(builder, pointer, index))
    if not isinstance(model, datamodel.StructModel):
        _marked(builder, made, sig.args[0])


def _marked(builder: Any, instruction: Any, memory: Memory) -> Any:
    """A load or store of which LLVM knows the region."""
    if memory.region:
        module = builder.module
        root = module.add_metadata(["fnx"])
        region = module.add_metadata([f"region {memory.region}", root, ir.IntType(64)(0)])
        tag = module.add_metadata([region, region, ir.IntType(64)(0)])
        instruction.set_metadata("tbaa", tag)
    return instruction


def regions(buffers: Sequence[Any]) -> list[int]:
    """A number for the memory of each buffer: arguments lie apart, parts of a workspace may not."""
    found: dict[int, int] = {}
    work = [k for k, b in enumerate(buffers) if b.space != "argument"]
    end, region = -1, len(buffers)
    for k in sorted(work, key=lambda k: buffers[k].place):
        b = buffers[k]
        if b.place >= end:
            region += 1
        end = max(end, b.place + max(b.size, 1) * itemsize(b.dtype))
        found[k] = region
    return [found.get(k, k + 1) for k in range(len(buffers))]


def address(builder: Any, pointer: Any, index: Any) -> Any:
    """Of an element."""
    return builder.gep(pointer, [index], inbounds=True)
