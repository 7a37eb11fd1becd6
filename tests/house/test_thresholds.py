"""Thresholds stand in two places: policy, and what was measured on a machine."""

import ast

import pytest
from module_graph import modules

POLICY = "fnx.core.policy"
TARGETS = ("fnx.lowering.cpu.processor.thresholds", "fnx.lowering.numba.thresholds")
ROOMS = ("fnx.interpreters", "fnx.lowering", "fnx.ops.linalg")
# Coefficients, and commands that measure.
MATHEMATICS = ("fnx.lowering.math", "fnx.lowering.cpu.tools")

# Numbers at the top of other modules that nobody could choose otherwise: of formats, protocols and
# hardware, the shapes that kernels are written for, limits of what is possible, and how wide a text is.
FIXED = {
    "fnx.lowering.numba.calls": "_OUTS",
    "fnx.interpreters.reverse.rank_k_sums": "_OUTER",
    "fnx.lowering.cpu.jit.disk_cache": "_MAGIC _DIGEST _SWEEP_EVERY _DEFAULT_LIMIT _FRESH",
    "fnx.lowering.cpu.jit.image": "_REACH _WORD",
    "fnx.lowering.cpu.jit.linker": "_OBJECT _RESERVED _BY_TABLE _RELAXED _JUMP",
    "fnx.lowering.cpu.jit.private_files": "LARGEST",
    "fnx.lowering.cpu.jit.vector_library": "RARE",
    "fnx.lowering.cpu.kernels.blocked": "BLOCK",
    "fnx.lowering.cpu.kernels.fft_butterflies": "WORDS",
    "fnx.lowering.cpu.kernels.fft_executor": "WORDS",
    "fnx.lowering.cpu.kernels.gemm_packing": "LINE SQUARE",
    "fnx.lowering.cpu.kernels.ufunc_loop": "BLOCK WIDEST",
    "fnx.lowering.cpu.llvm.control_flow": "_WHOLE",
    "fnx.lowering.cpu.llvm.register_transpose": "VECTOR",
    "fnx.lowering.cpu.loader.executable": "CANCELLED _MANY FAR",
    "fnx.lowering.cpu.processor.code_pages": "PAGE",
    "fnx.lowering.cpu.processor.cpuid": "_SAVES",
    "fnx.lowering.cpu.runtime.abi": "HEADER RECORD CONTIGUOUS_ALIGNED FRESH ALIGNMENT",
    "fnx.lowering.cpu.runtime.call_wrapper_loader": "_METH_O",
    "fnx.lowering.cpu.runtime.team_layout": "WHY TEAM_BYTES MEMBER_BYTES GROUP_BYTES",
    "fnx.lowering.cpu.runtime.team_reductions": "WIDTH",
    "fnx.lowering.cpu.runtime.thread_pool": "_MOST",
    "fnx.lowering.cpu.runtime.thread_pool_ir": "_EVERYONE _OPEN _APART",
    "fnx.lowering.cpu.ufuncs": "_FROM_LOOPS",
    "fnx.lowering.cuda.device_code": "_COMMON",
    "fnx.lowering.cuda.gpu_driver": "_OLDEST",
    "fnx.lowering.cuda.kernels.schedule": "ALIGN",
    "fnx.lowering.cuda.nvvm.functions": "BLOCK",
    "fnx.lowering.cuda.dlpack": "CUDA",
    "fnx.lowering.ir.printer": "_LONG",
    "fnx.lowering.numba.expression_printer": "WIDE",
    "fnx.lowering.transform.buffer_assignment": "ALIGN",
    "fnx.lowering.transform.loop_fusion": "_MANY",
}


def _is_number(value: ast.expr) -> bool:
    parts = (ast.BinOp, ast.UnaryOp, ast.Tuple, ast.operator, ast.unaryop, ast.expr_context)
    return all(
        isinstance(x, parts) or isinstance(x, ast.Constant) and not isinstance(x.value, str)
        for x in ast.walk(value)
    )


def _numbers(source: str) -> list[str]:
    """The names of capital letters that a module gives to numbers at its top."""
    found = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            if node.targets[0].id.isupper() and _is_number(node.value):
                found.append(node.targets[0].id)
    return found


def _files():
    for name, file in modules().items():
        if name.startswith(ROOMS) and not name.startswith(MATHEMATICS) and name not in TARGETS:
            yield name, file


def test_numbers_at_the_top_of_a_module_are_no_thresholds():
    found = {name: " ".join(_numbers(file.read_text())) for name, file in _files()}
    assert {name: numbers for name, numbers in found.items() if numbers} == FIXED


@pytest.mark.parametrize("name", [POLICY, *TARGETS])
def test_each_threshold_says_what_it_is_and_is_asked_for(name):
    file = modules()[name]
    lines = file.read_text().splitlines()
    users = [f.read_text() for m, f in modules().items() if m != name]
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id != "CPU":
            threshold = node.targets[0].id
            above, line = lines[node.lineno - 2], lines[node.lineno - 1]
            assert "  # " in line or (above.startswith("# ") and "/" not in above), threshold
            asked = f"{name.rpartition('.')[2]}.{threshold}"
            assert any(asked in text for text in users), asked
