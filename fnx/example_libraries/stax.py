"""Layers of neural networks, each a pair `(init, apply)`.

`init(rng, input_shape)` gives the shape of results and the parameters, `apply(params, inputs)` the
results. `serial` and `parallel` make one layer of several.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax, random
from fnx.core.errors import InvalidValue
from fnx.nn import (
    elu,
    gelu,
    leaky_relu,
    log_softmax,
    relu,
    selu,
    sigmoid,
    softmax,
    softplus,
    standardize,
)
from fnx.nn.initializers import glorot_normal, normal, ones, zeros

Layer = tuple[Callable, Callable]
glorot, randn = glorot_normal, normal


def Dense(out_dim: int, W_init: Callable = glorot_normal(), b_init: Callable = normal()) -> Layer:  # noqa: B008
    """inputs @ W + b.

    >>> from fnx.example_libraries import stax
    >>> init, apply = stax.serial(stax.Dense(8), stax.Relu, stax.Dense(2))
    >>> shape, params = init(fnx.random.key(0), (-1, 3))
    >>> shape, apply(params, jnp.ones((5, 3))).shape
    ((-1, 2), (5, 2))
    """

    def init(rng: Any, input_shape: tuple) -> tuple:
        first, second = random.split(rng)
        params = W_init(first, (input_shape[-1], out_dim)), b_init(second, (out_dim,))
        return (*input_shape[:-1], out_dim), params

    def apply(params: tuple, inputs: Any, **_: Any) -> Any:
        W, b = params
        return jnp.dot(inputs, W) + b

    return init, apply


def GeneralConv(
    dimension_numbers: tuple,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Callable | None = None,
    b_init: Callable = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution; `dimension_numbers` are names of axes, ("NHWC", "HWIO", "NHWC") say."""
    return _conv(dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init, False)


def Conv(
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Callable | None = None,
    b_init: Callable = normal(1e-6),  # noqa: B008
) -> Layer:
    """A convolution of images, channels last."""
    numbers = ("NHWC", "HWIO", "NHWC")
    return _conv(numbers, out_chan, filter_shape, strides, padding, W_init, b_init, False)


def GeneralConvTranspose(
    dimension_numbers: tuple,
    out_chan: int,
    filter_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Any = "VALID",
    W_init: Callable | None = None,
    b_init: Callable = normal(1e-6),  # noqa: B008
) -> Layer:
    """A transposed convolution, which makes larger images."""
    return _conv(dimension_numbers, out_chan, filter_shape, strides, padding, W_init, b_init, True)


def Conv1DTranspose(out_chan: int, filter_shape: Sequence[int], *args: Any, **kwargs: Any) -> Layer:
    """A transposed convolution of sequences, channels last."""
    return GeneralConvTranspose(("NHC", "HIO", "NHC"), out_chan, filter_shape, *args, **kwargs)


def ConvTranspose(out_chan: int, filter_shape: Sequence[int], *args: Any, **kwargs: Any) -> Layer:
    """A transposed convolution of images, channels last."""
    return GeneralConvTranspose(("NHWC", "HWIO", "NHWC"), out_chan, filter_shape, *args, **kwargs)


def _conv(
    numbers: tuple, channels: int, filter_shape: Sequence[int], strides: Sequence[int] | None,
    padding: Any, W_init: Callable | None, b_init: Callable, transposed: bool,
) -> Layer:  # fmt: skip
    lhs, rhs, out = numbers
    strides = strides or (1,) * len(filter_shape)
    make_W = W_init or glorot_normal(rhs.index("I"), rhs.index("O"))

    def convolve(inputs: Any, W: Any) -> Any:
        if transposed:
            return lax.conv_transpose(inputs, W, strides, padding, dimension_numbers=numbers)
        return lax.conv_general_dilated(inputs, W, strides, padding, dimension_numbers=numbers)

    def init(rng: Any, input_shape: tuple) -> tuple:
        sizes = iter(filter_shape)
        known = {"O": channels, "I": input_shape[lhs.index("C")]}
        kernel = tuple([known[c] if c in known else next(sizes) for c in rhs])
        first, second = random.split(rng)
        bias = tuple([channels if c == "C" else 1 for c in out])
        params = make_W(first, kernel), b_init(second, bias)
        return _shape_after(lambda x: convolve(x, jnp.zeros(kernel)), input_shape), params

    def apply(params: tuple, inputs: Any, **_: Any) -> Any:
        W, b = params
        return convolve(inputs, W) + b

    return init, apply


def _shape_after(f: Callable, shape: tuple) -> tuple:
    """The shape that `f` makes of a shape, whose first size may be -1: any number of examples."""
    from fnx.transforms.make_jaxpr import ShapeDtypeStruct, eval_shape

    one = tuple([1 if n == -1 else n for n in shape])
    found = eval_shape(f, ShapeDtypeStruct(one, jnp.zeros(()).dtype)).shape
    return tuple([-1 if k < len(shape) and shape[k] == -1 else n for k, n in enumerate(found)])


