"""What bad input of transformations gets: derivatives, jit, vmap, loops, branches, callbacks."""

import numpy as np
import pytest
from bad_input import check, registry

import fnx
import fnx.numpy as jnp
from fnx import lax

ones = jnp.ones
CASES, raises = registry()


# --- derivatives -------------------------------------------------------------------------------


@raises(TypeError, words="scalar float64[3] jacrev")
def grad_of_a_vector():
    return fnx.grad(lambda x: x * 2.0)(ones(3))  # here


@raises(TypeError, words="scalar has_aux")
def grad_of_a_pair():
    return fnx.grad(lambda x: (x, x))(1.0)  # here


@raises(TypeError, words="int64 astype allow_int")
def grad_of_an_integer():
    return fnx.grad(lambda x: x * 2.0)(3)  # here


@raises(TypeError, words="complex128 holomorphic")
def grad_of_a_complex_number():
    return fnx.grad(lambda x: x * 2.0)(3.0 + 1.0j)  # here


@raises(TypeError, words="int64 floating")
def grad_of_an_integer_result():
    return fnx.grad(lambda x: jnp.int64(3))(3.0)  # here


@raises(ValueError, words="argnums=1 1")
def grad_of_an_argument_that_is_not_there():
    return fnx.grad(lambda x: x, argnums=1)(3.0)  # here


@raises(TypeError, words="has_aux pair")
def grad_with_aux_of_one_result():
    return fnx.grad(lambda x: x, has_aux=True)(3.0)  # here


@raises(TypeError, words="tuples (x,)")
def jvp_without_tuples():
    return fnx.jvp(jnp.sin, 1.0, 1.0)  # here


@raises(TypeError, words="(2,) (3,)")
def a_tangent_of_another_shape():
    return fnx.jvp(jnp.sin, (ones(3),), (ones(2),))  # here


@raises(TypeError, words="float32 float64")
def a_tangent_of_another_dtype():
    return fnx.jvp(jnp.sin, (ones(3),), (ones(3, "float32"),))  # here


@raises(TypeError, words="structure")
def a_cotangent_of_another_structure():
    return fnx.vjp(jnp.sin, 1.0)[1]((1.0, 2.0))  # here


@raises(ValueError, TypeError, words="(2,) (3,)")
def a_cotangent_of_another_shape():
    return fnx.vjp(jnp.sin, ones(3))[1](ones(2))  # here


@raises(TypeError, words="int64[] ['n']")
def grad_of_a_pytree_with_an_integer():
    return fnx.grad(lambda p: p["w"] * p["n"])({"w": 1.0, "n": 3})  # here


@raises(ValueError, words="args[0]['b'] f64[4,2] kwargs['y'] f64[3]")
def lanes_of_different_sizes():
    return fnx.vmap(lambda x, y: y)({"b": ones((4, 2))}, y=ones(3))  # here


@raises(TypeError, words="NumPy f64[2] fnx.numpy")
def a_traced_value_added_to_a_numpy_array():
    def f(x):
        total = np.zeros(2)
        total += x  # here
        return total

    return fnx.jit(f)(ones(2))


@raises(TypeError, words="None return missing")
def grad_of_a_function_without_a_return():
    def loss(x):
        jnp.sum(x)

    return fnx.grad(loss)(ones(3))  # here


# --- jit ---------------------------------------------------------------------------------------


@raises(ValueError, words="static hashable list tuple")
def an_unhashable_static_argument():
    return fnx.jit(lambda x, n: x, static_argnums=1)(1.0, [1, 2])  # here


@raises(ValueError, words="static_argnames 'n' x")
def a_static_name_that_is_no_parameter():
    return fnx.jit(lambda x: x, static_argnames="n")  # here


@raises(ValueError, words="static_argnums=3 1")
def a_static_number_that_is_no_parameter():
    return fnx.jit(lambda x: x, static_argnums=3)  # here


@raises(TypeError, words="str static_argnums")
def an_argument_that_is_no_array():
    return fnx.jit(lambda x: x)("text")  # here


@raises(TypeError, words="results object")
def a_result_that_is_no_array():
    return fnx.jit(lambda x: object())(1.0)  # here


@raises(TypeError, words="function int")
def jit_of_a_number():
    return fnx.jit(3)  # here


@raises(TypeError, words="f64[4] f64[3] compiled")
def a_compiled_function_on_another_shape():
    compiled = fnx.jit(lambda x: x * 2.0).lower(ones(3)).compile()
    return compiled(ones(4))  # here


@raises(ValueError, words="dialect kernel llvm")
def an_unknown_dialect():
    return fnx.jit(lambda x: x).lower(1.0).as_text("fortran")  # here


# --- vmap --------------------------------------------------------------------------------------


@raises(ValueError, words="2 3 in_axes")
def lanes_of_different_numbers():
    return fnx.vmap(lambda x, y: x)(ones(2), ones(3))  # here


