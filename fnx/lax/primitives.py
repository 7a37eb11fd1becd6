"""Primitives under JAX's names: lax.add_p and its kin, for programs that bind or inspect them."""

from fnx.core.primitive import Primitive, family
from fnx.interpreters import collectives
from fnx.interpreters.primitives import cond, linear_solve, scan, while_loop
from fnx.ops.base import permute
from fnx.ops.base.broadcast import Broadcast, Sum
from fnx.ops.elementwise import arithmetic as e
from fnx.ops.elementwise import convert
from fnx.ops.elementwise import special as s
from fnx.ops.linalg.contraction import DotGeneral
from fnx.ops.linalg.convolution import ConvGeneralDilated
from fnx.ops.linalg.fft import FFT
from fnx.ops.reduction import pooling, reduction, select_and_scatter, sorting
from fnx.ops.reduction.cumulative import Cumulative
from fnx.ops.structure import gather, join, scatter, slice
from fnx.ops.structure.dynamic_slice import DynamicSlice, DynamicUpdateSlice

# Those with parameters are families of primitives here: JAX's parameters are their fields.
broadcast_in_dim_p, dot_general_p, fft_p = Broadcast, DotGeneral, FFT
conv_general_dilated_p = ConvGeneralDilated
dynamic_slice_p, dynamic_update_slice_p = DynamicSlice, DynamicUpdateSlice
bitcast_convert_type_p, reduce_precision_p = convert.BitcastConvertType, convert.ReducePrecision
convert_element_type_p = convert.ConvertElementType
concatenate_p, iota_p, split_p = join.Concatenate, join.Iota, join.Split
pad_p, slice_p = slice.Pad, slice.Slice
reshape_p, rev_p = permute.Reshape, permute.Rev
squeeze_p, transpose_p = permute.Squeeze, permute.Transpose
sort_p, top_k_p = sorting.Sort, sorting.TopK
argmax_p, argmin_p = reduction.ArgMax, reduction.ArgMin
reduce_max_p, reduce_min_p = reduction.Max, reduction.Min
reduce_prod_p, reduce_sum_p = reduction.Prod, Sum
reduce_and_p, reduce_or_p = reduction.ReduceAnd, reduction.ReduceOr
reduce_xor_p = reduction.ReduceXor
reduce_window_max_p, reduce_window_min_p = pooling.ReduceWindowMax, pooling.ReduceWindowMin
reduce_window_sum_p = pooling.ReduceWindowSum
gather_p, scatter_p, scatter_add_p = gather.Gather, scatter.Scatter, gather.ScatterAdd
scatter_max_p, scatter_min_p = scatter.ScatterMax, scatter.ScatterMin
scatter_mul_p = scatter.ScatterMul
all_gather_p, all_to_all_p = collectives.AllGather, collectives.AllToAll
axis_index_p, ppermute_p = collectives.AxisIndex, collectives.PPermute
pmax_p, pmin_p, psum_p = collectives.PMax, collectives.PMin, collectives.PSum
scan_p, while_p, cond_p = scan.Scan, while_loop.While, cond.Cond
cumsum_p, cumprod_p, cummax_p, cummin_p, cumlogsumexp_p = (
    family(Cumulative, "cum" + kind) for kind in ("sum", "prod", "max", "min", "logsumexp")
)
linear_solve_p = linear_solve.LinearSolve
integer_pow_p, round_p = e.IntegerPow, e.Round
abs_p, acos_p, acosh_p, add_p, and_p, asin_p = e.abs_, e.acos, e.acosh, e.add, e.and_, e.asin
asinh_p, atan_p, atan2_p, atanh_p, cbrt_p, ceil_p = (
    e.asinh,
    e.atan,
    e.atan2,
    e.atanh,
    e.cbrt,
    e.ceil,
)
clamp_p, clz_p, complex_p, conj_p, cos_p, cosh_p = e.clamp, e.clz, e.complex_, e.conj, e.cos, e.cosh
div_p, eq_p, exp_p, exp2_p, expm1_p, floor_p = e.div, e.eq, e.exp, e.exp2, e.expm1, e.floor
ge_p, gt_p, imag_p, is_finite_p, le_p, log_p = e.ge, e.gt, e.imag, e.is_finite, e.le, e.log
log1p_p, logistic_p, lt_p, max_p, min_p, mul_p = e.log1p, e.logistic, e.lt, e.max_, e.min_, e.mul
ne_p, neg_p, nextafter_p, not_p, or_p, pow_p = e.ne, e.neg, e.nextafter, e.not_, e.or_, e.pow_
population_count_p, real_p, rem_p, rsqrt_p = e.population_count, e.real, e.rem, e.rsqrt
select_n_p, shift_left_p, sign_p, sin_p, sinh_p = e.select_n, e.shift_left, e.sign, e.sin, e.sinh
shift_right_arithmetic_p = e.shift_right_arithmetic
shift_right_logical_p = e.shift_right_logical
sqrt_p, square_p, stop_gradient_p, sub_p = e.sqrt, e.square, e.stop_gradient, e.sub
tan_p, tanh_p, xor_p = e.tan, e.tanh, e.xor
digamma_p, erf_p, erf_inv_p, erfc_p, lgamma_p = s.digamma, s.erf, s.erf_inv, s.erfc, s.lgamma
igamma_p, igammac_p, igamma_grad_a_p = s.igamma, s.igammac, s.igamma_grad_a
polygamma_p, zeta_p = s.polygamma, s.zeta
bessel_i0e_p, bessel_i1e_p, copy_p = s.bessel_i0e, s.bessel_i1e, e.copy
regularized_incomplete_beta_p = s.regularized_incomplete_beta
select_and_gather_add_p = select_and_scatter.WindowGather
select_and_scatter_add_p = select_and_scatter.WindowScatter

__all__ = [name for name in list(globals()) if name.endswith("_p")]
for _name in __all__:
    _found = globals()[_name]
    if isinstance(_found, type):
        globals()[_name] = family(_found)
    elif isinstance(_found, Primitive):
        globals()[_name] = _found.public