def BatchNorm(
    axis: Sequence[int] | int = (0, 1, 2),
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    beta_init: Callable = zeros,
    gamma_init: Callable = ones,
) -> Layer:
    """Values without their mean and over their deviation along axes, shifted and scaled."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)

    def init(rng: Any, input_shape: tuple) -> tuple:
        shape = tuple([n for k, n in enumerate(input_shape) if k not in axes])
        first, second = random.split(rng)
        beta = beta_init(first, shape) if center else ()
        return input_shape, (beta, gamma_init(second, shape) if scale else ())

    def apply(params: tuple, x: Any, **_: Any) -> Any:
        beta, gamma = params
        wide = tuple([None if k in axes else slice(None) for k in range(jnp.ndim(x))])
        z = standardize(x, axes, epsilon=epsilon)
        z = gamma[wide] * z if scale else z
        return z + beta[wide] if center else z

    return init, apply


def elementwise(fun: Callable, **fun_kwargs: Any) -> Layer:
    """A function without parameters that keeps shapes."""
    return lambda rng, shape: (shape, ()), lambda params, x, **_: fun(x, **fun_kwargs)


Tanh = elementwise(jnp.tanh)
Relu = elementwise(relu)
Exp = elementwise(jnp.exp)
LogSoftmax = elementwise(log_softmax, axis=-1)
Softmax = elementwise(softmax, axis=-1)
Softplus = elementwise(softplus)
Sigmoid = elementwise(sigmoid)
Elu = elementwise(elu)
LeakyRelu = elementwise(leaky_relu)
Selu = elementwise(selu)
Gelu = elementwise(gelu)
Identity = elementwise(lambda x: x)


# --- pooling -----------------------------------------------------------------------------------


def _pooling(start: float, combine: Callable, mean: bool = False) -> Callable[..., Layer]:
    def pool(
        window_shape: Sequence[int],
        strides: Sequence[int] | None = None,
        padding: Any = "VALID",
        spec: str | None = None,
    ) -> Layer:
        rank = len(window_shape) + 2
        at = (0, rank - 1) if spec is None else (spec.index("N"), spec.index("C"))

        def full(sizes: Sequence[int]) -> tuple[int, ...]:
            it = iter(sizes)
            return tuple([1 if k in at else next(it) for k in range(rank)])

        window, steps = full(window_shape), full(strides or (1,) * len(window_shape))

        def pooled(x: Any) -> Any:
            return lax.reduce_window(x, start, combine, window, steps, padding)

        def apply(params: tuple, inputs: Any, **_: Any) -> Any:
            out = pooled(inputs)
            return out / pooled(jnp.ones_like(inputs)) if mean else out

        return lambda rng, shape: (_shape_after(pooled, shape), ()), apply

    return pool


MaxPool = _pooling(-math.inf, lax.max)
SumPool = _pooling(0.0, lax.add)
AvgPool = _pooling(0.0, lax.add, mean=True)


# --- shapes, and layers of layers --------------------------------------------------------------

Flatten = (
    lambda rng, shape: ((shape[0], math.prod(shape[1:])), ()),
    lambda params, x, **_: jnp.reshape(x, (x.shape[0], -1)),
)
FanInSum = (
    lambda rng, shapes: (shapes[0], ()),
    lambda params, xs, **_: sum(xs[1:], start=xs[0]),
)


def FanOut(num: int) -> Layer:
    """The same inputs several times."""
    return lambda rng, shape: ([shape] * num, ()), lambda params, x, **_: [x] * num


def FanInConcat(axis: int = -1) -> Layer:
    """Several inputs as one, along an axis."""

    def init(rng: Any, shapes: Sequence[tuple]) -> tuple:
        k = axis % len(shapes[0])
        total = sum(s[k] for s in shapes)
        return (*shapes[0][:k], total, *shapes[0][k + 1 :]), ()

    return init, lambda params, xs, **_: jnp.concatenate(xs, axis)


def Dropout(rate: float, mode: str = "train") -> Layer:
    """In the mode "train" each input with the probability `rate`, over it, and else 0.

    It needs `apply(params, inputs, rng=key)`; ValueError without.
    """

    def apply(params: tuple, inputs: Any, rng: Any = None, **_: Any) -> Any:
        if rng is None:
            raise InvalidValue("Dropout needs a key: apply(params, inputs, rng=key)")
        if mode != "train":
            return inputs
        return jnp.where(random.bernoulli(rng, rate, inputs.shape), inputs / rate, 0)

    return lambda rng, shape: (shape, ()), apply


def _keys(rng: Any, number: int) -> Any:
    return [None] * number if rng is None else random.split(rng, number)


def serial(*layers: Layer) -> Layer:
    """Layers one after the other."""

    def init(rng: Any, shape: tuple) -> tuple:
        params = []
        for start, _ in layers:
            rng, own = random.split(rng)
            shape, param = start(own, shape)
            params.append(param)
        return shape, params

    def apply(params: Sequence, inputs: Any, rng: Any = None, **kwargs: Any) -> Any:
        for (_, run), param, own in zip(layers, params, _keys(rng, len(layers)), strict=True):
            inputs = run(param, inputs, rng=own, **kwargs)
        return inputs

    return init, apply


def parallel(*layers: Layer) -> Layer:
    """Layers side by side, each with inputs of its own: after `FanOut`, say."""

    def init(rng: Any, shapes: Sequence[tuple]) -> tuple:
        keys = _keys(rng, len(layers))
        found = [start(k, s) for (start, _), k, s in zip(layers, keys, shapes, strict=True)]
        return tuple(zip(*found, strict=True))

    def apply(params: Sequence, inputs: Sequence, rng: Any = None, **kwargs: Any) -> list:
        keys = _keys(rng, len(layers))
        given = zip(layers, params, inputs, keys, strict=True)
        return [run(p, x, rng=k, **kwargs) for (_, run), p, x, k in given]

    return init, apply


def shape_dependent(make_layer: Callable[[tuple], Layer]) -> Layer:
    """The layer that is made when the shape of inputs is known."""

    def apply(params: Any, inputs: Any, **kwargs: Any) -> Any:
        return make_layer(inputs.shape)[1](params, inputs, **kwargs)

    return lambda rng, shape: make_layer(shape)[0](rng, shape), apply
