"""A layer in JAX on a GPU, in a separate process: jitted, with its steps called back to back.

XLA records CUDA graphs by itself, so there is only one mode. With "cudnn" the attention is cuDNN's, which has no
dropout in JAX: that layer computes less than the others.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other contestants share the GPU

import jax  # noqa: E402  (the variable above comes first)
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from peers import bert_tensors, mha_tensors  # noqa: E402
from peers.environment import ROOT  # noqa: E402
from peers.rows import CALLED_SECONDS, FEWEST_CALLS, count_for  # noqa: E402

sys.path.insert(0, str(ROOT / "tests/python"))
import safetensors_io  # noqa: E402  (found through the line above)

TENSORS = {"bert": bert_tensors, "mha": mha_tensors}
EPSILON = 1e-5
WARM_UP_STEPS = 5


def dropped(x, p: float, key):
    if p == 0:
        return x
    return jnp.where(jax.random.bernoulli(key, 1 - p, x.shape), x / (1 - p), 0).astype(x.dtype)


def normalized(x, weight, bias):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    centred = wide - wide.mean(-1, keepdims=True)
    return (centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + EPSILON)).astype(x.dtype) * weight + bias


def attention(q, k, v, p: float, key, implementation: str):
    """q, k and v: [batch, sequence, heads, projection]."""
    if implementation == "cudnn":
        return jax.nn.dot_product_attention(q, k, v, implementation="cudnn")
    scores = jnp.einsum("bjhp,bkhp->bhjk", q, k) * (1 / q.shape[-1] ** 0.5)
    weights = jax.nn.softmax(scores.astype(jnp.promote_types(q.dtype, jnp.float32)), -1).astype(q.dtype)
    return jnp.einsum("bhjk,bkhw->bjhw", dropped(weights, p, key), v)


def with_heads(x, heads: int):
    return x.reshape(*x.shape[:2], heads, -1)


def bert_layer(roles, inputs, heads: int, p: float, key, implementation: str):
    (x,), keys = inputs, jax.random.split(key, 4)
    q, k, v = (with_heads(part, heads)
               for part in jnp.split(x @ roles["qkv.weight"].T + roles["qkv.bias"], 3, axis=-1))
    gamma = attention(q, k, v, p, keys[0], implementation).reshape(x.shape)
    y = normalized(x + dropped(gamma @ roles["out.weight"].T + roles["out.bias"], p, keys[1]),
                   roles["norm1.weight"], roles["norm1.bias"])
    hidden = dropped(jax.nn.relu(y @ roles["linear1.weight"].T + roles["linear1.bias"]), p, keys[2])
    z = hidden @ roles["linear2.weight"].T + roles["linear2.bias"]
    return normalized(y + dropped(z, p, keys[3]), roles["norm2.weight"], roles["norm2.bias"])


def mha_layer(roles, inputs, heads: int, p: float, key, implementation: str):
    weights, biases = jnp.split(roles["qkv.weight"], 3), jnp.split(roles["qkv.bias"], 3)
    q, k, v = (with_heads(x @ weight.T + bias, heads) for x, weight, bias in zip(inputs, weights, biases))
    gamma = attention(q, k, v, p, key, implementation).reshape(inputs[0].shape)
    return gamma @ roles["out.weight"].T + roles["out.bias"]


LAYERS = {"bert": bert_layer, "mha": mha_layer}


class JaxContestant:
    def __init__(self, specification: dict):
        jax.config.update("jax_default_prng_impl", "rbg")  # faster than the default
        if specification.get("device", "cuda") == "cuda" and jax.default_backend() != "gpu":
            raise RuntimeError(f"JAX found no GPU, only {jax.devices()}")
        self.made, self.tensors = specification, TENSORS[specification["model"]]
        self.dtype, self.layer = jnp.dtype(specification["dtype"]), LAYERS[specification["model"]]

    def _build(self, dropout: float, given: dict[str, np.ndarray]) -> None:
        heads, implementation, layer = self.made["sizes"]["H"], self.made["attention"], self.layer
        self.roles = {role: jnp.asarray(values, self.dtype) for role, values in self.tensors.to_roles(given).items()}
        self.inputs = [self._placed(given[name]) for name in self.tensors.INPUTS]
        self.result_gradient = self._placed(given[f"d_{self.tensors.RESULT}"])

        def forward(roles, inputs, number):
            return layer(roles, inputs, heads, dropout, jax.random.fold_in(jax.random.key(1), number), implementation)

        def step(roles, inputs, gradient, number):
            result, back = jax.vjp(lambda roles, inputs: forward(roles, inputs, number), roles, inputs)
            return result, back(gradient)

        self.forward_alone = jax.jit(forward)  # saves nothing for backward
        self.whole_step = jax.jit(step)

    def _placed(self, tensor: np.ndarray):
        return jnp.asarray(self.tensors.to_torch_layout(tensor), self.dtype)

    def forward(self, number: int):
        return self.forward_alone(self.roles, self.inputs, number)

    def step(self, number: int):
        return self.whole_step(self.roles, self.inputs, self.result_gradient, number)

    def check(self, given: Path, made: Path) -> None:
        self._build(0.0, safetensors_io.read(given))
        result, (roles, inputs) = self.step(0)

        def values(tensor) -> np.ndarray:
            return np.asarray(tensor.astype(jnp.float32), np.float64)

        results = {self.tensors.RESULT: self.tensors.from_torch_layout(values(result))}
        for name, gradient in zip(self.tensors.INPUTS, inputs):
            results[f"d_{name}"] = self.tensors.from_torch_layout(values(gradient))
        gradients = self.tensors.from_roles({role: values(gradient) for role, gradient in roles.items()},
                                            self.made["sizes"])
        results |= {f"d_{name}": gradient for name, gradient in gradients.items()}
        safetensors_io.write(made, {name: np.ascontiguousarray(tensor) for name, tensor in results.items()})

    def prepare(self) -> dict:
        self._build(self.made["dropout"], self.tensors.draw(self.made["sizes"], self.made["seed"]))
        for number in range(WARM_UP_STEPS):
            jax.block_until_ready((self.forward(number), self.step(number)))
        self.number = WARM_UP_STEPS
        return {"jax": jax.__version__, "no_graph": "XLA records its own"}

    def round(self) -> dict:
        rng = np.random.default_rng()
        self.inputs = [jnp.asarray(rng.standard_normal(x.shape), self.dtype) for x in self.inputs]
        self.result_gradient = jnp.asarray(rng.standard_normal(self.result_gradient.shape), self.dtype)
        return {"called": [self._seconds(self.forward), self._seconds(self.step)]}

    def _seconds(self, work) -> float:
        """Seconds per call, over many calls that do not wait for each other."""
        once = self._timed(work, 3) / 3
        count = count_for(CALLED_SECONDS, once, FEWEST_CALLS)
        return self._timed(work, count) / count

    def _timed(self, work, times: int) -> float:
        begin = time.perf_counter()
        for _ in range(times):
            self.number += 1
            last = work(self.number)
        jax.block_until_ready(last)
        return time.perf_counter() - begin
