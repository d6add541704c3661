"""The functions and types of Millrace programs, in plain NumPy.

A program that imports this module runs unchanged under NumPy, as its own specification. Every
function computes in the dtype of its arguments, and dropout draws the same bits as Millrace.
"""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Callable, Sequence, Union

import numpy as np

__all__ = [
    "avg_pool2d",
    "batchnorm",
    "bfloat16",
    "bool_",
    "causal_mask",
    "conv1d",
    "conv2d",
    "cross_entropy",
    "dace",
    "depthwise",
    "dropout",
    "erf",
    "fixed",
    "float16",
    "float32",
    "float64",
    "gelu",
    "gelu_tanh",
    "groupnorm",
    "int32",
    "int64",
    "layernorm",
    "log_softmax",
    "logsumexp",
    "max_pool2d",
    "relu",
    "rmsnorm",
    "seed",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
]

Axis = Union[int, Sequence[int]]


class DType:
    """A type annotation: by itself a by-value scalar, subscripted a tensor of that shape."""

    def __init__(self, name: str, shape: tuple[int, ...] | None = None, has_gradient: bool = True):
        self.name = name
        self.shape = shape
        self.has_gradient = has_gradient

    def __getitem__(self, shape: int | tuple[int, ...]) -> DType:
        return DType(self.name, shape if isinstance(shape, tuple) else (shape,), self.has_gradient)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of this name, for x.astype(float32); it has no bfloat16, which becomes float32."""
        return np.dtype({"bfloat16": "float32", "bool_": "bool"}.get(self.name, self.name))

    def __repr__(self) -> str:
        return self.name if self.shape is None else f"{self.name}{list(self.shape)}"


float16 = DType("float16")
bfloat16 = DType("bfloat16")
float32 = DType("float32")
float64 = DType("float64")
int32 = DType("int32", has_gradient=False)
int64 = DType("int64", has_gradient=False)
bool_ = DType("bool", has_gradient=False)

# Types of arguments that need no gradient, such as a mask: `mask: fixed.float32[B, K]`.
fixed = SimpleNamespace(
    **{t.name: DType(t.name, has_gradient=False) for t in (float16, bfloat16, float32, float64)}
)


def _program(function: Callable) -> Callable:
    """Replaces @dace.program: returns the function unchanged."""
    return function


dace = SimpleNamespace(
    program=_program, float16=float16, bfloat16=bfloat16, float32=float32, float64=float64
)


def softmax(x: np.ndarray, axis: Axis = -1) -> np.ndarray:
    """Exponentials along axis, divided by their sum."""
    axes = _axes(x, axis)
    exponentials = np.exp(x - np.max(x, axis=axes, keepdims=True))
    return exponentials / np.sum(exponentials, axis=axes, keepdims=True)


def logsumexp(x: np.ndarray, axis: Axis = -1, keepdims: bool = False) -> np.ndarray:
    """The logarithm of the sum of the exponentials along axis."""
    axes = _axes(x, axis)
    largest = np.max(x, axis=axes, keepdims=True)
    total = np.log(np.sum(np.exp(x - largest), axis=axes, keepdims=True)) + largest
    return total if keepdims else np.squeeze(total, axis=axes)


def log_softmax(x: np.ndarray, axis: Axis = -1) -> np.ndarray:
    """The logarithm of softmax(x, axis)."""
    return x - logsumexp(x, axis, keepdims=True)


def cross_entropy(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The mean over all positions of -log_softmax(logits)[..., label]; labels are integers."""
    chosen = np.take_along_axis(log_softmax(logits), labels[..., None], axis=-1)
    return -np.mean(chosen)


def layernorm(
    x: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    axis: Axis = -1,
    eps: float = 1e-5,
) -> np.ndarray:
    """Zero mean and unit (biased) variance along axis, then weight and bias along it."""
    axes = _axes(x, axis)
    return _scaled_and_shifted(_standardized(x, axes, eps), axes, weight, bias)


def rmsnorm(
    x: np.ndarray, weight: np.ndarray | None = None, axis: Axis = -1, eps: float = 1e-6
) -> np.ndarray:
    """Unit mean square along axis, then weight along it."""
    axes = _axes(x, axis)
    mean_square = np.mean(x * x, axis=axes, keepdims=True)
    return _scaled_and_shifted(x / np.sqrt(mean_square + eps), axes, weight, None)


