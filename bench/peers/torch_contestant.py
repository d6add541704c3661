"""A layer in PyTorch on a GPU, in a separate process: compared, called from Python, and replayed from a CUDA graph.

Called: consecutive steps from Python between two events. Graph: eight replays between two events, as `millrace bench`
times Millrace's. Backward is the step minus forward.
"""

from __future__ import annotations

import statistics
import sys
import warnings
from pathlib import Path

import numpy as np
import torch

from peers import bert_tensors, hugging_face, mha_tensors, torch_bert, torch_mha
from peers.environment import ROOT
from peers.rows import CALLED_SECONDS, FEWEST_CALLS, count_for
from peers.torch_peer import DTYPES

sys.path.insert(0, str(ROOT / "tests/python"))
import safetensors_io  # noqa: E402  (found through the line above)

TENSORS = {"bert": bert_tensors, "mha": mha_tensors}
LAYERS = {
    "bert": {"plain": torch_bert.PlainLayer, "library": torch_bert.LibraryLayer, "sdpa": torch_bert.SdpaLayer,
             "millrace": torch_bert.MillraceLayer, "hugging_face": hugging_face.BertLayerOfHuggingFace},
    "mha": torch_mha.LAYERS,
}
WARM_UP_STEPS = 11
GRAPH_SECONDS, FEWEST_SAMPLES = 0.1, 8  # of a round, approximately
REPLAYS_IN_A_ROW = 8  # as in a sample of `millrace bench`: amortizes the start of the first one


def choose_attention(backend: str | None) -> None:
    """Allows scaled_dot_product_attention only this backend in this process; None lets torch choose."""
    if backend is None:
        return
    switches = {"cudnn": torch.backends.cuda.enable_cudnn_sdp, "flash": torch.backends.cuda.enable_flash_sdp,
                "efficient": torch.backends.cuda.enable_mem_efficient_sdp, "math": torch.backends.cuda.enable_math_sdp}
    for name, switch in switches.items():
        switch(name == backend)


def tensors_of(role) -> tuple:
    return role if isinstance(role, tuple) else (role,)


class TorchContestant:
    def __init__(self, specification: dict):
        self.made = specification
        self.tensors, self.device = TENSORS[specification["model"]], specification.get("device", "cuda")
        self.dtype = DTYPES[specification["dtype"]]
        choose_attention(specification.get("attention"))
        if specification["layer"] == "millrace":
            self._set_up_millrace()

    def _set_up_millrace(self) -> None:
        sys.path.insert(0, str(ROOT / "python"))
        import millrace.torch

        millrace.torch.set_budget(self.made["budget"])
        warnings.filterwarnings("error", message="millrace: ")  # a layer that falls back to PyTorch is not a contestant

    # --- the layer ---

    def _build(self, dropout: float, given: dict[str, np.ndarray]) -> None:
        """Builds the layer with these parameters, its inputs and the gradient of its result."""
        layer = LAYERS[self.made["model"]][self.made["layer"]](self.made["sizes"], dropout)
        self.layer = layer.to(self.device, self.dtype).train()
        self.roles = {role: tensors_of(parameter) for role, parameter in self.layer.roles().items()}
        with torch.no_grad():
            for role, values in self.tensors.to_roles(given).items():
                for tensor, slice_ in zip(self.roles[role], np.split(values, len(self.roles[role]))):
                    tensor.copy_(torch.from_numpy(np.array(slice_)))
        self.inputs = [self._placed(given[name]).requires_grad_() for name in self.tensors.INPUTS]
        self.result_gradient = self._placed(given[f"d_{self.tensors.RESULT}"])
        self.parameters = [tensor for tensors in self.roles.values() for tensor in tensors]
        self.call = torch.compile(self.layer, dynamic=False) if self.made["compiled"] else self.layer

    def _placed(self, tensor: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(self.tensors.to_torch_layout(tensor)).to(self.device, self.dtype)

    def forward(self) -> torch.Tensor:
        return self.call(*self.inputs)

    def step(self) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        result = self.forward()
        return result, torch.autograd.grad(result, [*self.inputs, *self.parameters], self.result_gradient)

    # --- requests of the comparison ---

    def check(self, given: Path, made: Path) -> None:
        """Writes results and gradients with Millrace's names and layouts."""
        self._build(0.0, safetensors_io.read(given))
        result, gradients = self.step()

        def values(tensor: torch.Tensor) -> np.ndarray:
            return tensor.detach().to("cpu", torch.float64).numpy()

        count = len(self.inputs)
        found = iter(gradients[count:])
        roles = {role: np.concatenate([values(next(found)) for _ in tensors]) for role, tensors in self.roles.items()}
        results = {self.tensors.RESULT: self.tensors.from_torch_layout(values(result))}
        for name, gradient in zip(self.tensors.INPUTS, gradients[:count]):
            results[f"d_{name}"] = self.tensors.from_torch_layout(values(gradient))
        for name, gradient in self.tensors.from_roles(roles, self.made["sizes"]).items():
            results[f"d_{name}"] = gradient
        safetensors_io.write(made, {name: np.ascontiguousarray(tensor) for name, tensor in results.items()})

    def prepare(self) -> dict:
        """Prepares for rounds. A step that cannot be captured in a graph is timed by calls only."""
        self._build(self.made["dropout"], self.tensors.draw(self.made["sizes"], self.made["seed"]))
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # as graph capture requires
            for _ in range(WARM_UP_STEPS):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self.graphs, self.no_graph = None, None
        try:
            self.graphs = [self._recorded(self.forward), self._recorded(self.step)]
        except Exception as error:  # calls can still be timed
            self.no_graph = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        torch.cuda.reset_peak_memory_stats()
        self.step()
        torch.cuda.synchronize()
        return {"peak_bytes": torch.cuda.max_memory_allocated(), "no_graph": self.no_graph, "torch": torch.__version__,
                "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
                "tf32": torch.backends.cuda.matmul.allow_tf32, "gpu": torch.cuda.get_device_name()}

    def _recorded(self, work) -> torch.cuda.CUDAGraph:
        """Does not keep the results, whose memory belongs to the graph. A result would keep its autograd nodes alive;
        they belong to the capturing stream, and every later call would wait for that stream, on the host too."""
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph

    def round(self) -> dict:
        """Times in seconds, with new inputs in every round."""
        with torch.no_grad():
            for tensor in [*self.inputs, self.result_gradient]:
                tensor.normal_()

        def called() -> list[float]:
            return [seconds_of_calls(work) for work in (self.forward, self.step)]

        times = {"called": called()}
        with torch.autograd.set_multithreading_enabled(False):
            times["one_thread"] = called()
        if self.graphs:
            times["graph"] = [seconds_of_replay(graph) for graph in self.graphs]
        return times


def seconds_between(work, times: int) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return 1e-3 * begin.elapsed_time(end)


def seconds_of_calls(work) -> float:
    """Seconds per call, over many calls that do not wait for each other."""
    once = seconds_between(work, 5) / 5  # also warms up
    count = count_for(CALLED_SECONDS, once, FEWEST_CALLS)
    return seconds_between(work, count) / count


def seconds_of_replay(graph: torch.cuda.CUDAGraph) -> float:
    """The median over samples of several replays each."""
    once = seconds_between(graph.replay, 3) / 3
    count = count_for(GRAPH_SECONDS / REPLAYS_IN_A_ROW, once, FEWEST_SAMPLES)
    samples = [seconds_between(graph.replay, REPLAYS_IN_A_ROW) for _ in range(count)]
    return statistics.median(samples) / REPLAYS_IN_A_ROW
