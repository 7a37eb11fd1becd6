"""What bad arguments of functions get: a typed error that says what happened and what was expected."""

import numpy as np
import pytest
from bad_input import check, registry

import fnx
import fnx.numpy as jnp
from fnx import lax

ones = jnp.ones
CASES, raises = registry()


# --- shapes, dtypes, axes ----------------------------------------------------------------------


@raises(TypeError, ValueError, words="(3,) (4,)")
def shapes_of_a_sum():
    return ones(3) + ones(4)  # here


@raises(TypeError, words="matmul 2 3 sizes Transpose")
def shapes_of_a_matrix_product():
    return fnx.jit(lambda a: a @ a)(ones((2, 3)))  # here


@raises(TypeError, words="concatenate")
def shapes_of_a_concatenation():
    return jnp.concatenate([ones((2, 2)), ones((3, 3))])  # here


@raises(TypeError, words="cannot reshape array 6 (4,)")
def sizes_of_a_reshape():
    return ones(6).reshape(4)  # here


@raises(TypeError, ValueError, words="(3,)")
def shapes_of_an_update():
    return ones(3).at[:2].set(ones(3))  # here


@raises(TypeError, words="broadcast (3,) (2,)")
def shape_of_a_broadcast():
    return jnp.broadcast_to(ones(3), (2,))  # here


@raises(TypeError, words="float")
def dtype_of_an_index():
    return ones(3)[jnp.array([0.5])]  # here


@raises(TypeError, words="float64")
def dtype_of_bitwise_and():
    return ones(3) & ones(3)  # here


@raises(TypeError, words="datetime64")
def a_dtype_that_does_not_exist():
    return jnp.zeros(3, "datetime64[s]")  # here


@raises(TypeError, words="str")
def a_value_that_is_no_array():
    return jnp.sin("text")  # here


@raises(ValueError, words="axis 2")
def an_axis_that_is_not_there():
    return jnp.sum(ones((2, 3)), axis=2)  # here


@raises(ValueError, words="axis")
def an_axis_twice():
    return jnp.sum(ones((2, 3)), axis=(0, 0))  # here


@raises(IndexError, words="2")
def too_many_indices():
    return ones(3)[0, 0]  # here


# --- values that are not known -----------------------------------------------------------------


@raises(TypeError, words="truth bool[] lax.cond static_argnums")
def a_branch_on_a_traced_value():
    def f(x):
        return 1.0 if x > 0 else 2.0  # here

    return fnx.jit(f)(3.0)


@raises(TypeError, words="index i64[] fori_loop")
def a_range_of_a_traced_value():
    def f(n):
        return sum(range(n))  # here

    return fnx.jit(f)(3)


@raises(TypeError, words="float() f64[] astype")
def a_float_of_a_traced_value():
    def f(x):
        return float(x)  # here

    return fnx.jit(f)(3.0)


@raises(TypeError, words="NumPy f64[3] fnx.numpy")
def numpy_of_a_traced_value():
    def f(x):
        return np.asarray(x)  # here

    return fnx.jit(f)(ones(3))


@raises(TypeError, words="arange i64[] length static_argnums")
def an_arange_of_a_traced_length():
    def f(n):
        return jnp.arange(n)  # here

    return fnx.jit(f)(3)


@raises(IndexError, words="where")
def a_traced_mask():
    def f(x):
        return x[x > 0]  # here

    return fnx.jit(f)(ones(3))


@raises(TypeError, words="traced")
def a_traced_shape():
    def f(n):
        return jnp.zeros(n)  # here

    return fnx.jit(f)(3)


@raises(fnx.errors.UnexpectedTracerError, words="f64[] jit return")
def a_leaked_tracer():
    kept = []
    fnx.jit(lambda x: kept.append(x + 1.0))(2.0)
    return kept[0] * 2.0  # here


@raises(TypeError, words="immutable .at[")
def an_assignment_to_an_element():
    x = ones(3)
    x[0] = 2.0  # here


# --- sizes -------------------------------------------------------------------------------------


@raises(TypeError, ValueError, words="(-1,)")
def an_iota_of_negative_length():
    return lax.iota("int32", -1)  # here


@raises(TypeError, ValueError, words="(1, 3, -1, 4)")
def a_negative_number_of_tiles():
    return jnp.tile(ones((3, 4)), -1)  # here


@raises(TypeError, ValueError, words="-2")
def a_negative_number_of_classes():
    return fnx.nn.one_hot(jnp.arange(3), -2)  # here


@raises(ValueError, words="(1, 2, 3) (3, 4)")
def a_padding_of_three_numbers():
    return jnp.pad(ones((3, 4)), (1, 2, 3))  # here