def batchnorm(
    x: np.ndarray,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    axis: int = 1,
    eps: float = 1e-5,
) -> np.ndarray:
    """Zero mean and unit variance over all axes except that of the channels; weight and bias along the channels.

    The statistics are those of this batch, as in training.
    """
    channels = _axes(x, axis)
    others = tuple(a for a in range(x.ndim) if a not in channels)
    return _scaled_and_shifted(_standardized(x, others, eps), channels, weight, bias)


def groupnorm(
    x: np.ndarray,
    groups: int,
    weight: np.ndarray | None = None,
    bias: np.ndarray | None = None,
    axis: int = 1,
    eps: float = 1e-5,
) -> np.ndarray:
    """Zero mean and unit variance over groups of channels; weight and bias along the channels.

    Axis 0 is the batch: each of its elements has its own statistics.
    """
    (channel,) = _axes(x, axis)
    if channel == 0 or groups < 1 or x.shape[channel] % groups != 0:
        raise ValueError(f"{x.shape[channel]} channels on axis {channel} cannot form {groups} groups")
    shape = x.shape[:channel] + (groups, x.shape[channel] // groups) + x.shape[channel + 1 :]
    others = tuple(a for a in range(1, x.ndim + 1) if a != channel)
    normalized = _standardized(x.reshape(shape), others, eps).reshape(x.shape)
    return _scaled_and_shifted(normalized, (channel,), weight, bias)


def relu(x: np.ndarray) -> np.ndarray:
    """The positive part of x."""
    return np.maximum(x, 0)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    return np.vectorize(math.erf, otypes=[np.float64])(x).astype(x.dtype)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """The logistic function, 1 / (1 + exp(-x))."""
    decay = np.exp(-np.abs(x))  # at most 1: nothing overflows
    return np.where(x < 0, decay, 1).astype(x.dtype) / (1 + decay)


def softplus(x: np.ndarray) -> np.ndarray:
    """The logarithm of 1 + exp(x)."""
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def gelu(x: np.ndarray) -> np.ndarray:
    """x times the normal distribution function of x, exact (with erf)."""
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """GELU with the tanh approximation, as in GPT-2."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def silu(x: np.ndarray) -> np.ndarray:
    """x times the logistic function of x."""
    decay = np.exp(-np.abs(x))  # at most 1: nothing overflows
    return x * np.where(x < 0, decay, 1) / (1 + decay)


def conv1d(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0
) -> np.ndarray:
    """x[B, C, T] with weight[O, C, K]: result[b, o, t] sums x[b, c, stride*t + k] weight[o, c, k].

    Padding adds zeros at both ends.
    """
    windows = _windows(x, weight.shape[2:], stride, padding)
    return _with_bias(np.einsum("bctk,ock->bot", windows, weight), bias)


def conv2d(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0
) -> np.ndarray:
    """x[B, C, Y, X] with weight[O, C, K, L]; stride and padding of both axes, as in conv1d."""
    windows = _windows(x, weight.shape[2:], stride, padding)
    return _with_bias(np.einsum("bcyxkl,ockl->boyx", windows, weight, optimize=True), bias)


def depthwise(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: int = 1, padding: int = 0
) -> np.ndarray:
    """A convolution of each channel by itself: x[B, C, T] with weight[C, K], or
    x[B, C, Y, X] with weight[C, K, L]."""
    windows = _windows(x, weight.shape[1:], stride, padding)
    terms = "bctk,ck->bct" if weight.ndim == 2 else "bcyxkl,ckl->bcyx"
    return _with_bias(np.einsum(terms, windows, weight), bias)


def max_pool2d(x: np.ndarray, size: int, stride: int | None = None, padding: int = 0) -> np.ndarray:
    """The largest of each size x size window of x[B, C, Y, X]; the stride defaults to the size."""
    windows = _windows(x, (size, size), stride or size, padding, -np.inf)
    return np.max(windows, axis=(-2, -1))


def avg_pool2d(x: np.ndarray, size: int, stride: int | None = None, padding: int = 0) -> np.ndarray:
    """The mean of each size x size window of x[B, C, Y, X], zeros of the padding included."""
    windows = _windows(x, (size, size), stride or size, padding)
    return np.mean(windows, axis=(-2, -1))


def causal_mask(x: np.ndarray) -> np.ndarray:
    """x[..., query, key] with minus infinity where key > query."""
    queries, keys = x.shape[-2:]
    hidden = np.arange(keys) > np.arange(queries)[:, None]
    return np.where(hidden, x.dtype.type(-np.inf), x)


_u64 = np.uint64
_WORD = 0xFFFFFFFF
_dropout_state = {"seed": 0, "step": 0, "subsequence": 0}


def seed(seed: int, step: int = 0) -> None:
    """The next dropout is the first one of this seed and step."""
    _dropout_state.update(seed=seed, step=step, subsequence=0)


def dropout(x: np.ndarray, p: float = 0.1) -> np.ndarray:
    """Zeros an element of x with probability p and divides the others by 1 - p.

    The mask depends only on the seed, the step, the dropout's position in the program and the
    element's row-major index e: it is half-word e % 8 of the Philox4x32-7 block at counter e / 8.
    """
    if not 0 <= p < 1:
        raise ValueError(f"dropout's p is {p}; it must be at least 0 and less than 1")
    state = _dropout_state
    blocks = np.arange((x.size + 7) // 8, dtype=np.uint64)
    counter = (blocks & _u64(_WORD), blocks >> _u64(32), state["subsequence"], state["step"])
    words = philox4x32(counter, (state["seed"] & _WORD, state["seed"] >> 32 & _WORD), rounds=7)
    state["subsequence"] += 1
    halves = [half for word in words for half in (word & _u64(0xFFFF), word >> _u64(16))]
    threshold = min(math.floor(p * 2**16 + 0.5), 2**16 - 1)
    kept = np.stack(halves, axis=-1).reshape(-1)[: x.size] >= _u64(threshold)
    return x * np.where(kept, 1 / (1 - p), 0.0).astype(x.dtype).reshape(x.shape)


def philox4x32(counter: Sequence, key: Sequence[int], rounds: int = 10) -> tuple[np.ndarray, ...]:
    """Philox4x32: four random words (as uint64) from four counter words and two key words."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, dtype=np.uint64) for word in counter))
    k0, k1 = key
    for _ in range(rounds):
        product0, product1 = c0 * _u64(0xD2511F53), c2 * _u64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (product1 >> _u64(32)) ^ c1 ^ _u64(k0),
            product1 & _u64(_WORD),
            (product0 >> _u64(32)) ^ c3 ^ _u64(k1),
            product0 & _u64(_WORD),
        )
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return c0, c1, c2, c3