@raises(ValueError, words="2 args[1] 3 args[2]")
def sizes_beside_an_argument_that_is_not_mapped():
    return fnx.vmap(lambda a, x, y: x, in_axes=(None, 0, 0))(1.0, ones(2), ones(3))  # here


@raises(ValueError, words="axis 0 args[1] ()")
def a_number_that_is_mapped():
    return fnx.vmap(lambda x, y: x)(ones(2), 1.0)  # here


@raises(ValueError, words="static traced outer")
def a_static_argument_that_is_traced():
    inner = fnx.jit(lambda x, n: x * n, static_argnums=1)

    @fnx.jit
    def outer(x, n):
        return inner(x, n)  # here

    return outer(1.0, 2)


@raises(TypeError, words="array None return")
def a_body_that_returns_nothing():
    return lax.fori_loop(0, 3, lambda i, x: None, 1.0)  # here


@raises(ValueError, words="axis 1 (2,)")
def lanes_along_an_axis_that_is_not_there():
    return fnx.vmap(lambda x: x, in_axes=1)(ones(2))  # here


@raises(ValueError, words="in_axes 2 1")
def lanes_for_another_number_of_arguments():
    return fnx.vmap(lambda x, y: x, in_axes=(0,))(ones(2), ones(2))  # here


@raises(ValueError, words="axis_size")
def no_lanes_at_all():
    return fnx.vmap(lambda x: x, in_axes=None)(ones(2))  # here


@raises(ValueError, words="out_axes None")
def different_lanes_without_an_axis():
    return fnx.vmap(lambda x: x, out_axes=None)(ones(2))  # here


@raises(ValueError, words="99 devices vmap")
def pmap_over_more_lanes_than_devices():
    return fnx.pmap(lambda x: x)(ones((99, 2)))  # here


# --- loops and branches ------------------------------------------------------------------------


@raises(TypeError, words="carry f64[3] f64[]")
def a_carry_of_another_shape():
    return lax.scan(lambda c, x: (c + x, None), 0.0, ones((2, 3)))  # here


@raises(TypeError, words="carry f64[] f32[] astype")
def a_carry_of_another_dtype():
    return lax.scan(lambda c, x: (c * x, None), jnp.float32(1.0), ones(2))  # here


@raises(TypeError, words="carry structure")
def a_carry_of_another_structure():
    return lax.scan(lambda c, x: ((c, c), None), 0.0, ones(2))  # here


@raises(TypeError, words="pair carry")
def a_scan_that_returns_one_value():
    return lax.scan(lambda c, x: c, 0.0, ones(2))  # here


@raises(ValueError, words="lengths 2 3")
def a_scan_over_different_lengths():
    return lax.scan(lambda c, x: (c, None), 0.0, (ones(2), ones(3)))  # here


@raises(TypeError, words="bool f64[]")
def a_condition_that_is_no_bool():
    return lax.while_loop(lambda v: v, lambda v: v - 1.0, 3.0)  # here


@raises(TypeError, words="f64[] f64[2]")
def branches_of_different_types():
    return lax.cond(True, lambda: 1.0, lambda: ones(2))  # here


# --- missing rules and callbacks ---------------------------------------------------------------


@raises(NotImplementedError, words="pure_callback custom_jvp")
def a_derivative_of_a_callback():
    f = lambda x: fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct((), float), x)  # here
    return fnx.grad(f)(1.0)


@raises(NotImplementedError, words="vmap_method sequential")
def lanes_of_a_callback():
    f = lambda x: fnx.pure_callback(np.sin, fnx.ShapeDtypeStruct((), float), x)  # here
    return fnx.vmap(f)(ones(3))


@raises(TypeError, ValueError, words="(3,) f64[2]")
def a_callback_with_a_result_of_another_shape():
    f = lambda x: fnx.pure_callback(lambda y: y, fnx.ShapeDtypeStruct((2,), float), x)  # here
    return f(ones(3))


@raises(TypeError, words="custom_vjp custom_jvp")
def forward_mode_of_a_custom_vjp():
    f = fnx.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    return fnx.jvp(f, (1.0,), (1.0,))  # here


@raises(ValueError, words="odeint (3,) (2,)")
def derivatives_of_another_shape_than_the_state():
    from fnx.experimental.ode import odeint

    odeint(lambda y, t: ones(3), ones(2), jnp.arange(2.0))  # here


@pytest.mark.parametrize(("case", "kinds", "words"), CASES)
def test_bad_input(case, kinds, words):
    check(case, kinds, words)


def test_what_is_no_axis_and_what_has_no_truth():
    x = jnp.ones(2)
    with pytest.raises(TypeError, match="out_axes must be integers or None"):
        fnx.vmap(lambda x: x, out_axes=(x,))(x)
    for several in (x, jnp.ones(0)):
        with pytest.raises(ValueError, match="expected one element"):
            fnx.jit(bool)(several)
    with pytest.raises(fnx.errors.TracerBoolConversionError):
        fnx.jit(bool)(1.0)