@raises(TypeError, words="float() (3,) float64")
def a_number_of_an_array():
    return float(ones(3))  # here


@raises(ValueError, words="[(3,), (4,)]")
def keys_of_different_shapes():
    return jnp.lexsort((ones(3), ones(4)))  # here


@raises(ValueError, words="histogram bins=-1 1")
def a_negative_number_of_bins():
    return jnp.histogram(ones(4), bins=-1)  # here


@raises(ValueError, words="0 parts")
def a_split_into_no_parts():
    return jnp.array_split(ones(4), 0)  # here


@raises(ValueError, words="(2,) (0, 1)")
def lengths_of_fewer_axes_than_are_transformed():
    return jnp.fft.fft2(ones((4, 4)), s=(2,), axes=(0, 1))  # here


@raises(ValueError, words="[0, 1] fftn")
def an_fft_along_a_list():
    return jnp.fft.fft(ones((4, 4)), axis=[0, 1])  # here


@raises(ValueError, words="half ortho")
def an_unknown_norm():
    return jnp.fft.hfft(ones(4), norm="half")  # here


@raises(ValueError, words="(3,) (3, 4)")
def an_fft_of_another_length():
    return lax.fft(ones((3, 4)), "fft", (3,))  # here


@raises(ValueError, words="foo irfft")
def an_unknown_kind_of_fft():
    return lax.fft(ones((3, 4)), "foo", (4,))  # here


@raises(TypeError, words="'rows' integer mean")
def an_axis_with_a_name():
    return jnp.mean(ones((2, 3)), axis="rows")  # here


@raises(ValueError, IndexError, words="associative_scan 4 rank 2")
def an_associative_scan_along_an_axis_that_is_not_there():
    return lax.associative_scan(jnp.add, ones((2, 3)), axis=4)  # here


@raises(TypeError, ValueError, words="(3,) (4,) 1 rank 3")
def a_batch_of_convolutions_of_too_few_axes():
    convolve = lambda x, w: lax.conv(x, w, (1,), "SAME")  # here
    return fnx.vmap(convolve)(ones((2, 3)), ones((2, 4)))


@raises(ValueError, ZeroDivisionError, words="arange step=0")
def a_range_of_steps_of_zero():
    return jnp.arange(0, 3, 0)  # here


@raises(MemoryError, ValueError, words="zeros (4611686018427387904,) float64 bytes")
def an_array_of_more_bytes_than_are_counted():
    return jnp.zeros(2**62)  # here


@raises(MemoryError, ValueError, words="(2147483648, 2147483648, 2147483648) float64 bytes")
def axes_that_are_too_large_together():
    return jnp.zeros((2**31,) * 3)  # here


@raises(MemoryError, ValueError, words="(2147483648, 2147483648, 2147483648) float64 bytes")
def axes_that_are_too_large_together_when_traced():
    return fnx.jit(lambda: jnp.zeros((2**31,) * 3))()  # here


@raises(MemoryError, ValueError, words="(1099511627776, 4096) memory")
def an_array_that_finds_no_memory():
    return jnp.ones((2**40, 2**12))  # here


@raises(MemoryError, ValueError, words="arange (4611686018427387904,) int64")
def a_range_that_is_too_long():
    return jnp.arange(1, 2**62 + 1)  # here


# --- kinds of values ----------------------------------------------------------------------------


@raises(TypeError, words="list [1.0, 2.0] jnp.asarray")
def a_list_in_a_formula():
    return ones(2) * [1.0, 2.0]  # here


@raises(TypeError, words="objects numbers")
def an_array_of_objects():
    return jnp.array([object()])  # here


@raises(TypeError, words="normal random key tuple fnx.random.key(seed)")
def a_random_number_without_a_key():
    return fnx.random.normal((3,))  # here


@raises(AttributeError, words="setting")
def a_setting_that_does_not_exist():
    fnx.config.update("no_such_setting", 1)


@raises(TypeError, words="segment_sum i64[3] num_segments")
def as_many_segments_as_a_traced_array_says():
    fnx.jit(lambda ids: fnx.ops.segment_sum(ones(3), ids))(jnp.arange(3))  # here


@raises(TypeError, words="repeat i64[] total_repeat_length")
def as_many_repeats_as_a_traced_number_says():
    fnx.jit(lambda n: jnp.repeat(ones(3), n))(2)  # here


@pytest.mark.parametrize(("case", "kinds", "words"), CASES)
def test_bad_input(case, kinds, words):
    check(case, kinds, words)