def _windows(
    x: np.ndarray, extents: Sequence[int], stride: int, padding: int, fill: float = 0.0
) -> np.ndarray:
    """Windows of these extents along the last axes of x; the windows' own axes come last."""
    first = x.ndim - len(extents)
    margins = [(padding, padding) if axis >= first else (0, 0) for axis in range(x.ndim)]
    padded = np.pad(x, margins, constant_values=fill)
    axes = tuple(range(first, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(extents), axis=axes)
    strided = [slice(None, None, stride if axis in axes else 1) for axis in range(x.ndim)]
    return windows[tuple(strided)]


def _with_bias(x: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """x[b, c, ...] + bias[c]."""
    return x if bias is None else x + _along(x, bias, (1,))


def _axes(x: np.ndarray, axis: Axis) -> tuple[int, ...]:
    """The axes as a sorted tuple of non-negative numbers."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return tuple(sorted(a % x.ndim for a in axes))


def _standardized(x: np.ndarray, axes: tuple[int, ...], eps: float) -> np.ndarray:
    """Zero mean and unit (biased) variance over the axes."""
    centred = x - np.mean(x, axis=axes, keepdims=True)
    variance = np.mean(centred * centred, axis=axes, keepdims=True)
    return centred / np.sqrt(variance + eps)


def _scaled_and_shifted(
    x: np.ndarray,
    axes: tuple[int, ...],
    weight: np.ndarray | None,
    bias: np.ndarray | None,
) -> np.ndarray:
    """x times weight plus bias, which have only the given axes; either may be None."""
    if weight is not None:
        x = x * _along(x, weight, axes)
    if bias is not None:
        x = x + _along(x, bias, axes)
    return x


def _along(x: np.ndarray, parameter: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A parameter that has only the given axes of x, shaped to broadcast with x."""
    shape = tuple(x.shape[a] for a in axes)
    if parameter.shape != shape:
        raise ValueError(f"the parameter has shape {parameter.shape}; the axes have {shape}")
    return parameter.reshape([n if a in axes else 1 for a, n in enumerate(x.shape)])
