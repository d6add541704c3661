"""A layer in PyTorch as a contestant: times its training step, and returns its results for the comparison.

DEVICES has the differences between devices: setup and synchronization.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from peers import torch_bert, torch_gpt2, torch_llama
from peers.report import RoundTime

MODELS = {"bert": torch_bert, "gpt2": torch_gpt2, "llama": torch_llama}
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
WARM_UP_STEPS = 3
ROUND_SECONDS, ROUND_STEPS = 0.3, 3  # minimum duration and number of steps of a round


class Cpu:
    name = "cpu"

    def set_up(self, threads: int) -> None:
        torch.set_num_threads(threads)

    def synchronize(self) -> None:
        """Nothing to do: operators are synchronous."""

    def describe(self) -> dict:
        return {"torch": torch.__version__, "torch_config": torch.__config__.show().splitlines(),
                "torch_threads": torch.get_num_threads()}


DEVICES = {"cpu": Cpu()}


def forget_compiled() -> None:
    """Clears earlier compilations, which later calls would be checked against."""
    torch.compiler.reset()


class TorchPeer:
    """One layer on one device, eager or compiled."""

    def __init__(self, name, model, layer, sizes, tensors, *, device, dtype, dropout, compiled):
        self.name, self.device, self.model, self.sizes = name, device, model, sizes
        self.layer = layer(sizes, dropout).to(device.name, DTYPES[dtype]).train()
        with torch.no_grad():
            for role, values in model.to_roles(tensors).items():
                self.layer.roles()[role].copy_(torch.from_numpy(np.ascontiguousarray(values)))
        self.x = self._place(tensors[model.INPUT], dtype).requires_grad_()
        self.result_gradient = self._place(tensors[f"d_{model.RESULT}"], dtype)
        self.call = torch.compile(self.layer, dynamic=False) if compiled else self.layer

    def _place(self, tensor: np.ndarray, dtype: str) -> torch.Tensor:
        return torch.from_numpy(self.model.to_torch_layout(tensor)).to(self.device.name, DTYPES[dtype])

    def step(self) -> tuple[float, float, torch.Tensor]:
        """Seconds of forward and backward, and the result. Computes gradients of the input and of every parameter."""
        self.x.grad = None
        self.layer.zero_grad(set_to_none=True)
        self.device.synchronize()
        start = time.perf_counter()
        result = self.call(self.x)
        self.device.synchronize()
        middle = time.perf_counter()
        result.backward(self.result_gradient)
        self.device.synchronize()
        return middle - start, time.perf_counter() - middle, result

    def prepare(self) -> None:
        for _ in range(WARM_UP_STEPS):
            self.step()

    def round(self) -> RoundTime:
        self.step()  # warms the caches
        times: list[tuple[float, float]] = []
        while len(times) < ROUND_STEPS or sum(map(sum, times)) < ROUND_SECONDS:
            times.append(self.step()[:2])
        forward, backward = zip(*times)
        return RoundTime(*(statistics.median(seconds) for seconds in (forward, backward, list(map(sum, times)))))

    def results(self) -> dict[str, np.ndarray]:
        """The result and all gradients in float64, with Millrace's names and layouts."""
        result = self.step()[2]

        def values(tensor: torch.Tensor) -> np.ndarray:
            return tensor.detach().cpu().double().numpy()

        gradients = self.model.from_roles({r: values(p.grad) for r, p in self.layer.roles().items() if p.requires_grad}, self.sizes)
        return {
            self.model.RESULT: self.model.from_torch_layout(values(result)),
            f"d_{self.model.INPUT}": self.model.from_torch_layout(values(self.x.grad)),
            **{f"d_{name}": gradient for name, gradient in gradients.items()},
        }
