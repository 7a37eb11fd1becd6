"""NVVM's compiler: LLVM IR to PTX. Other threads of Python run meanwhile."""

from functools import lru_cache
from typing import Any


def ptx(module: str, capability: tuple[int, int]) -> bytes:
    """The PTX of a module, linked with libdevice."""
    from cuda.bindings import nvvm

    options = ["-opt=3", f"-arch=compute_{capability[0]}{capability[1]}"]
    text, libdevice = module.encode(), _libdevice()
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, text, len(text), "kernel")
        nvvm.lazy_add_module_to_program(program, libdevice, len(libdevice), "libdevice")
        try:
            nvvm.compile_program(program, len(options), options)
        except nvvm.nvvmError as error:
            raise ValueError(_log(nvvm, program)) from error
        found = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, found)
    finally:
        nvvm.destroy_program(program)
    return bytes(found).rstrip(b"\0 \n") + b"\n"


def _log(nvvm: Any, program: int) -> str:
    log = bytearray(nvvm.get_program_log_size(program))
    nvvm.get_program_log(program, log)
    return log.rstrip(b"\0").decode(errors="replace")


@lru_cache(maxsize=1)
def _libdevice() -> bytes:
    from cuda.pathfinder import find_bitcode_lib

    with open(find_bitcode_lib("device"), "rb") as file:
        return file.read()
